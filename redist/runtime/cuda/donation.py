"""Donated arrays of a GPU give their memory back to CuPy's pool, though their owners still hold them."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np

from redist.runtime.cuda.arrays import current_stream, empty_on_device


def why_kept(array: Any) -> str:
    """**Local.** Why the memory of an array of CuPy would stay if it were given up; empty if not."""
    if not array.nbytes:
        return ""
    problem = _not_its_own(array)
    if problem:
        return problem
    return "" if _holders(array) == _alone() else "there are views of it"


def give_up(array: Any) -> None:
    """**Local.** Make an array empty if its memory is its own; the pool has that memory again.

    Views of CuPy keep it alive, and then it stays. What another library made of the array holds the
    array, not its memory, and must not be used again. The pool may lend it to another stream at
    once: what was put onto the current one, and what that waits for, is done before.
    """
    if array.nbytes and not _not_its_own(array):
        current_stream().synchronize()
        _empty(array)


def _not_its_own(array: Any) -> str:
    """Say why emptying an array is not allowed or would free nothing; empty if it is and would."""
    from cupy.cuda.memory import PooledMemory

    if not isinstance(array.data.mem, PooledMemory):
        return "its memory is not of CuPy's pool"
    if array.base is not None:
        return "it is a view"
    return "" if _alone() else "this CuPy cannot empty an array"


def _empty(array: Any) -> None:
    """Let an array forget its memory.

    CuPy has no public way. ``_init`` makes a new array of an old one, but for its shape, to which it
    appends; so the array is one without dims before.
    """
    array._set_shape_and_strides((), (), True, True)
    array._init((0,), array.dtype)


def _holders(array: Any) -> tuple[int, int]:
    """How many hold an array's pointer, and its memory: views have the one or the other."""
    return sys.getrefcount(array.data), sys.getrefcount(array.data.mem)


@lru_cache(maxsize=1)
def _alone() -> tuple[int, int] | None:
    """The holders of an array without views; None where this CuPy cannot empty one."""
    array = empty_on_device((1, 1), np.dtype(np.uint8))
    found = _holders(array)
    memory = array.data.mem
    before = sys.getrefcount(memory)
    try:
        _empty(array)
    except (AttributeError, TypeError, ValueError):
        return None
    is_empty = array.shape == (0,) and len(array.strides) == 1 and array.nbytes == 0
    return found if is_empty and sys.getrefcount(memory) == before - 1 else None
