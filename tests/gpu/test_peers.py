"""What ranks of a node open of each other: when, how often, and what happens where they cannot."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from redist.errors import RequestError
from redist.runtime.cuda.transports import ipc as cuda_peers
from redist.runtime.cuda.transports import opened_memory
from redist.runtime.cuda.transports.ipc import (
    NoPeers,
    PeerEvent,
    Peers,
    can_open,
)
from redist.runtime.cuda.transports.opened_memory import OpenedMemory, check_shareable
from redist.runtime.ranks.world import world_of
from tests.programs.gpu.jobs import must_succeed, needs_linux, needs_mpi
from tests.programs.launch import one_worker


class Refusal(RuntimeError):
    """An error of CUDA with its number."""

    status = cuda_peers._ALREADY_MAPPED


class Runtime:
    """CUDA's, as far as it opens things; ``refuses`` some of it."""

    def __init__(self) -> None:
        self.opened: list[bytes] = []
        self.closed: list[int] = []
        self.events: list[Any] = []
        self.destroyed: list[Any] = []
        self.waited: list[Any] = []
        self.refuses = ""
        self.in_the_way: set[int] = set()
        self.number = np.zeros(1, np.int64)

    CUDARuntimeError = Refusal

    def _try(self, what: str) -> None:
        if what == self.refuses:
            raise RuntimeError("operation not supported")

    def getDeviceProperties(self, number: int) -> dict[str, bytes]:
        return {"uuid": b"own"}

    def ipcGetEventHandle(self, event: Any) -> bytes:
        self._try("get event")
        self.events.append(event)
        return b"event"

    def ipcOpenEventHandle(self, handle: bytes) -> int:
        self._try("open event")
        return 70 + len(self.waited)

    def eventDestroy(self, event: int) -> None:
        self._try("destroy")
        self.destroyed.append(event)

    def streamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        self.waited.append(event)

    def ipcOpenMemHandle(self, handle: bytes, flags: int) -> int:
        if self.in_the_way - set(self.closed):
            raise Refusal
        self.opened.append(handle)
        return 1000 * len(self.opened)

    def ipcCloseMemHandle(self, address: int) -> None:
        self._try("close")
        self.closed.append(address)

    def memcpy(self, to: int, of: int, n_bytes: int, kind: int) -> None:
        MPI.memory.fromaddress(to, 8)[:] = (cuda_peers._PROBE + 1).to_bytes(8, "little")


class Event:
    """One that only tells who waited for it."""

    ptr = 5
    waited = 0

    def __init__(self, **options: bool) -> None:
        pass

    def record(self, stream: Any) -> None:
        pass

    def synchronize(self) -> None:
        Event.waited += 1


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    found = Runtime()
    stream = SimpleNamespace(synchronize=lambda: None)
    cuda = SimpleNamespace(
        runtime=found,
        Event=Event,
        Device=lambda: SimpleNamespace(id=0, pci_bus_id="0"),
        get_current_stream=lambda: stream,
    )
    full = SimpleNamespace(data=SimpleNamespace(ptr=64))
    cupy: Any = SimpleNamespace(cuda=cuda, full=lambda *given: full)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(opened_memory, "place_of", lambda address: place(0))
    return found


def place(k: int, number: int = 1, offset: int = 0) -> OpenedMemory:
    return OpenedMemory(k.to_bytes(64, "little"), number, offset)


def world(*gpus: bytes) -> Any:
    """Rank 0 of a node; the others say ``gpus``, or the same as this one."""

    def gather(mine: Any) -> list[Any]:
        others = [gpu.hex() if isinstance(mine, str) and mine else mine for gpu in gpus]
        return [mine, *others]

    node = SimpleNamespace(ranks=tuple(range(len(gpus) + 1)), place=0)
    failure = SimpleNamespace(broken=None)
    return SimpleNamespace(rank=0, size=9, node=node, gather_on_node=gather, failure=failure)


@pytest.mark.parametrize("alone", [False, True])
def test_a_rank_that_shares_nothing_asks_nothing_of_ipc(runtime: Runtime, alone: bool) -> None:
    runtime.refuses = "get event"
    peers = NoPeers(world(b"b")) if alone else Peers(world())
    peers.say(PeerEvent.READY, SimpleNamespace())
    peers.say(PeerEvent.DONE, SimpleNamespace())
    peers.await_all(PeerEvent.DONE, (0,), SimpleNamespace())
    assert runtime.events == []


def test_ranks_with_gpus_of_their_own_wait_by_events(runtime: Runtime) -> None:
    peers = Peers(world(b"b"))
    peers.await_all(PeerEvent.READY, (0, 1), SimpleNamespace(ptr=1))
    assert peers.mates == () and len(runtime.events) == 2 and len(runtime.waited) == 1


