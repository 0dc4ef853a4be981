"""The compiled kernels where they could be built, else None: everything also runs on NumPy alone."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

MAX_DIMS = 6
"""Dims of a strided copy in C, as in kernels.c."""

ALL_SAME, DIFFERENT, NOT_YET, ABORTED, CHANGED, REFUSED = range(6)
"""Answers, as in kernels.c; a script that is done answers as a meeting where all said the same."""

COPY, READ, COMBINE, DESCRIBE, CHECK, MEET = range(6)
"""Operations of a script, as in kernels.c."""


class Kernels:
    """The functions of kernels.c, typed. Calls release Python's lock while they run."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, int64 = ctypes.c_void_p, ctypes.c_int64
        self.copy = library.redist_copy
        self.copy.argtypes = [pointer, int64, pointer, ctypes.c_int]
        self.copy.restype = None
        self.combine = library.redist_combine
        self.combine.argtypes = [pointer, int64, pointer, int64]
        self.combine.restype = None
        self.read = library.redist_read
        self.read.argtypes = [ctypes.c_int, pointer, int64, pointer]
        self.meet = library.redist_meet
        number = ctypes.c_int
        self.meet.argtypes = [
            pointer,
            number,
            number,
            ctypes.c_uint64,
            ctypes.c_uint64,
            pointer,
            int64,
        ]
        self.script = library.redist_script
        self.script.argtypes = [pointer]


@lru_cache(maxsize=1)
def kernels() -> Kernels | None:
    """The kernels, or None where the library is missing or ``REDIST_PURE=1`` asks for NumPy."""
    if os.environ.get("REDIST_PURE", "") not in ("", "0"):
        return None
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_kernels{suffix}")
        if path.exists():
            try:
                return Kernels(ctypes.CDLL(str(path)))
            except (OSError, AttributeError):
                return None
    return None
