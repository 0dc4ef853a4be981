"""Open GPU memory and events of neighbours by CUDA IPC, and keep them open.

GPUs of a node are joined so where all its ranks can; a carrier joins those of different nodes.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.runtime.cuda.arrays import TO_HOST
from redist.runtime.cuda.transports import opened_memory
from redist.runtime.cuda.transports.carrier_choice import choose, own_gpu
from redist.runtime.cuda.transports.carriers import ByMessages, Carrier
from redist.runtime.cuda.transports.opened_memory import LAZY_PEER_ACCESS, MOST_OPENED, OpenedMemory
from redist.runtime.ranks.node import enough_cores, own_cores
from redist.runtime.ranks.world import World, world_of

_ALREADY_MAPPED = 208
"""cudaErrorAlreadyMapped of the runtime: a neighbour gave memory back and got other memory there."""
_PROBE = 0x7265646973740000


class PeerEvent(IntEnum):
    """What a rank tells its neighbours by an event of its GPU."""

    READY = 0
    """Its arrays may be read."""
    DONE = 1
    """It has read those of others."""


class NoPeers:
    """What a rank shares with others in a transfer that moves nothing between ranks: nothing."""

    mates: tuple[int, ...] = ()
    """Ranks that share this GPU, this one included; none if no GPU of the node is shared."""
    have_cores = False
    """Whether ranks that share a GPU have a core each, so that they may wait without sleep."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.carrier: Carrier = ByMessages(world)
        """How data reaches other nodes; see :mod:`redist.runtime.cuda.transports.carrier_choice`."""
        self.n_closed = 0
        """How often memory of neighbours was closed: addresses found before may be stale."""

    def begin(self) -> None:
        """Begin a call."""

    def opened(self, rank: int, place: OpenedMemory) -> int:
        """The address at which a neighbour's memory is found here."""
        raise AssertionError("no memory of other ranks is read")

    def say(self, what: PeerEvent, stream: Any) -> None:
        """Tell the neighbours how far ``stream`` has come."""

    def await_all(self, what: PeerEvent, ranks: Iterable[int], stream: Any) -> None:
        """Let ``stream`` wait until other ranks have said so."""


class Peers(NoPeers):
    """What a rank shares with the ranks of its node: two events each, and memory by handle.

    Events are on the stream of the call, so that no rank waits for a GPU. If some ranks share one, all
    ranks of the node do wait: those take turns on it, and an event would cost each another turn.
    Making one is **collective**.
    """

    def __init__(self, world: World) -> None:
        import cupy

        super().__init__(world)
        self.problems: list[str] = []
        """Why GPUs of one node are not joined directly."""
        self.device = int(cupy.cuda.Device().id)
        self._runtime: Any = cupy.cuda.runtime
        self._opened: dict[tuple[int, bytes], tuple[int, int]] = {}
        self._used: set[tuple[int, bytes]] = set()
        self._held: Counter[tuple[int, bytes]] = Counter()
        self._own: list[Any] = []
        self._events: dict[int, list[int]] = {}
        node = world.node.ranks
        if len(node) == 1:
            return
        gpus = world.gather_on_node(own_gpu())
        if len(set(gpus)) < len(gpus):
            mine = gpus[world.node.place]
            self.mates = tuple(r for r, gpu in zip(node, gpus, strict=True) if gpu == mine)
            self.have_cores = enough_cores(world.gather_on_node(own_cores()))
            return
        self._own = [_event() for _ in PeerEvent]
        handles = [self._runtime.ipcGetEventHandle(event.ptr) for event in self._own]
        for rank, told in zip(node, world.gather_on_node(handles), strict=True):
            if rank != world.rank:
                self._events[rank] = [self._runtime.ipcOpenEventHandle(h) for h in told]

    def begin(self) -> None:
        """Begin a call: close what the last one did not use, if too much is open.

        Nothing is closed for want of room before the next one: what a call has found stays.
        """
        if len(self._opened) > MOST_OPENED:
            self._wait()
            for key in self._unused():
                self._close(self._opened.pop(key)[1])
        self._used.clear()

    def opened(self, rank: int, place: OpenedMemory) -> int:
        """The address at which a neighbour's memory is found here."""
        key = rank, place.handle
        number, start = self._opened.get(key, (None, 0))
        if number != place.number:
            if number is not None:
                del self._opened[key]
                self._close(start)
            start = self._open(rank, place.handle)
            self._opened[key] = place.number, start
        self._used.add(key)
        return start + place.offset

    def hold(self, rank: int, place: OpenedMemory) -> int:
        """The same; it stays there until :meth:`let_go`, whatever other calls open."""
        self._held[rank, place.handle] += 1
        return self.opened(rank, place)

    def let_go(self, rank: int, place: OpenedMemory) -> None:
        """Hold a neighbour's memory no longer."""
        self._held[rank, place.handle] -= 1

    def _unused(self) -> set[tuple[int, bytes]]:
        return self._opened.keys() - self._used - (+self._held).keys()

    def _open(self, rank: int, handle: bytes) -> int:
        """Open a neighbour's memory; if it lies where memory lay that is gone, close that first."""
        try:
            return int(self._runtime.ipcOpenMemHandle(handle, LAZY_PEER_ACCESS))
        except self._runtime.CUDARuntimeError as error:
            if error.status != _ALREADY_MAPPED:
                raise
        self._wait()
        for key in [key for key in self._unused() if key[0] == rank]:
            self._close(self._opened.pop(key)[1])
        return int(self._runtime.ipcOpenMemHandle(handle, LAZY_PEER_ACCESS))

    def _close(self, address: int) -> None:
        self.n_closed += 1
        self._runtime.ipcCloseMemHandle(address)

    def _wait(self) -> None:
        """Wait until this rank has read what it was to read; ranks that take turns have waited."""
        if self._own:
            self._own[PeerEvent.DONE].synchronize()

    def say(self, what: PeerEvent, stream: Any) -> None:
        """Tell the neighbours how far ``stream`` has come; if ranks share a GPU, wait until it has."""
        if self.mates:
            stream.synchronize()
        elif self._own:
            self._own[what].record(stream)

    def await_all(self, what: PeerEvent, ranks: Iterable[int], stream: Any) -> None:
        """Let ``stream`` wait until other ranks have said so; the host goes on."""
        for rank in ranks:
            if rank in self._events:
                self._runtime.streamWaitEvent(stream.ptr, self._events[rank][what], 0)

    def close(self) -> None:
        """**Local.** Close what was opened; nothing fails if CUDA has ended before."""
        with contextlib.suppress(Exception):
            if self.world.failure.broken is None:
                self._wait()
        for _, address in self._opened.values():
            with contextlib.suppress(Exception):
                self._close(address)
        for event in (event for events in self._events.values() for event in events):
            with contextlib.suppress(Exception):
                self._runtime.eventDestroy(event)
        self._opened.clear()
        self._events.clear()


