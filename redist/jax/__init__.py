"""Move JAX arrays by plans: ``redist.jax.redistribute(x, sharding)``. Needs JAX, an extra."""

from redist.jax.compiled import to_jax
from redist.jax.redistribute import plan_for, redistribute
from redist.jax.types import sharding_of, type_of

__all__ = ["plan_for", "redistribute", "sharding_of", "to_jax", "type_of"]
