"""The compiled kernels where they could be built, else None: everything also runs on NumPy alone."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path

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
    return found if isinstance(found, Kernels) else None


def why_no_kernels() -> str:
    """Say why NumPy does the work of the kernels; empty if it does not."""
    found = _found()
    return found if isinstance(found, str) else ""


@lru_cache(maxsize=1)
def _found() -> Kernels | str:
    if os.environ.get("REDIST_PURE", "") not in ("", "0"):
        return "REDIST_PURE is set: NumPy does their work"
    return load_kernels(LIBRARY)


def load_kernels(path: Path) -> Kernels | str:
    """Load the library at ``path``; if it cannot be used, say why not."""
    if not path.exists():
        return "not built, no C compiler at installation: NumPy"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return f"{path.name} cannot be loaded ({error}): NumPy"
    try:
        library.redist_abi.restype = ctypes.c_int64
        number = int(library.redist_abi())
    except AttributeError:
        number = 0
    if number != ABI:
        return f"built for another redist (its number is {number}, not {ABI}): NumPy; install again"
    return Kernels(library)
