"""Move chosen elements between tiles: every rank receives what it lacks, in bounded staging."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.tiles import grid
from redist.runtime.links import Comb, Edge, Picked, Piece, in_common, product_of
from redist.runtime.requests import TIMEOUT_S
from redist.runtime.world import World
from redist.runtime.worlds import world_of

Tile = NDArray[Any]
Blocks = list[tuple[Piece, ...]]
Pair = tuple[tuple[Any, ...], tuple[Any, ...]]

TAG_CHOSEN = 3
MESSAGE_BYTES = 2**20
STAGING_BYTES = 2**23
"""What messages under way may hold on a rank."""


@dataclass(frozen=True, slots=True)
class Side:
    """The tiles at one end of a link: for every device its rank and its tile along every edge."""

    ranks: tuple[int, ...]
    tiles: tuple[tuple[Any, ...], ...]
    edges: tuple[Edge, ...]

    @property
    def is_constant(self) -> bool:
        """Whether it can be remembered: no list of indices is part of it."""
        return not any(isinstance(edge, Picked) for edge in self.edges)


@lru_cache(maxsize=1024)
def rows(t: ArrayType) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """The rank of every device, and its tile along every dim."""
    return tuple(t.mesh.rank_array().tolist()), tuple(map(tuple, grid(t).index.tolist()))


Ends = tuple[tuple[int | tuple[int, ...] | None, Edge], ...]


@lru_cache(maxsize=1024)
def side(t: ArrayType, edges: Ends) -> Side:
    """One end of a link: for each of its dims the dim or dims of the array (None: none) and the edge."""
    ranks, index = rows(t)

    def along(tile: tuple[int, ...], dim: int | tuple[int, ...] | None) -> Any:
        if dim is None:
            return 0
        return tile[dim] if isinstance(dim, int) else tuple(tile[i] for i in dim)

    tiles = tuple(tuple(along(tile, dim) for dim, _ in edges) for tile in index)
    return Side(ranks, tiles, tuple(edge for _, edge in edges))


class Route:
    """What one rank gives to others and gets from others, its own tile included."""

    def __init__(self, source: Side, target: Side, rank: int, most_elems: int) -> None:
        self.source, self.target, self.most_elems = source, target, most_elems
        self.given: dict[int, Pair] = {}
        self.got: dict[int, Pair] = {}
        self._known: dict[Pair, Blocks] = {}
        holders: dict[tuple[Any, ...], list[int]] = {}
        for r, tile in zip(source.ranks, source.tiles, strict=True):
            holders.setdefault(tile, []).append(r)
        for number, (r, tile) in enumerate(zip(target.ranks, target.tiles, strict=True)):
            for shard, ranks in holders.items():
                sender = r if r in ranks else ranks[number % len(ranks)]
                if r == rank:
                    self.got[sender] = shard, tile
                if sender == rank:
                    self.given[r] = shard, tile

    def blocks(self, pair: Pair | None) -> Blocks:
        """What one tile gives another; remembered where it is short."""
        if pair is None:
            return []
        found = self._known.get(pair)
        if found is None:
            found = self._find(*pair)
            if all(piece.is_sliced for block in found for piece in block):
                self._known[pair] = found
        return found

    def _find(self, shard: tuple[Any, ...], tile: tuple[Any, ...]) -> Blocks:
        lists: list[list[Piece]] = []
        edges = zip(self.source.edges, shard, self.target.edges, tile, strict=True)
        for one, i, other, j in edges:
            pieces = list(in_common(one.held(i), other.held(j)))
            if not pieces:
                return []
            lists.append(pieces)
        return list(product_of(lists, self.most_elems))


def find_route(source: Side, target: Side, rank: int, most_elems: int) -> Route:
    """**Local.** Who sends what: a rank that holds an element keeps it, else one holder sends it."""
    if source.is_constant and target.is_constant:
        return _remembered(source, target, rank, most_elems)
    return Route(source, target, rank, most_elems)


_remembered = lru_cache(maxsize=512)(Route)


def exchange(
    comm: MPI.Comm,
    source: Side,
    target: Side,
    from_tile: Tile | None,
    to_tile: Tile | None,
    staging_bytes: int = STAGING_BYTES,
    timeout_s: float | None = TIMEOUT_S,
) -> int:
    """**Collective over** ``comm``. Fill the target's tiles; the bytes that this rank received.

    Tiles have one dim for each dim of the link. Messages are small, and few enough are under way for
    ``staging_bytes``; ranks take them in one order, so none waits for a message that is not sent.
    """
    world = world_of(comm, timeout_s=timeout_s)
    world.check_usable()
    world.finish()
    tile = from_tile if from_tile is not None else to_tile
    itemsize = 1 if tile is None else tile.dtype.itemsize
    route = find_route(source, target, world.rank, MESSAGE_BYTES // itemsize)
    with world.failing_together():
        if from_tile is not None and to_tile is not None:
            for block in route.blocks(route.got.get(world.rank)):
                write(to_tile, block, read(from_tile, block))
        return _pass_on(world, route, from_tile, to_tile, staging_bytes, timeout_s)


def planned_bytes(rank: int, source: Side, target: Side, itemsize: int) -> int:
    """**Local.** What a rank would receive from others."""
    route = find_route(source, target, rank, MESSAGE_BYTES // itemsize)
    pairs = (pair for sender, pair in route.got.items() if sender != rank)
    blocks = (block for pair in pairs for block in route.blocks(pair))
    return itemsize * sum(math.prod(piece.n for piece in block) for block in blocks)


def _pass_on(
    world: World,
    route: Route,
    from_tile: Tile | None,
    to_tile: Tile | None,
    staging_bytes: int,
    timeout_s: float | None,
) -> int:
    requests: list[Any] = []
    arriving: list[tuple[tuple[Piece, ...], Tile]] = []
    staged = received = 0
    for give, get in _in_order(route, world.rank, world.size):
        if get is not None:
            assert to_tile is not None
            rank, block = get
            message = np.empty([piece.n for piece in block], to_tile.dtype)
            requests.append(world.comm.Irecv([_bytes(message), MPI.BYTE], rank, TAG_CHOSEN))
            arriving.append((block, message))
            staged += message.nbytes
            received += message.nbytes
        if give is not None:
            assert from_tile is not None
            rank, block = give
            message = np.ascontiguousarray(read(from_tile, block))
            requests.append(world.comm.Isend([_bytes(message), MPI.BYTE], rank, TAG_CHOSEN))
            staged += message.nbytes
        if staged >= staging_bytes:
            _finish(world, requests, arriving, to_tile, timeout_s)
            staged = 0
    _finish(world, requests, arriving, to_tile, timeout_s)
    return received


def _in_order(route: Route, rank: int, size: int) -> Iterator[tuple[Any, Any]]:
    """Messages to and from ranks at distance 1, then 2, ...: what is first for one is so for all."""
    for distance in range(1, size):
        to, of = (rank + distance) % size, (rank - distance) % size
        give = ((to, block) for block in route.blocks(route.given.get(to)))
        get = ((of, block) for block in route.blocks(route.got.get(of)))
        yield from itertools.zip_longest(give, get)


def _finish(
    world: World,
    requests: list[Any],
    arriving: list[tuple[tuple[Piece, ...], Tile]],
    to_tile: Tile | None,
    timeout_s: float | None,
) -> None:
    if requests:
        world.wait(requests, timeout_s)
    for block, message in arriving:
        assert to_tile is not None
        write(to_tile, block, message)
    requests.clear()
    arriving.clear()


def _bytes(message: Tile) -> NDArray[np.uint8]:
    return message.reshape(-1).view(np.uint8)


def read(tile: Tile, block: tuple[Piece, ...]) -> Tile:
    """A block of a source tile; a view where it can be one."""
    chosen = [piece.source for piece in block]
    out = opened(tile, [slice(None) if isinstance(one, np.ndarray) else one for one in chosen])
    dim = 0
    for one in chosen:
        if isinstance(one, np.ndarray):
            out = out.take(one, axis=dim)
        dim += 2 if isinstance(one, Comb) else 1
    return out.reshape([piece.n for piece in block]) if out.ndim > len(block) else out


def write(tile: Tile, block: tuple[Piece, ...], values: Tile) -> None:
    """Fill a block of a target tile; dims of size 1 stretch."""
    for dim, piece in enumerate(block):
        if piece.which is not None:
            values = values.take(piece.which, axis=dim)
    chosen: list[Any] = [piece.target for piece in block]
    if not any(isinstance(one, np.ndarray) for one in chosen):
        shape: list[int] = []
        for size, one in zip(values.shape, chosen, strict=True):
            shape += [one.teeth, one.n] if isinstance(one, Comb) else [size]
        opened(tile, chosen)[...] = values.reshape(shape)
    elif sum(not isinstance(one, slice) for one in chosen) == 1:
        tile[tuple(chosen)] = values
    else:
        index = (_positions(one, tile.shape[dim]) for dim, one in enumerate(chosen))
        tile[np.ix_(*index)] = values


def opened(tile: Tile, chosen: Sequence[Any]) -> Tile:
    """A view of slices and combs; a comb becomes two dims, its teeth and what is in one."""
    index: list[Any] = [one if isinstance(one, slice) else slice(None) for one in chosen]
    out: Tile = tile[(*index, Ellipsis)]  # with the dots it is a view, without dims too
    if not any(isinstance(one, Comb) for one in chosen):
        return out
    out = out[tuple(slice(one.at if isinstance(one, Comb) else 0, None) for one in chosen)]
    shape: list[int] = []
    strides: list[int] = []
    for one, size, stride in zip(chosen, out.shape, out.strides, strict=True):
        shape += [one.teeth, one.n] if isinstance(one, Comb) else [size]
        strides += [one.step * stride, stride] if isinstance(one, Comb) else [stride]
    return np.lib.stride_tricks.as_strided(out, shape, strides)


def _positions(chosen: Any, size: int) -> Any:
    if isinstance(chosen, slice):
        return np.arange(size)[chosen]
    return chosen.positions() if isinstance(chosen, Comb) else chosen
