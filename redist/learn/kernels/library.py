"""Where loops are: the library of those in C, if it could be built, and the text of those for GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.copies.kernels import load_library, warn_of_numpy

ABI = 5
"""The number of what Python and C tell each other, as in native/learn.h."""
LIBRARY = Path(__file__).with_name("_kernels.so")
Values = NDArray[Any]
SUFFIX = {np.dtype(np.float64): "f64", np.dtype(np.float32): "f32"}
"""How names of loops end, for each type of numbers."""

TURN = 2**26
"""Steps of a loop in C before Python has a turn: an interrupt waits no longer."""
C_TYPES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
"""Types of the numbers that loops are compiled for."""


def in_turns(n: int, steps_each: int) -> Iterator[slice]:
    """**Local.** The items of a loop in C, in parts that take a moment: Python sees Ctrl-C between them.

    >>> list(in_turns(10, TURN // 4)), list(in_turns(0, 5))
    ([slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)], [])
    """
    part = max(1, TURN // max(1, steps_each))
    for lo in range(0, n, part):
        yield slice(lo, min(n, lo + part))


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """**Local.** The library, or None where it is missing or ``REDIST_PURE=1`` asks for NumPy."""
    found = _found()
    if isinstance(found, str):
        warn_of_numpy(found)
        return None
    return found


def why_no_library() -> str:
    """**Local.** Say why NumPy does the work of the loops; empty if it does not."""
    found = _found()
    return found if isinstance(found, str) else ""


@lru_cache(maxsize=1)
def _found() -> ctypes.CDLL | str:
    found = load_library(LIBRARY, "redist_learn_abi", ABI)
    if not isinstance(found, str):
        found.redist_lloyd_f64.restype = found.redist_lloyd_f32.restype = ctypes.c_int64
        found.redist_least.restype = ctypes.c_int64
        found.redist_respond.restype = ctypes.c_double
    return found


def address(values: Values | None) -> ctypes.c_void_p:
    """**Local.** Where an array lies, for C, which takes rows one after another; None lies nowhere."""
    assert values is None or values.flags.c_contiguous
    return ctypes.c_void_p(None if values is None else values.ctypes.data)


@lru_cache(maxsize=16)
def source_of(*names: str) -> str:
    """**Local.** The text of files of loops, after what all of them share."""
    folder = Path(__file__).with_name("cuda")
    return "\n".join(
        (folder / f"{one}.cu").read_text(encoding="utf-8") for one in ("threads", *names)
    )
