"""Move a jax.Array to another sharding by a plan."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax

from redist.jax.compiled import to_jax
from redist.jax.types import type_of
from redist.layout.array_type import ArrayType
from redist.plan.plan import Plan
from redist.planner import synthesize


def plan_for(x: Any, sharding: Any, limit_bytes: int | None = None, *, source: Any = None) -> Plan:
    """The plan by which :func:`redistribute` would move an array."""
    return _plan(type_of(x, source), type_of(x, sharding), limit_bytes)


@lru_cache(maxsize=2**12)
def _plan(source: ArrayType, target: ArrayType, limit_bytes: int | None) -> Plan:
    return synthesize(source, target, strategy="collectives", limit_bytes=limit_bytes)


def redistribute(
    x: Any,
    sharding: Any,
    limit_bytes: int | None = None,
    *,
    source: Any = None,
    donate: bool = False,
) -> Any:
    """The same array under another NamedSharding, moved by a plan of collectives.

    Inside ``jit`` and ``grad`` an array does not know how it is sharded: say it with ``source``.
    Between two sets of devices there is no collective in JAX; such arrays are moved with
    ``jax.device_put``.
    """
    before, after = type_of(x, source), type_of(x, sharding)
    if before.mesh.ranks != after.mesh.ranks:
        return jax.device_put(x, sharding, donate=donate)
    return _compiled(before, after, limit_bytes, donate, sharding)(x)


@lru_cache(maxsize=2**12)
def _compiled(
    source: ArrayType, target: ArrayType, limit_bytes: int | None, donate: bool, sharding: Any
) -> Any:
    move = to_jax(_plan(source, target, limit_bytes), sharding.mesh)
    return jax.jit(move, out_shardings=sharding, donate_argnums=0 if donate else ())