def test_a_rank_with_its_own_gpu_waits_where_others_share_one(runtime: Runtime) -> None:
    peers = Peers(world(b"b", b"b"))
    waited: list[bool] = []
    peers.say(PeerEvent.READY, SimpleNamespace(synchronize=lambda: waited.append(True)))
    peers.await_all(PeerEvent.READY, (0, 1, 2), SimpleNamespace(ptr=1))
    assert peers.mates == (0,) and waited == [True] and runtime.waited == []


@pytest.mark.parametrize("refuses", ["", "get event", "open event"])
def test_what_is_tried_out_includes_events(runtime: Runtime, refuses: str) -> None:
    runtime.refuses = refuses
    problems = can_open(world(b"b"))
    assert bool(problems) == bool(refuses)
    assert "an event of rank 1" in problems[0] if refuses == "open event" else True
    assert len(runtime.destroyed) == (not refuses)


def test_memory_in_use_is_not_closed(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_peers, "MOST_OPENED", 3)
    peers = Peers(world(b"b"))
    peers.begin()
    first = [peers.opened(1, place(k)) for k in range(5)]
    assert len(set(first)) == 5 and runtime.closed == []
    peers.begin()  # all were used by the last call
    assert [peers.opened(1, place(k)) for k in (4, 0)] == [first[4], first[0]]
    assert runtime.closed == []
    before = Event.waited
    peers.begin()
    assert sorted(runtime.closed) == first[1:4] and peers.n_closed == 3
    assert Event.waited == before + 1  # what the last call reads may still be read
    assert peers.opened(1, place(0)) == first[0] and len(runtime.opened) == 5
    assert peers.opened(1, place(1, offset=8)) == 6008


def test_memory_that_came_back_with_another_number_is_opened_again(runtime: Runtime) -> None:
    peers = Peers(world(b"b"))
    assert peers.opened(1, place(0, 1)) == 1000
    assert peers.opened(1, place(0, 2)) == 2000
    assert runtime.closed == [1000] and peers.n_closed == 1


def test_memory_that_is_gone_makes_way_for_what_lies_there_now(runtime: Runtime) -> None:
    peers = Peers(world(b"b", b"c"))
    peers.begin()
    gone, others = peers.opened(1, place(0)), peers.opened(2, place(1))
    peers.begin()
    runtime.in_the_way = {gone}
    assert peers.opened(1, place(2)) == 3000
    assert runtime.closed == [gone] and peers.n_closed == 1
    assert peers.opened(2, place(1)) == others
    runtime.in_the_way = {3000}  # in use: nothing makes way
    with pytest.raises(Refusal):
        peers.opened(1, place(3))


@pytest.mark.parametrize("refuses", ["", "close", "destroy"])
def test_what_was_opened_is_closed_in_the_end(runtime: Runtime, refuses: str) -> None:
    runtime.refuses = refuses
    peers = Peers(world(b"b"))
    peers.opened(1, place(0))
    peers.close()
    peers.close()
    assert runtime.closed == ([1000] if refuses != "close" else [])
    assert runtime.destroyed == ([70, 70] if refuses != "destroy" else [])


def test_a_world_that_is_closed_closes_what_it_keeps() -> None:
    comm = MPI.COMM_SELF.Dup()
    said: list[str] = []
    world_of(comm).keep(SimpleNamespace(close=lambda: said.append("closed")))
    comm.Free()
    assert said == ["closed"]


def test_memory_that_cannot_be_shared_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: int) -> OpenedMemory:
        raise RuntimeError("invalid argument")

    monkeypatch.setattr(opened_memory, "place_of", refuse)
    array = SimpleNamespace(data=SimpleNamespace(ptr=64))
    said = (
        r"^cannot share the source tile with other ranks: its memory cannot be opened by CUDA IPC "
        r"\(invalid argument\); copy it into an array of CuPy's pool$"
    )
    with pytest.raises(RequestError, match=said):
        check_shareable(array, "source tile")


SHARED = [
    (2, "source"),
    (2, "target"),
    pytest.param(3, "source", marks=pytest.mark.slow("on more ranks")),
]


@one_worker
@needs_mpi
@needs_linux
@pytest.mark.parametrize(("ranks", "what"), SHARED)
def test_memory_that_cannot_be_shared_ends_no_communicator(ranks: int, what: str) -> None:
    said = must_succeed("unshared", ranks, "--what", what, limit_s=60)
    assert f"refused on all {ranks} ranks, then well" in said


@one_worker
@needs_mpi
@needs_linux
def test_a_donated_source_survives_a_call_that_is_refused() -> None:
    said = must_succeed("unshared", 4, "--what", "donated", limit_s=60)
    assert "refused, and nothing was given up" in said
