"""Move JAX arrays by plans: ``redist.jax.redistribute(x, sharding)``. Needs JAX, an extra, but no MPI."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redist.text.extras import install_line as _install_line

try:
    import jax  # noqa: F401
except ImportError as _problem:
    raise ImportError(
        f"cannot import redist.jax: JAX is not installed; {_install_line('jax')}"
    ) from _problem

from redist.jax.compare import Comparison, compare
from redist.jax.compiled import to_jax
from redist.jax.redistribute import plan_for, redistribute
from redist.jax.types import sharding_of, type_of

if TYPE_CHECKING:
    from redist.jax.global_arrays import from_global, to_global


def __getattr__(name: str) -> Any:
    """Import names that need MPI when they are first used."""
    if name in ("from_global", "to_global"):
        return getattr(import_module("redist.jax.global_arrays"), name)
    raise AttributeError(f"module 'redist.jax' has no attribute {name!r}")


__all__ = [
    "Comparison",
    "compare",
    "from_global",
    "plan_for",
    "redistribute",
    "sharding_of",
    "to_global",
    "to_jax",
    "type_of",
]
