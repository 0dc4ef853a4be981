"""The compiled kernels where they could be built, else None: everything also runs on NumPy alone."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path

from redist.runtime.copies.library import load_library, warn_of_numpy

ABI = 1
"""The number of what Python and C tell each other, as in kernels.h; another library is refused."""

MAX_DIMS = 6
"""Dims of a strided copy in C, as in kernels.h."""

ALL_SAME, DIFFERENT, NOT_YET, ABORTED, CHANGED, REFUSED = range(6)
"""Answers, as in kernels.h; a script that is done answers as a meeting where all said the same."""

LIBRARY = Path(__file__).with_name("_kernels.so")


class Kernels:
    """The functions of kernels.h, typed. Calls release Python's lock while they run."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, int64, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
        word = ctypes.c_uint64
        self.copy = library.redist_copy
        self.copy.argtypes = [pointer, int64, pointer, number]
        self.copy.restype = None
        self.combine = library.redist_combine
        self.combine.argtypes = [pointer, int64, pointer, int64]
        self.combine.restype = None
        self.read = library.redist_read
        self.read.argtypes = [number, pointer, int64, pointer]
        self.meet = library.redist_meet
        self.meet.argtypes = [pointer, number, number, word, word, pointer, int64]
        self.script = library.redist_script
        self.script.argtypes = [pointer]


@lru_cache(maxsize=1)
def kernels() -> Kernels | None:
    """The kernels, or None where the library is missing or ``REDIST_PURE=1`` asks for NumPy."""
    found = _found()
    if isinstance(found, str):
        warn_of_numpy(found)
        return None
    return found


def why_no_kernels() -> str:
    """Say why NumPy does the work of the kernels; empty if it does not."""
    found = _found()
    return found if isinstance(found, str) else ""


@lru_cache(maxsize=1)
def _found() -> Kernels | str:
    return load_kernels(LIBRARY)


def load_kernels(path: Path) -> Kernels | str:
    """Load the library at ``path``; if it cannot be used, say why not."""
    library = load_library(path, "redist_abi", ABI)
    return library if isinstance(library, str) else Kernels(library)
