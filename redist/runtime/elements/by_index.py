"""Move chosen elements between tiles: every rank receives what it lacks, in bounded staging.

On a node each rank copies from its neighbours' tiles, where those lie in shared memory; between nodes,
and from tiles that do not, elements travel in messages.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.tiles import grid
from redist.runtime.elements.block_copies import (
    Block,
    BlockCopies,
    copy_listed,
    is_regular,
    read,
    write,
)
from redist.runtime.index_sets.held import CommonPart, Edge, EdgeList, cut, in_common
from redist.runtime.ranks.neighbours import NeighbourTiles, neighbour_tiles
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import World, world_of

Tile = NDArray[Any]
Blocks = list[Block]
Pair = tuple[tuple[Any, ...], tuple[Any, ...]]

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
        return not any(isinstance(edge, EdgeList) for edge in self.edges)


@lru_cache(maxsize=1024)
def rows(t: ArrayType) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """The rank of every device, and its tile along every dim."""
    return tuple(t.mesh.rank_array().tolist()), tuple(map(tuple, grid(t).index.tolist()))


SelectionEnds = tuple[tuple[int | tuple[int, ...] | None, Edge], ...]


@lru_cache(maxsize=1024)
def side(t: ArrayType, edges: SelectionEnds) -> Side:
    """One end of a link: for each of its dims the dim or dims of the array (None: none) and the edge."""
    ranks, index = rows(t)

    def along(tile: tuple[int, ...], dim: int | tuple[int, ...] | None) -> Any:
        if dim is None:
            return 0
        return tile[dim] if isinstance(dim, int) else tuple(tile[i] for i in dim)

    tiles = tuple(tuple(along(tile, dim) for dim, _ in edges) for tile in index)
    return Side(ranks, tiles, tuple(edge for _, edge in edges))


class SelectionPlan:
    """What one rank gives to others and gets from others, its own tile included."""

    def __init__(self, source: Side, target: Side, rank: int) -> None:
        self.source, self.target = source, target
        self.given: dict[int, Pair] = {}
        self.got: dict[int, Pair] = {}
        self._known: dict[Pair, Blocks] = {}
        self._copies: dict[Any, BlockCopies] = {}
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
        """The blocks that one tile gives another; remembered if they are few."""
        if pair is None:
            return []
        found = self._known.get(pair)
        if found is None:
            found = self._find(*pair)
            if all(map(is_regular, found)):
                self._known[pair] = found
        return found

    def _find(self, shard: tuple[Any, ...], tile: tuple[Any, ...]) -> Blocks:
        lists: list[list[CommonPart]] = []
        edges = zip(self.source.edges, shard, self.target.edges, tile, strict=True)
        for one, i, other, j in edges:
            pieces = list(in_common(one.held(i), other.held(j)))
            if not pieces:
                return []
            lists.append(pieces)
        return list(itertools.product(*lists))

    def copy(self, to: Tile, tiles: dict[int, Tile], rank: int, most_bytes: int) -> int:
        """**Local.** Fill what comes from these tiles; the bytes of those of other ranks."""
        used = {sender: tiles[sender] for sender in self.got if sender in tiles}
        key = to.itemsize, to.strides, tuple((r, tile.strides) for r, tile in used.items())
        copies = self._copies.get(key)
        if copies is not None:
            copies.run(to, used)
            return copies.received_bytes
        regular: dict[int, Blocks] = {}
        n_bytes = 0
        is_short = True
        for sender, tile in used.items():
            blocks = self.blocks(self.got[sender])
            regular[sender] = [block for block in blocks if is_regular(block)]
            is_short = is_short and len(regular[sender]) == len(blocks)
            for block in blocks:
                if sender != rank:
                    n_bytes += math.prod(piece.n for piece in block) * to.itemsize
                if not is_regular(block):
                    copy_listed(to, tile, block, most_bytes)
        copies = BlockCopies(to, used, regular, n_bytes)
        if is_short:
            self._copies[key] = copies
        copies.run(to, used)
        return n_bytes


def find_plan(source: Side, target: Side, rank: int) -> SelectionPlan:
    """**Local.** Who sends what: a rank that holds an element keeps it, else one holder sends it."""
    if source.is_constant and target.is_constant:
        return _remembered(source, target, rank)
    return SelectionPlan(source, target, rank)


_remembered = lru_cache(maxsize=512)(SelectionPlan)


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
    ``staging_bytes``, the same on all ranks; ranks take them in one order, so none waits for a
    message that is not sent.
    """
    world = world_of(comm, timeout_s=timeout_s)
    tile = from_tile if from_tile is not None else to_tile
    dtype = np.dtype(np.uint8) if tile is None else tile.dtype
    plan = find_plan(source, target, world.rank)
    with neighbour_tiles(world, from_tile, dtype, "move elements", timeout_s) as nearby:
        received = 0
        if to_tile is not None:
            most = min(MESSAGE_BYTES, staging_bytes // 2)
            received = plan.copy(to_tile, nearby.tiles, world.rank, most)
        if not nearby.complete:
            passing = _Passing(world, plan, nearby, from_tile, to_tile, staging_bytes)
            received += passing.run()
        return received


def planned_bytes(rank: int, source: Side, target: Side, itemsize: int) -> int:
    """**Local.** What a rank would receive from others."""
    plan = find_plan(source, target, rank)
    pairs = (pair for sender, pair in plan.got.items() if sender != rank)
    blocks = (block for pair in pairs for block in plan.blocks(pair))
    return itemsize * sum(math.prod(piece.n for piece in block) for block in blocks)


class _Passing:
    """Sends and receives what cannot be read in place."""

    def __init__(
        self,
        world: World,
        plan: SelectionPlan,
        nearby: NeighbourTiles,
        from_tile: Tile | None,
        to_tile: Tile | None,
        staging_bytes: int,
    ) -> None:
        self._world, self._plan, self._nearby = world, plan, nearby
        self._from, self._to = from_tile, to_tile
        self._staging_bytes = staging_bytes
        self._requests: list[Any] = []
        self._arriving: list[tuple[Block, Tile]] = []

    def run(self) -> int:
        """**Collective.** Send and receive; the bytes received."""
        comm = self._world.comm
        staged = received = 0
        for give, get in self._in_order():
            if get is not None:
                assert self._to is not None
                rank, block = get
                message = np.empty([piece.n for piece in block], self._to.dtype)
                self._requests.append(comm.Irecv([_bytes(message), MPI.BYTE], rank, Tag.ELEMENTS))
                self._arriving.append((block, message))
                staged += message.nbytes
                received += message.nbytes
            if give is not None:
                assert self._from is not None
                rank, block = give
                message = np.ascontiguousarray(read(self._from, block))
                self._requests.append(comm.Isend([_bytes(message), MPI.BYTE], rank, Tag.ELEMENTS))
                staged += message.nbytes
            if staged > self._staging_bytes // 2:
                self._finish()
                staged = 0
        self._finish()
        return received

    def _in_order(self) -> Iterator[tuple[Any, Any]]:
        """Messages to and from ranks at distance 1, then 2, and so on.

        All ranks list messages in the same order, so no receive waits for a message that is not sent.
        """
        rank, size, node = self._world.rank, self._world.size, self._world.node.ranks
        for distance in range(1, size):
            to, of = (rank + distance) % size, (rank - distance) % size
            give = () if self._nearby.reads(to, node) else self._cut(to, self._plan.given)
            get = () if of in self._nearby.tiles else self._cut(of, self._plan.got)
            yield from itertools.zip_longest(give, get)

    def _cut(self, rank: int, pairs: dict[int, Pair]) -> Iterator[tuple[int, Block]]:
        """What goes to or comes from a rank, in messages of at most a quarter of the staging."""
        tile = self._from if self._to is None else self._to
        assert tile is not None or rank not in pairs
        itemsize = 1 if tile is None else tile.itemsize
        most = max(1, min(MESSAGE_BYTES, self._staging_bytes // 4) // itemsize)
        for block in self._plan.blocks(pairs.get(rank)):
            for part in cut(block, most):
                yield rank, part

    def _finish(self) -> None:
        if self._requests:
            self._world.wait_for_messages(self._requests)
        for block, message in self._arriving:
            assert self._to is not None
            write(self._to, block, message)
        self._requests.clear()
        self._arriving.clear()


def _bytes(message: Tile) -> NDArray[np.uint8]:
    return message.reshape(-1).view(np.uint8)
