"""Loops of other packages on a GPU: compiled from their source at the first use; and CuPy's functions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from redist.runtime.copies.gpu_arrays import is_device

WORDS = (np.int64, np.float64, np.uintp, np.void)
PLAIN_SHARED_BYTES, MOST_SHARED_BYTES = 48 * 1024, 220 * 1024
"""What a block may take of a processor's memory without asking, and with; blocks side by side share it."""
ROUNDED = "-fmad=false"
"""Products are rounded before they are added, unless a loop says otherwise."""


def functions_for(array: Any) -> Any:
    """**Local.** The functions for an array: CuPy's if it lies on a GPU, else NumPy's.

    >>> functions_for(np.ones(3)).__name__
    'numpy'
    """
    if not is_device(array):
        return np
    import cupy

    return cupy


@lru_cache(maxsize=64)
def _compiled(source: str, options: tuple[str, ...]) -> Any:
    import cupy

    return cupy.RawModule(code=source, options=("-std=c++17", ROUNDED, *options))


def run_loop(
    source: str,
    name: str,
    n_blocks: int,
    n_threads: int,
    *args: Any,
    options: tuple[str, ...] = (),
    shared_bytes: int = 0,
    times: int = 1,
) -> None:
    """**Local.** Start a loop of a source on the current stream, ``times`` times; None is no array."""
    loop = _compiled(source, options).get_function(name)
    if shared_bytes > PLAIN_SHARED_BYTES:
        loop.max_dynamic_shared_size_bytes = shared_bytes
    given = tuple(np.uintp(0) if one is None else _as_word(one) for one in args)
    for _ in range(times):
        loop((max(1, n_blocks),), (n_threads,), given, shared_mem=shared_bytes)


def _as_word(value: Any) -> Any:
    """Numbers as loops take them: of eight bytes each; a struct is ``np.void``."""
    if value.__class__ in WORDS:
        return value
    if isinstance(value, (bool, int, np.integer)):
        return np.int64(value)
    return np.float64(value) if isinstance(value, (float, np.floating)) else value


@lru_cache(maxsize=8)
def _processors(gpu: int) -> int:
    import cupy

    return int(cupy.cuda.runtime.getDeviceProperties(gpu)["multiProcessorCount"])


def n_processors() -> int:
    """**Local.** How many blocks of threads this rank's GPU works on side by side."""
    import cupy

    return _processors(int(cupy.cuda.runtime.getDevice()))
