"""The optional packages, and the line that installs one: the only place that says it."""

from __future__ import annotations

EXTRAS = {
    "mpi": "mpich",
    "gpu": "cupy-cuda13x>=14",
    "dtypes": "ml_dtypes",
    "torch": "torch>=2.13",
    "jax": "jax>=0.10",
    "learn": "scikit-learn>=1.6",
    "parquet": "pyarrow",
    "arrange": "scipy>=1.11",
    "plot": "matplotlib",
}
"""What each extra of pyproject.toml brings; a test compares them."""


def install_line(extra: str) -> str:
    """The command that installs what an extra brings, wherever redist itself came from.

    >>> install_line("learn"), install_line("plot")
    ("pip install 'scikit-learn>=1.6'", 'pip install matplotlib')
    """
    package = EXTRAS[extra]
    return f"pip install {package}" if package.isidentifier() else f"pip install '{package}'"
