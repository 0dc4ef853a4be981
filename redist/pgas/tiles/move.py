"""Change the type of a global array, within the memory limit."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import MemoryLimitError, NoPlanError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import tile_shapes
from redist.pgas.memory import GRAIN, SHARED_FROM, TileMemory
from redist.pgas.tiles.arranging import (
    ArrangedCall,
    asked,
    current_arranger,
    left_alone,
    with_places,
)
from redist.pgas.tiles.devices import check_alike, to_device
from redist.pgas.tiles.layouts import dtype_of, parse_target, resolved_type, with_dtype
from redist.pgas.tiles.tiled import T, Tile, Tiled, owing, tile_in
from redist.pgas.watch.seam import TileMove, plan_move, traffic
from redist.runtime.copies.reduce import combines_on_gpu
from redist.runtime.ranks.collectives import all_fit, least_available
from redist.text.units import format_bytes

# Move many global arrays as one operation, in one staging budget: weights from mesh to mesh.


@left_alone
def move_together(arrays: Mapping[str, T], types: Mapping[str, str | ArrayType]) -> dict[str, T]:
    """**Collective.** Move named arrays to new types, even on other meshes, as one operation.

    ``new = pgas.move_together({"w": w, "b": b}, {"w": "{}, {x}", "b": "{x}"})``
    """
    if arrays.keys() != types.keys():
        odd = ", ".join(sorted(arrays.keys() ^ types.keys()))
        raise RequestError(f"cannot move {odd}: named as an array or as a type, not as both")
    check_alike("move_together", *arrays.values())
    arrays = {name: paid(a) for name, a in arrays.items()}
    targets = {name: parse_target(a.type, types[name]) for name, a in arrays.items()}
    moving = {name: a for name, a in arrays.items() if a.type != targets[name]}
    out = dict(arrays)
    if not moving:
        return out
    comm = next(iter(moving.values())).comm
    if any(a.comm != comm for a in moving.values()):
        raise RequestError("cannot move arrays of several communicators as one operation")
    moves = {
        name: TileMove(
            tile_in(a), a.type, targets[name], tile_shape(targets[name], comm.rank), a.memory
        )
        for name, a in moving.items()
    }
    tiles, _ = traffic().redistribute_together(moves, comm)
    for name, a in moving.items():
        out[name] = a.new(targets[name], tiles[name])
    return out


@lru_cache(maxsize=4096)
def tile_shape(t: ArrayType, rank: int) -> tuple[int, ...] | None:
    """Shape of a rank's tile; None outside the mesh."""
    return tile_shapes(t).get(rank)


def move(a: T, target: ArrayType, asked: bool = False) -> T:
    """**Collective.** Move an array to another type; itself if it has that type.

    ``asked`` says that the user wrote the move: no warning where it gathers much.
    """
    source = a._type
    if source is target or source == target:
        return a
    if a._owes is not None:
        return _pay(a, target, asked)
    if source.shape != target.shape or (
        source.dtype is not target.dtype and source.dtype != target.dtype
    ):
        raise RequestError(f"cannot move {source} to {target}: shape and dtype must agree")
    seam = traffic()
    if not asked:
        seam.warn_of_gather(source, target, a.comm.rank)
    memory = a.memory
    op = source.pending_op
    if memory.on_device and op is not None and not combines_on_gpu(op, source.dtype):
        return to_device(move(to_device(a, "cpu"), target, asked), "cuda")
    limit = None if memory.limit_bytes is None else _plan_limit(a, target)
    own = TileMove(tile_in(a), source, target, tile_shape(target, a.comm.rank), memory)
    return a.new(target, seam.redistribute(own, a.comm, limit)[0])


def _pay(a: T, target: ArrayType, asked: bool) -> T:
    """**Collective.** Move an array that owes a cast: it is paid where the sum is finished, else owed on."""
    owed = a._owes
    moved = move(owing(a, None), with_dtype(target, a._type.dtype), asked)
    if moved._type.pending_op is not None or owed is None:
        return owing(moved, owed)
    t = with_dtype(target, dtype_of(owed))
    own = tile_in(moved)
    return moved.new(t, None if own is None else cast_tile(a.memory, own, owed, t.tile_bytes))


def cast_tile(memory: TileMemory, tile: Tile, dtype: Any, worst_bytes: int) -> Tile:
    """**Local.** The values of a tile in a new one of another dtype, rounded to nearest, ties to even."""
    made = memory.empty(tile.shape, dtype, worst_bytes)
    np.copyto(made, tile, casting="unsafe")
    return made


def paid(a: T) -> T:
    """**Collective** if a cast is owed. The array with its values; another as it is."""
    return a if a._owes is None else resolve_pending(a)


def as_plain(a: T) -> T:
    """**Collective.** An array whose dims have segments, cut evenly by the same axes; another as it is."""
    if not a._type.segments:
        return a
    plain = a._type.with_dims(a._type.dims)
    return move(a, plain) if current_arranger() is None else move_as_asked(a, plain)


def move_as_asked(a: T, target: ArrayType) -> T:
    """**Collective.** Move an array as the user wrote it; in a program that is planned it lies so here."""
    arranger = current_arranger()
    if arranger is None:
        return move(a, target, asked=True)

    def run(given: Sequence[Any], made: ArrayType | None) -> Any:
        return move(given[0], target, asked=True)

    given: Any = with_places((a, target), []), {}
    call = ArrangedCall(
        "to", run, only=(target,), key=("to", target), function=move_as_asked, given=given
    )
    return arranger.call(call, [a])


def resolve_pending(a: T) -> T:
    """**Collective.** Finish a pending reduction, by reduce_scatter if the array can be cut so."""
    return a if a.type.pending_op is None else settled(a)


@asked
def settled(a: T) -> T:
    """**Collective.** Finish a pending reduction; in a program that is planned, one that a plan has left."""
    return a if a.type.pending_op is None else move(a, resolved_type(a.type))


def _plan_limit(a: Tiled, target: ArrayType) -> int | None:
    """**Collective.** Agree on the limit of a plan: None if the best one fits what all ranks have left."""
    memory = a.memory
    assert memory.limit_bytes is not None
    if max(a.type.tile_bytes, target.tile_bytes) < SHARED_FROM:
        return None
    tile = tile_in(a)  # held here, so that it is not put away
    held = 0 if tile is None else tile.nbytes
    best = plan_move(a.type, target, a.comm, None).peak_bytes
    memory.make_room(best - held + GRAIN)
    room = memory.limit_bytes - memory.live_bytes - GRAIN + held
    if all_fit(a.comm, best <= room):
        return None
    try:
        return _most_served(a, target, room)
    except MemoryLimitError:
        gc.collect()
    return _most_served(a, target, memory.limit_bytes - memory.live_bytes - GRAIN + held)


def _most_served(a: Tiled, target: ArrayType, room: int) -> int:
    """**Collective.** The limit that all ranks can give a plan; an error on all if no plan keeps to it."""
    least = least_available(a.comm, room)
    rounded = max(0, least // GRAIN * GRAIN)
    try:
        plan_move(a.type, target, a.comm, rounded)
    except NoPlanError as problem:
        raise MemoryLimitError(
            f"cannot move {a.type} to {target}: it takes {format_bytes(problem.least_bytes)} on a "
            f"rank with the source, and the limit of {format_bytes(a.memory.limit_bytes or 0)} leaves "
            f"{format_bytes(max(0, least))}; free arrays, cut them into smaller tiles, or raise the limit"
        ) from None
    return rounded
