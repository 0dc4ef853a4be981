"""Many global arrays moved as one operation, in one staging budget: weights from mesh to mesh."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TypeVar

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import retyped
from redist.pgas.tiles.move import planned, tile_shape
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.call_site import calling_line
from redist.pgas.watch.dry_run import PRETENDING, pretended
from redist.pgas.watch.trace import WATCHERS, Move
from redist.runtime.redistribute import prepared, redistribute

T = TypeVar("T", bound=Tiled)


def move_together(arrays: Mapping[str, T], types: Mapping[str, str | ArrayType]) -> dict[str, T]:
    """**Collective.** Arrays by name, each under its new type, also on another mesh; one operation.

    ``new = pgas.move_together({"w": w, "b": b}, {"w": "{}, {x}", "b": "{x}"})``
    """
    if arrays.keys() != types.keys():
        odd = ", ".join(sorted(arrays.keys() ^ types.keys()))
        raise RequestError(f"cannot move {odd}: named as an array or as a type, not as both")
    check_alike("move together", *arrays.values())
    targets = {name: retyped(a.type, types[name]) for name, a in arrays.items()}
    moving = {name: a for name, a in arrays.items() if a.type != targets[name]}
    out = dict(arrays)
    if not moving:
        return out
    comm = next(iter(moving.values())).comm
    if any(a.comm != comm for a in moving.values()):
        raise RequestError("cannot move arrays of several communicators as one operation")
    memory = next(iter(moving.values()))._memory
    shapes = {name: tile_shape(targets[name], comm.rank) for name in moving}
    if PRETENDING:
        for name, a in moving.items():
            plan = planned(a.type, targets[name], comm, None)
            out[name] = a.new(targets[name], pretended(plan, shapes[name], memory))
        return out
    memory.check_room(sum(targets[name].tile_bytes for name in moving))
    tiles = {
        name: None
        if shape is None
        else memory.empty(shape, targets[name].dtype.to_numpy(), targets[name].tile_bytes)
        for name, shape in shapes.items()
    }
    sources, ends = {n: a.type for n, a in moving.items()}, {n: targets[n] for n in moving}
    started = time.perf_counter()
    redistribute({n: a.local for n, a in moving.items()}, sources, ends, comm, out=tiles)
    seconds = time.perf_counter() - started
    if WATCHERS:
        transfer, line = prepared(comm, sources, ends), calling_line()
        shared = seconds / len(moving)
        for number, plan in enumerate(transfer.plans.values()):
            got = transfer.received_bytes_of(number)
            for watcher in WATCHERS:
                watcher.saw(Move.of(plan, line, got, started + number * shared, shared))
    for name, a in moving.items():
        out[name] = a.new(targets[name], tiles[name])
    return out
