"""The optional packages, the line that installs one, and who advises them: the only place that says it."""

from __future__ import annotations

import sys
from importlib import import_module
from types import FrameType, ModuleType

EXTRAS = {
    "mpi": "mpich",
    "gpu": "cupy-cuda13x>=14",
    "dtypes": "ml_dtypes",
    "torch": "torch>=2.13",
    "jax": "jax>=0.10",
    "learn": "scikit-learn>=1.6",
    "parquet": "pyarrow",
    "store": "zarr>=3 h5py",
    "arrange": "scipy>=1.11",
    "plot": "matplotlib",
}
"""What each extra of pyproject.toml brings, with spaces between packages; a test compares them."""

ADVISERS = {"sklearn": "redist.learn.advice"}
"""For libraries that may be given global arrays: the module that knows what to tell them in errors."""


def install_line(extra: str) -> str:
    """The command that installs what an extra brings, wherever redist itself came from.

    >>> install_line("learn"), install_line("store")
    ("pip install 'scikit-learn>=1.6'", "pip install 'zarr>=3' h5py")
    """
    packages = EXTRAS[extra].split()
    return "pip install " + " ".join(p if p.isidentifier() else f"'{p}'" for p in packages)


def adviser_of(frame: FrameType | None) -> tuple[ModuleType | None, FrameType | None]:
    """The module that advises the nearest library among the callers, and where that is; None if nobody does.

    >>> adviser_of(sys._getframe())
    (None, None)
    """
    while frame is not None:
        name = ADVISERS.get(str(frame.f_globals.get("__name__", "")).partition(".")[0])
        if name is not None:
            return _adviser(name), frame
        frame = frame.f_back
    return None, None


def pickling_advice() -> str:
    """What advisers of the libraries that are loaded say of pickles, to follow other advice.

    >>> pickling_advice() if not set(ADVISERS) & set(sys.modules) else ""
    ''
    """
    found = (_adviser(name) for library, name in ADVISERS.items() if library in sys.modules)
    return "".join(f"; {one.PICKLES}" for one in found if one is not None)


def _adviser(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:  # of another version
        return None
