"""The ranks of a communicator: who shares a node, how they meet, and how a failure reaches them all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.errors import RequestError, TransferError
from redist.runtime.ranks.background import Queue, run_now
from redist.runtime.ranks.control_page import ControlPages
from redist.runtime.ranks.leaving import tell_at_exit, wait_to_begin
from redist.runtime.ranks.long_wait import check_timeout
from redist.runtime.ranks.meeting import Disagreement, Meeting, Met
from redist.runtime.ranks.mpi_failure import MpiFailure
from redist.runtime.ranks.mpi_node import MpiNode
from redist.runtime.ranks.waiting import TIMEOUT_S, gather, watch_over
from redist.runtime.shm.segments import Bytes, Handle, attach

Comm = MPI.Comm
"""For the layers that pass communicators on and never call MPI themselves."""
T = TypeVar("T")


class Closable(Protocol):
    """What a layer above keeps with a communicator, until that is freed."""

    def close(self) -> None:
        """End it; **collective** if it needs other ranks."""


K = TypeVar("K", bound=Closable)


class World:
    """What all operations over one communicator share. Making one is **collective over** ``comm``.

    ``node`` says who shares memory, ``pages`` is the control memory of its ranks, ``meeting`` lets
    ranks wait for each other, and ``failure`` tells them when one of them cannot go on.
    """

    def __init__(
        self,
        comm: Comm,
        transport: str = "auto",
        node_size: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.comm = comm.Dup()
        self.rank, self.size = comm.rank, comm.size
        self.transport = transport
        self._segments: dict[tuple[int, int, bool], Bytes] = {}
        self._kept: dict[type, Closable] = {}
        self._queue = Queue()
        self._join(MpiNode.find(self.comm, transport, node_size), timeout_s)
        works = True
        try:
            self.pages.map(self)
        except (OSError, ValueError, TransferError):
            works = False
        self._join(self.node.split(self.comm, works), timeout_s)
        self.pages.map(self)
        self.reads_memory = self.node.can_read_memory()
        watch_over(self.comm, self.failure)
        watch_over(comm, self.failure)
        if self.size > 1:
            tell_at_exit(self.failure)

    def _join(self, node: MpiNode, timeout_s: float | None) -> None:
        self.node, self.one_node = node, node.is_everyone
        self.pages = ControlPages(node)
        self.failure = MpiFailure(self.comm, node, self.pages, timeout_s)
        watch_over(node.comm, self.failure)
        self.meeting = Meeting(self, node, self.pages, self.failure)

    # Operations

    @contextlib.contextmanager
    def operation(self, timeout_s: float | None) -> Iterator[None]:
        """An operation of all ranks, once those started before have ended.

        Every wait in it lasts at most ``timeout_s``. An exception inside reaches the other ranks as
        an error of theirs, unless it is a :class:`Disagreement`, which they all have.
        """
        failure = self.failure
        failure.raise_if_broken()
        self._queue.drain()
        before, failure.timeout_s = failure.timeout_s, timeout_s
        try:
            yield
        except Disagreement:
            raise
        except BaseException as error:
            self.abort_once(error)
            raise
        finally:
            failure.timeout_s = before

    def abort_once(self, error: BaseException) -> None:
        """**Local.** Tell every rank of an error, unless a failure has ended the world already."""
        if self.failure.broken is None:
            self.failure.abort(error)

    def enqueue(self, work: Callable[[], T]) -> Future[T]:
        """**Local.** Run ``work`` after everything enqueued before; in the background if that can be."""
        needs_no_mpi = self.one_node and self.node.kernels is not None
        if needs_no_mpi or MPI.Query_thread() >= MPI.THREAD_MULTIPLE:
            return self._queue.put(work)
        return run_now(work)

    def drain(self) -> None:
        """**Local.** Wait until nothing that was enqueued is under way."""
        self._queue.drain()

    # What ranks tell each other

    def meet(self, token: int, flag: int = 0) -> Met:
        """**Collective.** As :meth:`Meeting.meet`."""
        return self.meeting.meet(token, flag)

    def meet_node(self) -> None:
        """**Collective over the node.** As :meth:`Meeting.meet_node`."""
        self.meeting.meet_node()

    def wait(self, requests: list[Any]) -> None:
        """Wait for a collective of MPI, as :meth:`MpiFailure.wait`."""
        self.failure.wait(requests)

    def wait_for_messages(self, requests: list[Any]) -> None:
        """Wait for messages, as :meth:`MpiFailure.wait_for_messages`."""
        self.failure.wait_for_messages(requests)

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Wait for something that calls MPI itself, as :meth:`MpiFailure.wait_until`."""
        self.failure.wait_until(is_done)

    def all_max(self, values: NDArray[np.int64]) -> None:
        """**Collective.** Replace numbers by the largest of any rank."""
        self.failure.wait([self.comm.Iallreduce(MPI.IN_PLACE, values, op=MPI.MAX)])

    def gather(self, value: Any) -> list[Any]:
        """**Collective.** The values of all ranks, in order."""
        return gather(self.comm, value, self.failure.timeout_s)

    def gather_on_node(self, value: Any) -> list[Any]:
        """**Collective over the node.** The values of its ranks, in order."""
        return gather(self.node.comm, value, self.failure.timeout_s)

    def wait_on_node(self) -> None:
        """**Collective over the node.** Wait for its ranks, by MPI."""
        self.failure.wait([self.node.comm.Ibarrier()])

    # Memory

    def reserve(self, n_items: int, pool_bytes: int) -> None:
        """**Collective.** Make control pages large enough for transfers of this many arrays and bytes."""
        if self.pages.reserve(n_items, pool_bytes, self):
            self.meeting.seq = 0

    def map_segment(self, rank: int, handle: Handle, writes: bool = False) -> Bytes:
        """**Local.** A segment of a neighbour, mapped once to be read, and once to be written.

        It stays mapped until the communicator is freed: recorded calls have addresses in it.
        """
        key = rank, handle.number, writes
        found = self._segments.get(key)
        if found is None:
            found = self._segments[key] = attach(handle, writes)
        return found

    # What layers above keep here

    def kept(self, kind: type[K]) -> K | None:
        """**Local.** What was kept of this kind, if anything."""
        return self._kept.get(kind)  # type: ignore[return-value]

    def keep(self, thing: K) -> K:
        """**Local.** Keep a thing, the only one of its kind, until the communicator is freed."""
        self._kept[type(thing)] = thing
        return thing

    def close(self) -> None:
        """**Collective.** Free the communicators."""
        self._queue.close()
        for thing in self._kept.values():
            thing.close()
        self.failure.broken = self.failure.broken or "the communicator was freed"
        self.node.comm.Barrier()  # a neighbour may still read this rank's pool
        for comm in (self.node.comm, self.comm):
            comm.Free()


def world_of(
    comm: Comm,
    transport: str = "auto",
    node_size: int | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> World:
    """The world of a communicator; **collective over** ``comm`` the first time."""
    try:
        worlds: Any = comm.Get_attr(_KEY)
    except (AttributeError, MPI.Exception):
        raise RequestError(
            f"cannot use {comm!r} as a communicator: it was freed, or it is not one of mpi4py's; give "
            "comm=MPI.COMM_WORLD or another, and meshes as mesh="
        ) from None
    if worlds is None:
        check_timeout(timeout_s)
        worlds = {}
        comm.Set_attr(_KEY, worlds)
    found: World | None = worlds.get((transport, node_size))
    if found is None:
        wait_to_begin(comm, timeout_s)
        found = worlds[transport, node_size] = World(comm, transport, node_size, timeout_s)
    return found


def comm_or_world(comm: Comm | None) -> Comm:
    """The communicator given, or the one of all ranks."""
    return MPI.COMM_WORLD if comm is None else comm


def _close(worlds: dict[tuple[str, int | None], World]) -> None:
    for world in worlds.values():
        world.close()


_KEY = MPI.Comm.Create_keyval(delete_fn=lambda comm, key, worlds: _close(worlds))
