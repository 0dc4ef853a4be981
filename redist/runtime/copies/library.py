"""Load a library of compiled kernels, or say why NumPy does its work."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import warnings
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
