"""Move a jax.Array to another sharding by a plan."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax

from redist.jax.choose import choose_plan
from redist.jax.compiled import to_jax
from redist.jax.types import on_one_axis, type_of
from redist.layout.array_type import ArrayType
from redist.plan.plan import Plan


def plan_for(x: Any, sharding: Any, limit_bytes: int | None = None, *, source: Any = None) -> Plan:
    """The plan by which :func:`redistribute` would move an array."""
    return _plan(*_ends(x, source, sharding), limit_bytes, False)


def _ends(x: Any, source: Any, sharding: Any) -> tuple[ArrayType, ArrayType]:
    """Types before and after; of one mesh, where two are of the same devices in one order."""
    before, after = type_of(x, source), type_of(x, sharding)
    if before.mesh != after.mesh and before.mesh.ranks == after.mesh.ranks:
        return on_one_axis(before), on_one_axis(after)
    return before, after


@lru_cache(maxsize=2**12)
def _plan(source: ArrayType, target: ArrayType, limit_bytes: int | None, donate: bool) -> Plan:
    return choose_plan(source, target, limit_bytes, donate)


def redistribute(
    x: Any,
    sharding: Any,
    limit_bytes: int | None = None,
    *,
    source: Any = None,
    donate: bool = False,
) -> Any:
    """The same array under another NamedSharding, moved by a plan of collectives.

    ``limit_bytes`` is for all that a device holds meanwhile: its tiles of source and result, and the
    copies around collectives. Inside ``jit`` and ``grad`` an array does not know how it is sharded: say
    it with ``source``. Between two sets of devices there is no collective in JAX; such arrays are moved
    with ``jax.device_put``.
    """
    before, after = _ends(x, source, sharding)
    if before.mesh.ranks != after.mesh.ranks:
        return jax.device_put(x, sharding, donate=donate)
    moved = _compiled(before, after, limit_bytes, donate, sharding)(x)
    if donate and not isinstance(x, jax.core.Tracer) and not _is_gone(x, sharding):
        x.delete()  # its memory is of another size than the result's, or XLA had no use for it
    return moved


def _is_gone(x: Any, sharding: Any) -> bool:
    """Whether an array that was given away is deleted, or its memory is the result's."""
    return x.is_deleted() or x.sharding.is_equivalent_to(sharding, x.ndim)


def _is_reused(source: ArrayType, target: ArrayType) -> bool:
    """Whether XLA can put the result where the source is."""
    return source.tile_bytes == target.tile_bytes


@lru_cache(maxsize=2**12)
def _compiled(
    source: ArrayType, target: ArrayType, limit_bytes: int | None, donate: bool, sharding: Any
) -> Any:
    plan = _plan(source, target, limit_bytes, donate)
    move = to_jax(plan, sharding.mesh)
    given = (0,) if donate and _is_reused(source, target) else ()
    return jax.jit(move, out_shardings=sharding, donate_argnums=given)