def _event() -> Any:
    import cupy

    return cupy.cuda.Event(block=False, disable_timing=True, interprocess=True)


def can_open(world: World) -> list[str]:
    """**Collective over the node.** Why ranks cannot read each other's GPU memory; empty if they can.

    Every rank writes a number of its own and every other one reads it, as transfers will, and opens
    an event.
    """
    import cupy

    runtime: Any = cupy.cuda.runtime
    problem = ""
    try:
        mine = cupy.full(1, _PROBE + world.rank, np.int64)
        cupy.cuda.get_current_stream().synchronize()
        event = _event()
        said: Any = opened_memory.place_of(int(mine.data.ptr)), runtime.ipcGetEventHandle(event.ptr)
    except Exception as error:
        said, problem = None, f"rank {world.rank}: {error}"
    told = world.gather_on_node(said)
    for rank, one in zip(world.node.ranks, told, strict=True):
        if rank == world.rank or one is None or problem:
            continue
        what = "memory"
        try:
            problem = _read(rank, one[0])
            what = "an event"
            runtime.eventDestroy(runtime.ipcOpenEventHandle(one[1]))
        except Exception as error:
            problem = f"rank {world.rank} cannot open {what} of rank {rank}: {error}"
    return [text for text in world.gather_on_node(problem) if text]


def _read(rank: int, place: OpenedMemory) -> str:
    import cupy

    runtime: Any = cupy.cuda.runtime
    got: NDArray[np.int64] = np.zeros(1, np.int64)
    there = int(runtime.ipcOpenMemHandle(place.handle, LAZY_PEER_ACCESS))
    try:
        runtime.memcpy(got.ctypes.data, there + place.offset, got.nbytes, TO_HOST)
    finally:
        runtime.ipcCloseMemHandle(there)
    return "" if int(got[0]) == _PROBE + rank else f"memory of rank {rank} reads as something else"


def peers_of(comm: MPI.Comm, world: World) -> Peers:
    """**Collective, the first time.** What joins the GPUs of a world.

    If the ranks of a node cannot read each other's GPU memory, they are joined as if each were on a
    node of its own. NCCL joins nodes unless only messages of MPI were asked for.
    """
    found = world.kept(Peers)
    if found is not None:
        return found
    problems = can_open(world) if len(world.node.ranks) > 1 else []
    bad = np.array([len(problems)], np.int64)
    world.all_max(bad)
    if bad[0]:
        apart = world_of(comm, world.transport, 1, world.failure.timeout_s)
        with apart.operation(world.failure.timeout_s):
            found = peers_of(comm, apart)
    else:
        found = Peers(world)
        if not world.one_node:
            found.carrier = choose(world, world.transport != "mpi").carrier
    found.problems = problems
    return world.keep(found)
