"""Tiles of neighbours on GPUs: read in place by ranks of one GPU, copied ahead from others of the node.

Kernels read a tile many times, so one on another GPU is copied once, on a stream beside the kernels: into one
of two buffers, while the kernels before work on the other::

    current stream    own tile      tile 1 in A     tile 2 in B     tile 3 in A
    beside it         1 -> A        2 -> B          3 -> A (waits until the kernels of tile 1 have run)
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mpi4py import MPI

from redist.runtime.cuda.arrays import current_stream, empty_on_device
from redist.runtime.cuda.transports.ipc import peers_of
from redist.runtime.cuda.window import DevicePlace, let_go, opened_place, view_of
from redist.runtime.ranks.neighbours import neighbour_tiles
from redist.runtime.ranks.world import World


class DeviceNeighbours:
    """The tiles of this node on GPUs, open as long as this lives. Making one is **collective**.

    ``tiles`` has those that are read in place, by rank, the own one among them; ``beside`` those of other
    GPUs. If memory of some rank cannot be opened, each rank has its own alone.
    """

    def __init__(self, comm: MPI.Comm, world: World, tile: Any, timeout_s: float | None) -> None:
        with world.operation(timeout_s):
            peers = peers_of(comm, world)
            current_stream().synchronize()
            place = DevicePlace(tile.shape, tile.strides, opened_place(tile))
            places = world.gather(place)
        opens = all(one.is_near for one in places)
        node = peers.world.node.ranks if opens else (world.rank,)
        self.world = peers.world
        self.is_complete = opens and peers.world.one_node
        """Whether every rank has all tiles, alike on all ranks."""
        self.tiles: dict[int, Any] = {world.rank: tile}
        self.beside: dict[int, Any] = {}
        for rank in node:
            if rank != world.rank:
                found = self.tiles if rank in peers.mates else self.beside
                found[rank] = view_of(peers, rank, places[rank], tile.dtype)
        held = [(rank, places[rank].memory) for rank in node if rank != world.rank]
        weakref.finalize(self, let_go, peers, held).atexit = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those whose tiles are here."""
        return (*self.tiles, *self.beside)

    @contextmanager
    def reading(self, what: str, timeout_s: float | None) -> Iterator[None]:
        """**Collective.** While inside, tiles stay as they are: all ranks have come, and wait at the end."""
        if len(self.ranks) == 1:
            yield
            return
        tile = self.tiles[self.world.rank]
        current_stream().synchronize()
        with neighbour_tiles(self.world, None, tile.dtype, what, timeout_s):
            yield
            current_stream().synchronize()


def copied_ahead(tiles: Sequence[Any], ahead: bool = True) -> Iterator[Any]:
    """**Local.** Copies of arrays of one dtype, each until the next is asked for, made beside the kernels.

    Without ``ahead`` each is made when it is asked for, for comparison.
    """
    import cupy

    if not tiles:
        return
    current, beside = current_stream(), cupy.cuda.Stream(non_blocking=True)
    most = max(tile.size for tile in tiles)
    buffers = [empty_on_device((most,), tiles[0].dtype) for _ in tiles[:2]]
    came: list[Any] = []

    def start(number: int) -> None:
        if number < len(tiles):
            beside.wait_event(current.record())
            with beside:
                _cut(buffers, number, tiles)[...] = tiles[number]
            came.append(beside.record())

    start(0)
    for number in range(len(tiles)):
        if not ahead and number:
            start(number)
        current.wait_event(came[number])
        if ahead:
            start(number + 1)
        yield _cut(buffers, number, tiles)


def _cut(buffers: Sequence[Any], number: int, tiles: Sequence[Any]) -> Any:
    tile = tiles[number]
    return buffers[number % 2][: tile.size].reshape(tile.shape)
