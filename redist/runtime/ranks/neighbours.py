"""Map the neighbours' tiles: publish this rank's, meet, and look where theirs lie."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.runtime.ranks.agreement import all_agree
from redist.runtime.ranks.control_page import DESCRIPTION
from redist.runtime.ranks.meeting import Disagreement, Met
from redist.runtime.ranks.tokens import Token
from redist.runtime.ranks.world import World
from redist.runtime.shm.segments import Handle, find, keep_segment

Tile = NDArray[Any]

MOST_DIMS = 7 * DESCRIPTION
"""Tiles of more dims are not described."""


class NeighbourTiles:
    """The tiles that this rank may read in place until all leave, by rank, its own included.

    ``complete`` says, alike on all ranks, that every rank reaches every tile so.
    """

    __slots__ = ("complete", "shares", "tiles")

    def __init__(self, tiles: dict[int, Tile], shares: bool, complete: bool) -> None:
        self.tiles, self.shares, self.complete = tiles, shares, complete

    def reads(self, rank: int, node: tuple[int, ...]) -> bool:
        """Whether a rank reads this rank's tile in place."""
        return self.shares and rank in node


@contextlib.contextmanager
def neighbour_tiles(
    world: World, tile: Tile | None, dtype: np.dtype[Any], what: str, timeout_s: float | None
) -> Iterator[NeighbourTiles]:
    """**Collective.** The neighbours' tiles while the block runs; at its end all wait until all have read.

    A tile of None, or of no elements, is one that nobody asks for. An exception inside reaches the
    other ranks; ranks that came for something else raise on all.
    """
    own = {} if tile is None else {world.rank: tile}
    try:
        with world.operation(timeout_s):
            if world.size == 1:
                yield NeighbourTiles(own, True, True)
                return
            shares = _describe(world, tile)
            met = world.meet(Token.READ_NEIGHBOURS, int(shares))
            if met is Met.DISAGREE:
                raise Disagreement
            reading = any(world.meeting.flag_of(rank) for rank in world.node.ranks)
            complete = world.one_node and met is Met.SAME and shares
            yield NeighbourTiles(own | _look(world, dtype), shares, complete)
            if reading:
                world.meet_node()
    except Disagreement:
        all_agree(world.comm, f"cannot {what}", what, None, timeout_s)
        raise
    except BaseException:
        if tile is not None:
            keep_segment(tile)  # a neighbour may still read it
        raise


class NodeLoops:
    """Runs loops in C that read the neighbours' tiles, and meet the other ranks, while those are mapped."""

    __slots__ = ("_meeting", "_table", "_words", "tile")

    def __init__(self, world: World, tiles: dict[int, Tile]) -> None:
        self._meeting, self.tile = world.meeting, tiles[world.rank]
        places = [tiles[rank].ctypes.data for rank in world.node.ranks]
        self._table = np.array(places, dtype=np.uintp)
        self._words = world.meeting.loop_words(self._table.ctypes.data)

    def run(self, loop: Callable[[Any], int]) -> None:
        """**Collective over the node.** Call a loop with a ``struct redist_ranks *`` until it has ended.

        It returns 0 when it has, else what the last meeting answered; then it is called again, and goes on.
        """
        self._meeting.run_loop(self._words, loop)


@contextlib.contextmanager
def node_loops(
    world: World, tile: Tile, what: str, timeout_s: float | None
) -> Iterator[NodeLoops | None]:
    """**Collective.** Loops of all ranks while the block runs; None, on all, where C cannot make them meet.

    ``tile`` is what this rank lets the others read. C was not built, or ranks are on several nodes.
    """
    with neighbour_tiles(world, tile, tile.dtype, what, timeout_s) as near:
        can = near.complete and world.node.kernels is not None
        yield NodeLoops(world, near.tiles) if can else None


def _describe(world: World, tile: Tile | None) -> bool:
    """Tell the neighbours where this rank's tile lies; whether they can read it there."""
    rows = world.pages[world.rank].descriptions[(world.meeting.seq + 1) & 1].reshape(-1)
    rows[0] = 0
    if tile is None or not tile.size:
        return True
    found = find(tile) if tile.ndim <= MOST_DIMS else None
    if found is None:
        return False
    handle, offset = found
    n = tile.ndim
    rows[:6] = 1, handle.fd, handle.number, handle.n_bytes, offset, n
    rows[DESCRIPTION : DESCRIPTION + n] = tile.shape
    rows[DESCRIPTION + n : DESCRIPTION + 2 * n] = tile.strides
    return True


def _look(world: World, dtype: np.dtype[Any]) -> dict[int, Tile]:
    """Map the tiles of the neighbours that share theirs."""
    out: dict[int, Tile] = {}
    for rank in world.node.ranks:
        rows = world.pages[rank].descriptions[world.meeting.seq & 1].reshape(-1)
        if rank == world.rank or not world.meeting.flag_of(rank) or not rows[0]:
            continue
        _, fd, number, n_bytes, offset, n = rows[:6].tolist()
        memory = world.map_segment(rank, Handle(world.node.pids[rank], fd, number, n_bytes))
        shape = rows[DESCRIPTION : DESCRIPTION + n].tolist()
        strides = rows[DESCRIPTION + n : DESCRIPTION + 2 * n].tolist()
        out[rank] = np.ndarray(shape, dtype, memory, offset, strides)
    return out
