"""Estimators for global arrays, with scikit-learn's names, parameters and results (the extra ``learn``).

In an SPMD program::

    from redist import pgas
    from redist.learn.cluster import KMeans
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from redist.text.extras import install_line as _install_line

try:
    import sklearn  # noqa: F401
except ImportError as _problem:
    raise ImportError(
        f"cannot import redist.learn: scikit-learn is not installed; {_install_line('learn')}"
    ) from _problem

if _TYPE_CHECKING:
    from redist.learn.over_ranks import gathered

__all__ = ["gathered"]


def __getattr__(name: str) -> _Any:
    if name == "gathered":  # global arrays bring MPI along: not before somebody asks
        from redist.learn.over_ranks import gathered

        return gathered
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
