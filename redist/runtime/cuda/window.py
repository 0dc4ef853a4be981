"""Windows onto tiles on GPUs: those of the node by CUDA IPC, others with the help of their ranks.

A neighbour's memory stays open as long as the window does. Where it cannot be opened, and between nodes,
the thread that answers for its rank copies what is asked for to pinned memory, on a stream of its own:
what a tile holds is there when the ranks meet, because each waits for its stream before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.layout.array_type import ArrayType
from redist.layout.cuts import Ints
from redist.runtime.cuda.arrays import (
    TO_HOST,
    device_address,
    empty_on_device,
    gpu_of,
    memory_at,
    pinned_bytes,
    to_device,
)
from redist.runtime.cuda.parts import all_of, copy_parts
from redist.runtime.cuda.transports import opened_memory
from redist.runtime.cuda.transports.ipc import Peers, peers_of
from redist.runtime.cuda.transports.opened_memory import WORDS, OpenedMemory
from redist.runtime.index_sets.part import Part
from redist.runtime.onesided.window import Index, Window
from redist.runtime.ranks.world import World
from redist.runtime.shm.segments import Bytes


@dataclass(frozen=True, slots=True)
class DevicePlace:
    """Where a rank's tile lies, as other processes need it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    memory: OpenedMemory | None
    """None if it cannot be opened."""
    writable = True

    @property
    def is_near(self) -> bool:
        """Whether the other ranks of the node reach it without help; there is nothing in an empty one."""
        return self.memory is not None or 0 in self.shape


def opened_place(array: Any) -> OpenedMemory | None:
    """**Local.** How other processes open the memory of an array; None if they cannot."""
    try:
        return opened_memory.place_of(device_address(array)) if array.size else None
    except Exception:  # the pool may have memory that is not shared
        return None


def raw_dtype(itemsize: int) -> np.dtype[Any]:
    """A dtype by which elements of any kind are copied.

    >>> raw_dtype(2), raw_dtype(16)
    (dtype('uint16'), dtype('complex128'))
    """
    return np.dtype(f"u{itemsize}" if itemsize < 16 else "c16")


def view_of(peers: Peers, rank: int, place: DevicePlace, dtype: np.dtype[Any]) -> Any:
    """**Local.** A neighbour's tile as an array, in memory that is held open until it is let go."""
    if place.memory is None:
        return empty_on_device(place.shape, dtype)
    return memory_at(peers.hold(rank, place.memory), place.shape, place.strides, dtype)


def let_go(peers: Peers, held: Iterable[tuple[int, OpenedMemory | None]]) -> None:
    """**Local.** Hold memory of neighbours open no longer."""
    for rank, memory in held:
        if memory is not None:
            peers.let_go(rank, memory)


class DeviceWindow(Window):
    """The tiles of an array on GPUs as this rank reaches them. ``comm`` is the array's."""

    lies = " on GPUs"
    peers: Peers

    def __init__(
        self,
        comm: MPI.Comm,
        world: World,
        number: int,
        t: ArrayType,
        tile: Any,
        timeout_s: float | None,
    ) -> None:
        super().__init__(world, number, t, tile, timeout_s)
        self._comm, self._held = comm, list[tuple[int, OpenedMemory | None]]()
        self.dtype = raw_dtype(self.dtype.itemsize)
        self.raw = None if tile is None else tile.view(self.dtype)
        self._stream: Any = None
        """Of the thread that answers."""

    def place(self) -> None:
        """**Local.** Told later: ranks that came for something else shall not open each other's memory."""

    def connect(self, places: Sequence[Any]) -> bool:
        """**Collective.** Find the nearest copy of every tile; whether some rank has to ask for one."""
        self.peers = peers_of(self._comm, self.world)
        self.near = self.peers.world.node.ranks
        tile = self.raw
        mine = None if tile is None else DevicePlace(tile.shape, tile.strides, opened_place(tile))
        asks = super().connect(self.world.gather(mine))
        return asks or len(self.near) < self.world.size

    def reach(self, shard: int, rank: int, place: Any) -> bool:
        """**Local.** Reach a tile in place; whether it can be."""
        if place.is_near:
            self.views[shard] = view_of(self.peers, rank, place, self.dtype)
            self._held.append((rank, place.memory))
        return bool(place.is_near)

    def close(self) -> None:
        """**Local.** Let go of other ranks' tiles: nobody reaches for them any more."""
        self.views = []
        let_go(self.peers, self._held)
        self._held = []

    def answer(self, part: Part) -> Bytes:
        """**Local.** The bytes of a part of this rank's tile, for another rank; in a thread of its own."""
        import cupy

        tile: Any = self.raw
        with cupy.cuda.Device(gpu_of(tile)):
            self._stream = self._stream or cupy.cuda.Stream(non_blocking=True)
            with self._stream as stream:
                block = empty_on_device(part.shape, self.dtype)
                copy_parts([(tile, part, (slice(None),) * block.ndim)], block)
                data = pinned_bytes(block.nbytes)
                ends = data.ctypes.data, device_address(block)
                cupy.cuda.runtime.memcpyAsync(*ends, block.nbytes, TO_HOST, stream.ptr)
                stream.synchronize()
        return data

    def fetch(self, wanted: Iterable[tuple[int, Part]]) -> list[Any]:
        """**Local.** Parts of tiles on other nodes as contiguous arrays, asked for together."""
        return [to_device(block) for block in super().fetch(wanted)]

    def put(self, blocks: Iterable[tuple[Any, Index]], out: Any) -> None:
        """**Local.** Copy contiguous arrays to their places in ``out``."""
        copy_parts(((block, all_of(block), where) for block, where in blocks), out)

    def read(self, parts: Iterable[tuple[int, Part, Index]], out: Any) -> None:
        """**Local.** Copy parts of tiles, by number, to places in ``out``."""
        near, far = [], []
        for shard, part, where in parts:
            view: Any = self.views[shard]
            if view is None:
                far.append((shard, part, where))
            else:
                near.append((view, part, where))
        blocks = self.fetch((shard, part) for shard, part, _ in far) if far else []
        there = zip(blocks, far, strict=True)
        copy_parts([*near, *((b, all_of(b), where) for b, (*_, where) in there)], out)

    # Values that stay where they were put

    def place_of(self, values: Any) -> tuple[int, ...] | None:
        """**Local.** Where values of this rank lie, for a record; None if neighbours cannot open them."""
        memory = opened_place(values)
        if memory is None:
            return None
        return self.world.rank, device_address(values), *memory.words

    def at_place(self, place: Ints, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """**Local.** Values at a place, and their strides, that a record has."""
        rank, address = place[:2].tolist()
        if rank != self.world.rank:  # a process does not open memory of its own
            address = self.peers.opened(rank, OpenedMemory.read(place[2 : 2 + WORDS]))
        return memory_at(address, tuple(shape), tuple(place[2 + WORDS :].tolist()), dtype)
