"""Run the calls of a plan on the tiles of all devices, and count what is received."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.layout.axes import coordinates, refined_parts
from redist.layout.mesh import Mesh
from redist.lower.calls import (
    Arrange,
    Axes,
    Calls,
    Collect,
    CombineAll,
    Embed,
    Keep,
    Permute,
    Scatter,
    Select,
    Swap,
)
from redist.plan.pieces import Shape
from redist.runtime.copies.reduce import identity

Tiles = list[Any]
UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def groups_of(mesh: Mesh, axes: Axes) -> list[list[int]]:
    """Devices that differ along the axes alone, each group in the order of their places."""
    rest = [part for part in refined_parts(mesh, axes) if not any(map(part.inside, axes))]
    place, group = coordinates(mesh, axes), coordinates(mesh, rest)
    groups: dict[int, list[int]] = {}
    for device in np.argsort(place, kind="stable").tolist():
        groups.setdefault(int(group[device]), []).append(device)
    return list(groups.values())


def interpret(calls: Calls, tiles: Tiles) -> tuple[Tiles, list[int]]:
    """Tiles after all calls, by device, and the elements received by all in every call."""
    mesh, dtype = calls.source.mesh, calls.source.dtype
    received = []
    for call in calls.calls:
        moved = 0
        match call:
            case Arrange(shape, order):
                tiles = [t.reshape(shape).transpose(order) for t in tiles]
            case Select(axes, shape, at):
                places = [coordinates(mesh, [axis]) for axis in axes]
                for device, tile in enumerate(tiles):
                    key: list[Any] = [slice(None)] * len(shape)
                    for k, place in zip(at, places, strict=True):
                        key[k] = int(place[device])
                    tiles[device] = tile.reshape(shape)[tuple(key)]
            case Swap(axes, shape):
                rows = blocks(tiles, axes, shape)
                for group in groups_of(mesh, axes):
                    for k, device in enumerate(group):
                        got = [rows[other][k] for other in group]
                        moved += sum(b.size for b in got) - got[k].size
                        tiles[device] = np.stack(got)
            case Collect(axes):
                old = list(tiles)
                for group in groups_of(mesh, axes):
                    for device in group:
                        tiles[device] = np.stack([old[other] for other in group])
                        moved += tiles[device].size - old[device].size
            case Scatter(axes, shape, op):
                rows = blocks(tiles, axes, shape)
                for group in groups_of(mesh, axes):
                    for k, device in enumerate(group):
                        got = [rows[other][k] for other in group]
                        moved += (len(got) - 1) * got[k].size
                        tiles[device] = reduce(op, got)
            case CombineAll(axes, op):
                old = list(tiles)
                for group in groups_of(mesh, axes):
                    for device in group:
                        tiles[device] = reduce(op, [old[other] for other in group])
                    moved += 2 * (len(group) - 1) * old[group[0]].size
            case Embed(axes, shape, op):
                for group in groups_of(mesh, axes):
                    for k, device in enumerate(group):
                        old_tile = tiles[device].reshape(shape)
                        empty = np.full((len(group), *shape), identity(op, dtype), old_tile.dtype)
                        empty[k] = old_tile
                        tiles[device] = empty
            case Keep(axes, op):
                place = coordinates(mesh, axes)
                for device in range(len(tiles)):
                    if place[device]:
                        tiles[device] = np.full_like(tiles[device], identity(op, dtype))
            case Permute():
                tiles, moved = permute(call, tiles, mesh, dtype)
        received.append(moved)
    return [tile.reshape(calls.target.tile_shape) for tile in tiles], received


def blocks(tiles: Tiles, axes: Axes, shape: tuple[int, ...]) -> Tiles:
    n = int(np.prod([axis.size for axis in axes]))
    return [tile.reshape(n, *shape[len(axes) :]) for tile in tiles]


def reduce(op: str, parts: list[Any]) -> Any:
    out = parts[0]
    for part in parts[1:]:
        out = UFUNCS[op](out, part)
    return out


def permute(call: Permute, tiles: Tiles, mesh: Mesh, dtype: Any) -> tuple[Tiles, int]:
    fill = 0 if call.op is None else identity(call.op, dtype)
    out = [np.full(call.target_shape, fill, tile.dtype) for tile in tiles]
    at = {rank: number for number, rank in enumerate(mesh.ranks)}
    moved = 0
    for row in call.rows:
        assert len({m.sender for m in row}) == len({m.receiver for m in row}) == len(row)
        assert len({m.shape for m in row}) == 1
        for m in row:
            box = tiles[at[m.sender]].reshape(call.source_shape)[key_of(m.src_lo, m.shape)]
            target = out[at[m.receiver]][key_of(m.dst_lo, m.shape)]
            target[...] = UFUNCS[call.op or "sum"](target, box) if m.order else box
            moved += box.size if m.sender != m.receiver else 0
    return out, moved


def key_of(start: Shape, shape: Shape) -> tuple[slice, ...]:
    return tuple(slice(lo, lo + n) for lo, n in zip(start, shape, strict=True))
