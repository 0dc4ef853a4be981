"""Change the type of a global array: plan, allocate within the limit, move, tell who watches."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, TypeVar

from redist.errors import MemoryLimitError, NoPlanError, RequestError
from redist.layout.array_type import ArrayType
from redist.pgas.memory import GRAIN, SHARED_FROM, Tile
from redist.pgas.tiles.devices import to_device
from redist.pgas.tiles.layouts import resolved
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.call_site import calling_line
from redist.pgas.watch.dry_run import PRETENDING, pretended
from redist.pgas.watch.gather_warning import warn_of_gather
from redist.pgas.watch.trace import WATCHERS, Move
from redist.plan.plan import Plan
from redist.planner import synthesize
from redist.runtime.copies.reduce import combines_on_gpu
from redist.runtime.ranks.room import all_fit, least_available
from redist.runtime.ranks.world import Comm, default_topology, world_of
from redist.runtime.redistribute import prepared, redistribute
from redist.runtime.schedule.pieces import tile_shapes
from redist.text.units import format_bytes

T = TypeVar("T", bound=Tiled)


@lru_cache(maxsize=4096)
def tile_shape(t: ArrayType, rank: int) -> tuple[int, ...] | None:
    """Shape of a rank's tile; None outside the mesh."""
    return tile_shapes(t).get(rank)


def move(a: T, target: ArrayType, asked: bool = False) -> T:
    """**Collective.** The array under another type; itself where it has that type.

    ``asked`` says that the user wrote the move: no warning where it gathers much.
    """
    source = a._type
    if source is target or source == target:
        return a
    if source.shape != target.shape or (
        source.dtype is not target.dtype and source.dtype != target.dtype
    ):
        raise RequestError(f"cannot move {source} to {target}: shape and dtype must agree")
    if not asked and not PRETENDING:
        warn_of_gather(source, target, a.comm.rank)
    memory = a._memory
    if memory.on_device and not _combines(source):
        return to_device(move(to_device(a, "cpu"), target, asked), "cuda")
    limit = None if memory.limit_bytes is None else _limit(a, target)
    shape = tile_shape(target, a.comm.rank)
    if PRETENDING:
        plan = planned(source, target, a.comm, limit)
        return a.new(target, pretended(plan, shape, memory))
    out = None
    if shape is not None and not (memory.on_device and memory.limit_bytes is not None):
        out = memory.empty(shape, target.dtype.to_numpy(), target.tile_bytes)
    run = _watched if WATCHERS else redistribute
    return a.new(target, run(a.local, source, target, a.comm, limit, out=out))


def settle(a: T) -> T:
    """**Collective.** The array with its pending reduction done, by reduce_scatter where it can be."""
    return a if a.type.pending_op is None else move(a, resolved(a.type))


def _combines(t: ArrayType) -> bool:
    """Whether GPUs can do the pending reduction of a type; if not, it is done in memory."""
    return t.pending_op is None or combines_on_gpu(t.pending_op, t.dtype)


def planned(source: ArrayType, target: ArrayType, comm: Comm, limit_bytes: int | None) -> Plan:
    """The plan of a move, the same on all ranks."""
    topology = default_topology(world_of(comm))
    return synthesize(source, target, limit_bytes=limit_bytes, topology=topology)


def _limit(a: Tiled, target: ArrayType) -> int | None:
    """**Collective.** What the plan may take: None where the best one fits what all ranks have left."""
    memory = a._memory
    assert memory.limit_bytes is not None
    if max(a.type.tile_bytes, target.tile_bytes) < SHARED_FROM:
        return None
    held = 0 if a.local is None else a.local.nbytes
    room = memory.limit_bytes - memory.live_bytes - GRAIN + held
    if all_fit(a.comm, planned(a.type, target, a.comm, None).peak_bytes <= room):
        return None
    least = least_available(a.comm, room)
    try:
        rounded = max(0, least // GRAIN * GRAIN)
        planned(a.type, target, a.comm, rounded)
    except NoPlanError as problem:
        raise MemoryLimitError(
            f"cannot move {a.type} to {target}: it takes {format_bytes(problem.least_bytes)} on a "
            f"rank with the source, and the limit of {format_bytes(memory.limit_bytes)} leaves "
            f"{format_bytes(max(0, least))}; free arrays, cut them into smaller tiles, or raise the limit"
        ) from None
    return rounded


def _watched(
    local: Tile | None,
    source: ArrayType,
    target: ArrayType,
    comm: Comm,
    limit: int | None,
    out: Tile | None,
) -> Any:
    started = time.perf_counter()
    result = redistribute(local, source, target, comm, limit, out=out)
    seconds = time.perf_counter() - started
    transfer = prepared(comm, source, target, limit)
    seen = Move.of(transfer.plan, calling_line(), transfer.received_bytes, started, seconds)
    for watcher in WATCHERS:
        watcher.saw(seen)
    return result
