"""The compiled kernels where they could be built, else None: everything also runs on NumPy alone.

A library of kernels is loaded here, also that of another package; or it is said why NumPy does its work.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import warnings
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
"""The folder of the redist that runs."""

COMPILERS = ("cc", "gcc", "clang")


def checkout() -> Path | None:
    """**Local.** The folder of the checkout that this redist runs from; None if it is installed."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").exists() and (root / "setup.py").exists() else None


def load_library(path: Path, abi_function: str, abi: int) -> ctypes.CDLL | str:
    """**Local.** Load the library at ``path``; if it cannot be used, say why not.

    ``abi_function`` returns the number of what Python and C tell each other. It must be ``abi``.
    """
    if os.environ.get("REDIST_PURE", "") not in ("", "0"):
        return "REDIST_PURE is set"
    if not path.exists():
        return f"not built: {_how_to_build()}"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return f"{path.name} cannot be loaded ({error}); {_how_to_build()}"
    try:
        answer = getattr(library, abi_function)
        answer.restype = ctypes.c_int64
        number = int(answer())
    except AttributeError:
        number = 0
    if number != abi:
        return f"built for another redist (number {number}, not {abi}); {_how_to_build()}"
    return library


def warn_of_numpy(why: str) -> None:
    """**Local.** Warn once that NumPy does the work of the kernels, unless REDIST_PURE asks for it.

    Rank 0 speaks for all.
    """
    if "REDIST_PURE" not in why and _rank() == 0:
        text = f"redist runs without its compiled kernels, up to 30 times slower: {why}; "
        warnings.warn(f"{text}REDIST_PURE=1 silences this", RuntimeWarning, stacklevel=2)


def _how_to_build() -> str:
    """What builds the kernels of this redist."""
    root = checkout()
    if any(map(shutil.which, filter(None, (os.environ.get("CC"), *COMPILERS)))):
        found = ""
    else:
        found = "no C compiler is found; install one, then "
    if root is None:
        return f"{found}install redist again"
    return f"{found}'pip install -e {root}' builds them in this checkout"


def _rank() -> int:
    """This process's number in its job: MPI's if that has started, else torchrun's."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        return int(mpi.COMM_WORLD.rank)
    return int(os.environ.get("RANK") or 0)


ABI = 2
"""The number of what Python and C tell each other, as in kernels.h; another library is refused."""

MAX_DIMS = 6
"""Dims of a strided copy in C, as in kernels.h."""

ALL_SAME, DIFFERENT, NOT_YET, ABORTED, CHANGED, REFUSED, PAUSED = range(7)
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
