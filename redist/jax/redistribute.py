"""Move a jax.Array, or a tree of them, to other shardings by plans."""

from __future__ import annotations

from typing import Any

import jax

from redist.errors import ConversionError, RequestError
from redist.jax.arguments import check_end, checked
from redist.jax.moves import LeafMove, ends_of, is_on_devices, plan_between, platform_of
from redist.jax.trees import moves_of, steps_of
from redist.jax.types import sharding_from, sharding_like
from redist.plan.plan import Plan
from redist.text.units import limit_from


@checked
def redistribute(
    x: Any,
    sharding: Any,
    limit_bytes: int | str | None = None,
    *,
    source: Any = None,
    donate: bool = False,
) -> Any:
    """The same array, or tree of arrays, under other shardings, moved by plans made of collectives.

    ``redistribute(x, P("tp", None))`` moves an array over its own mesh. ``redistribute(params, sharding)``
    moves every array of a tree, and ``redistribute(params, shardings)`` moves each to a sharding of its own:
    ``shardings`` is a tree as ``jax.device_put`` takes it, in which None leaves an array where it is.

    NumPy arrays are put on the devices; numbers, text and None stay as they are. ``limit_bytes``, a number
    or text such as ``"2GiB"``, bounds everything that a device holds of the tree during the move: arrays,
    results, and the copies around collectives. The arrays of a tree move one after the other, in the order
    that needs the least memory. ``donate`` gives the arrays away: their memory is freed as early as
    possible.

    Inside ``jit`` and ``grad`` an array does not know how it is sharded, so pass its sharding as ``source``,
    one for all or a tree. Between two sets of devices JAX has no collective; such arrays are moved with
    ``jax.device_put``, without a limit. The first call for a shape and its shardings plans, proves and
    compiles; later calls only move.
    """
    limit = limit_from(limit_bytes)
    _check_place(x)
    moves, structure = moves_of(x, sharding, source)
    _check_values(moves, donate)
    results: list[Any] = [None] * len(moves)
    for number, room, gives in steps_of(moves, limit, donate):
        results[number] = moves[number].run(room, gives)
        if len(moves) > 1 and (limit is not None or _is_in_memory(moves[number])):
            jax.block_until_ready(results[number])  # its copies are gone before the next one moves
    if donate:
        _free_what_is_left(moves)
    return jax.tree.unflatten(structure, results)


def _check_place(tree: Any) -> None:
    """Refuse a move inside ``shard_map``, where an array is one tile."""
    is_manual = bool(jax.sharding.get_abstract_mesh().manual_axes)
    if is_manual and any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree)):
        raise RequestError(
            "cannot move an array inside shard_map: there it is the tile of one device, and a plan is for a "
            "whole array; move the array before or after shard_map"
        )


def _check_values(moves: list[LeafMove], donate: bool) -> None:
    """Refuse shapes without values, arrays inside ``vmap``, and traced ones that should be given away."""
    for move in moves:
        where = move.name or "the array"
        if isinstance(move.value, jax.ShapeDtypeStruct):
            raise RequestError(
                f"cannot move {where}: it is a jax.ShapeDtypeStruct, which has no values; "
                "redist.jax.plan_for and redist.jax.compare take it"
            )
        if move.wanted is None or not isinstance(move.value, jax.core.Tracer):
            continue
        if type(move.value).__name__ == "BatchTracer":  # JAX does not export it
            raise RequestError(
                f"cannot move {where} inside vmap: a plan is for a whole array; "
                "move the array with all its dims before or after vmap"
            )
        if donate:
            raise RequestError(
                f"cannot donate {where} inside jit or grad: it belongs to the program around it; leave out "
                "donate, and give the outer jax.jit donate_argnums"
            )


def _is_in_memory(move: LeafMove) -> bool:
    """Whether its devices are CPUs: XLA hangs if many collectives of these are under way at once."""
    return move.wanted is not None and move.platform == "cpu"


def _free_what_is_left(moves: list[LeafMove]) -> None:
    """Delete arrays that stand in a tree twice, unless one of them stays."""
    kept = {id(move.value) for move in moves if not move.is_moved}
    for move in moves:
        gone = id(move.value) not in kept and is_on_devices(move.value)
        if gone and not move.value.is_deleted():
            move.value.delete()


@checked
def plan_for(
    x: Any, sharding: Any, limit_bytes: int | str | None = None, *, source: Any = None
) -> Plan:
    """The plan by which :func:`redistribute` would move an array."""
    leaves, structure = jax.tree.flatten(x)
    if not jax.tree_util.treedef_is_leaf(structure):
        n = "1 leaf" if len(leaves) == 1 else f"{len(leaves)} leaves"
        raise RequestError(
            f"cannot make one plan for a tree of {n}: every array has its own; "
            "write jax.tree.map(redist.jax.plan_for, arrays, shardings)"
        )
    check_end(sharding, leaf=x)
    own = sharding_from(x, source)
    before = sharding_like(x, own)
    after = sharding_like(x, sharding, own)
    ends = ends_of(tuple(x.shape), x.dtype, before, after)
    if ends[0].mesh != ends[1].mesh:
        raise ConversionError(
            f"cannot plan {ends[0]} on {ends[0].mesh} to {ends[1]} on {ends[1].mesh} for JAX: it has no "
            "collective between different devices; redist.jax.redistribute uses jax.device_put there"
        )
    return plan_between(*ends, limit_from(limit_bytes), False, platform_of(after))
