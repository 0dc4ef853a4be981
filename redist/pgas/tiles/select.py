"""Select elements of an operand: the types of results, and the exchange that fills them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from redist.layout.array_type import ArrayType
from redist.pgas.kinds import tile_dtype
from redist.pgas.memory import round_to_grains
from redist.pgas.tiles.budget import require_room, staging_room
from redist.pgas.tiles.move import tile_shape
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.elements import by_index
from redist.runtime.elements.by_index import Side, planned_bytes, side
from redist.runtime.index_sets.held import Edge, EdgeRange

Dim = int | tuple[int, ...] | None
ON_GPUS_BYTES = 2**28
"""What elements that pass between GPUs may take on the way: there a round costs more than memory."""


@dataclass(frozen=True, slots=True)
class Link:
    """One dim of a selection: the dims of source and target (None: none), and which indices."""

    source_dim: Dim
    source: Edge
    target_dim: Dim
    target: Edge


def links_of_ranges(
    t: ArrayType, source: Sequence[range], result: ArrayType, target: Sequence[range]
) -> list[Link]:
    """Links from ranges of indices, one of each dim, to ranges of a result with as many dims."""
    return [
        Link(dim, EdgeRange(t.cut(dim), of), dim, EdgeRange(result.cut(dim), to))
        for dim, (of, to) in enumerate(zip(source, target, strict=True))
    ]


def sides_of(t: ArrayType, result: ArrayType, links: Sequence[Link]) -> tuple[Side, Side]:
    """The source and the target of an exchange of elements."""
    return (
        side(t, tuple((link.source_dim, link.source) for link in links)),
        side(result, tuple((link.target_dim, link.target) for link in links)),
    )


def new_tile(x: Tiled, t: ArrayType) -> Tile | None:
    """**Collective** under a memory limit. Allocate a tile of a result; raise on all ranks without room."""
    if x.memory.limit_bytes is not None:
        require_room(x, f"make {t} from", round_to_grains(t.tile_bytes))
    shape = tile_shape(t, x.comm.rank)
    return None if shape is None else x.memory.empty(shape, tile_dtype(t.dtype), t.tile_bytes)


def carry(x: Tiled, out: Tiled, links: Sequence[Link]) -> None:
    """**Collective.** Fill a part of ``out`` from a part of ``x``."""
    ends = sides_of(x.type, out.type, links)
    rank, itemsize = x.comm.rank, x.dtype.itemsize

    def expected_bytes() -> int:  # a program keeps it, and must not keep the array
        return planned_bytes(rank, *ends, itemsize)

    def work(x: Tiled, out: Tiled) -> tuple[Tile | None, int]:
        return _carry(x, out, links, ends)

    exchange = ElementExchange("select", x.type, out.type)
    traffic().perform(exchange, work, (x, out), lambda: out.tile, expected_bytes, into=out)


def _carry(
    x: Tiled, out: Tiled, links: Sequence[Link], sides: tuple[Side, Side]
) -> tuple[Tile | None, int]:
    """**Collective.** Exchange the elements; the tile of ``out``, and the bytes that this rank received."""
    of, to = [link.source_dim for link in links], [link.target_dim for link in links]
    joins = any(isinstance(dim, tuple) and len(dim) > 1 for dim in of)
    most = ON_GPUS_BYTES if x.memory.on_device else by_index.STAGING_BYTES
    local, room = contiguous_tile(x, most) if joins else (x.tile, None)
    if room is None:
        room = staging_room(x, most)
    ends = _view(local, of), _view(out.tile, to)
    gpu_dtype = x.type.dtype if x.memory.on_device else None
    received = traffic().select(x.comm, *sides, *ends, room, gpu_dtype)
    return out.tile, received


def contiguous_tile(x: Tiled, most_bytes: int) -> tuple[Tile | None, int]:
    """**Collective** under a memory limit. Copy the tile unless in C order; it, and the staging left."""
    tile = x.tile
    if tile is None or tile.flags.c_contiguous:
        return tile, staging_room(x, most_bytes)
    left = staging_room(x, most_bytes, round_to_grains(x.type.tile_bytes))
    fresh = x.memory.empty(tile.shape, tile.dtype, x.type.tile_bytes)
    fresh[...] = tile
    return fresh, left


def _view(tile: Tile | None, dims: Sequence[Dim]) -> Tile | None:
    """View a tile with one dim for each link; its own dims come in order."""
    if tile is None:
        return None
    shape = []
    for dim in dims:
        if dim is None:
            shape.append(1)
        elif isinstance(dim, int):
            shape.append(tile.shape[dim])
        else:
            shape.append(math.prod(tile.shape[i] for i in dim))
    return tile.reshape(shape)


def select(x: T, t: ArrayType, links: Sequence[Link]) -> T:
    """**Collective.** Make a new array of type ``t`` that one selection fills."""
    out = x.new(t, new_tile(x, t))
    if t.global_elems:
        carry(x, out, links)
    return out
