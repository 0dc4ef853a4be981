"""The ranks of a communicator: who shares a node, how they meet, and how a failure reaches them all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.errors import RequestError, TransferError
from redist.runtime.copies.addresses import address_of
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.kernels import kernels
from redist.runtime.copies.strided import Strided
from redist.runtime.ranks.background import Queue, run_now
from redist.runtime.ranks.control_page import ControlPages
from redist.runtime.ranks.failure import Failure, failed
from redist.runtime.ranks.leaving import tell_at_exit, wait_to_begin
from redist.runtime.ranks.letters import MOST_RANKS, Letters
from redist.runtime.ranks.long_wait import check_timeout
from redist.runtime.ranks.meeting import Disagreement, Meeting
from redist.runtime.ranks.node import Node
from redist.runtime.ranks.signs import raise_if_forked
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import (
    TIMEOUT_S,
    gather,
    may_call_mpi,
    wait_for,
    wait_until,
    watch_over,
)
from redist.runtime.shm.segments import Bytes, Handle, attach, can_share


@dataclass(frozen=True, eq=False)
class MpiNode(Node):
    """A node whose ranks have a communicator of their own."""

    comm: MPI.Comm

    @staticmethod
    def find(comm: MPI.Comm, transport: str, node_size: int | None) -> MpiNode:
        """**Collective.** The ranks that can map each other's memory, as far as MPI knows.

        ``transport="mpi"`` leaves each rank alone; ``node_size`` pretends that nodes have this many.
        """
        colour = comm.rank if transport == "mpi" or not can_share() else 0
        if node_size is not None:
            colour = comm.rank // node_size
        split = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
        found = MpiNode._of(comm, split.Split(colour, key=comm.rank))
        split.Free()
        return found

    def split(self, comm: MPI.Comm, works: bool) -> MpiNode:
        """**Collective.** The same node, or ranks by themselves if it does not work for one of them."""
        near = self.comm
        if near.allreduce(int(works), op=MPI.MIN) == 0:
            near = self.comm.Split(self.rank)
            self.comm.Free()
        return MpiNode._of(comm, near)

    @staticmethod
    def _of(comm: MPI.Comm, near: MPI.Comm) -> MpiNode:
        told = near.allgather((comm.rank, os.getpid()))
        nodes = comm.allgather(tuple(rank for rank, _ in told))
        groups = tuple(node[0] for node in nodes)
        compiled = comm.allreduce(int(kernels() is not None), op=MPI.MIN)
        mine = kernels() if compiled else None
        return MpiNode(comm.rank, nodes[comm.rank], groups, dict(told), mine, near)

    def can_read_memory(self) -> bool:
        """**Collective over the node.** Whether the system lets each rank read the others' memory."""
        if self.kernels is None:
            return False
        mine, got = np.array([self.rank + 1], dtype=np.int64), np.zeros(1, dtype=np.int64)
        places = self.comm.allgather(address_of(mine))
        ok = True
        for rank, address in zip(self.ranks, places, strict=True):
            moves = CopyList.of([BufferCopy(0, 0, 1, 0, Strided(8, ()))])
            try:
                moves.read(self.pids[rank], np.array([address_of(got), address], dtype=np.uintp))
            except TransferError:
                ok = False
            ok = ok and int(got[0]) == rank + 1
        return bool(self.comm.allreduce(int(ok), op=MPI.MIN))


class MpiFailure(Failure):
    """What this rank knows of failures of a communicator: other nodes tell of theirs by messages.

    Nobody is sent anything who may be gone: MPICH crashes on a message to a process that is.
    """

    def __init__(
        self, comm: MPI.Comm, node: Node, pages: ControlPages, timeout_s: float | None
    ) -> None:
        super().__init__(node, pages, timeout_s, comm.size)
        self._comm = comm
        self._told: list[MPI.Request] = []
        """Words under way to others: MPI reads them as long as they are not there."""

    def why_broken(self) -> str:
        """**Local.** What users are told who go on after a failure; in a fork of a rank, another error."""
        raise_if_forked()
        return (
            f"cannot use this communicator any more: an earlier transfer failed "
            f"({self.broken}); continue with a new one, such as comm.Dup()"
        )

    def tell_other_nodes(self, how: str, reason: str) -> None:
        """**Local.** Tell the ranks of other nodes, by messages that nobody waits for."""
        for rank in range(self.size):
            if rank not in self._node.ranks and may_call_mpi():
                with contextlib.suppress(MPI.Exception):
                    self._told.append(self._comm.isend((how, reason), rank, Tag.ABORT))

    def may_get_messages(self) -> bool:
        """**Local.** Whether this thread may call MPI."""
        return may_call_mpi()

    def raise_if_message(self) -> None:
        """**Local.** Let MPI go on with what is under way; raise if another node has given up."""
        status = MPI.Status()
        if self._comm.Iprobe(MPI.ANY_SOURCE, Tag.ABORT, status):
            how, text = self._comm.recv(source=status.source, tag=Tag.ABORT)
            raise failed(status.source, how, text)


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
        self.after_started: Callable[[], None] | None = None
        """Lets the current stream of a GPU wait for what was enqueued."""
        self.letters: Letters | None = None
        """How ranks of several nodes meet, if these are not too many."""
        self._join(MpiNode.find(self.comm, transport, node_size), timeout_s)
        works = True
        try:
            self.pages.map(self)
        except (OSError, ValueError, TransferError):
            works = False
        self._join(self.node.split(self.comm, works), timeout_s)
        self.pages.map(self)
        if not self.one_node and self.size <= MOST_RANKS:
            self.letters = Letters(self.comm, self.node, self.wait_until)
            self.meeting.letters = self.letters
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
        self.meet, self.meet_node = self.meeting.meet, self.meeting.meet_node

    # Operations

    @contextlib.contextmanager
    def operation(self, timeout_s: float | None) -> Iterator[None]:
        """An operation of all ranks, once those started before have ended.

        Every wait in it lasts at most ``timeout_s``. An exception inside reaches the other ranks as
        an error of theirs, unless it is a :class:`Disagreement`, which they all have.
        """
        failure = self.failure
        failure.raise_if_broken()
        self.drain()
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
        return self._queue.put(work) if self.has_background else run_now(work)

    @property
    def has_background(self) -> bool:
        """Whether a transfer may run in the background: it needs no MPI there, or MPI knows threads."""
        needs_no_mpi = self.one_node and self.node.kernels is not None
        return needs_no_mpi or MPI.Query_thread() >= MPI.THREAD_MULTIPLE

    def drain(self) -> None:
        """**Local.** Wait until nothing that was enqueued is under way; streams wait for what a GPU does."""
        self._queue.drain()
        if self.after_started is not None:
            self.after_started()

    # What ranks tell each other

    def wait(self, requests: list[Any]) -> None:
        """Wait for a collective of MPI; raise if a rank fails meanwhile, or if it takes too long."""
        self.failure.count_wait()
        wait_for(requests, self.failure.timeout_s, self.failure)

    def wait_for_messages(self, requests: list[Any]) -> None:
        """The same for messages, of which ranks may have different numbers."""
        wait_for(requests, self.failure.timeout_s, self.failure)

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """The same until something is done that calls MPI itself."""
        wait_until(is_done, self.failure.timeout_s, self.failure)

    def all_max(self, values: NDArray[np.int64]) -> None:
        """**Collective.** Replace numbers by the largest of any rank."""
        self.wait([self.comm.Iallreduce(MPI.IN_PLACE, values, op=MPI.MAX)])

    def all_xor(self, values: NDArray[np.uint32]) -> None:
        """**Collective.** Replace numbers by those of all ranks, combined by exclusive or."""
        self.wait([self.comm.Iallreduce(MPI.IN_PLACE, values, op=MPI.BXOR)])

    def gather(self, value: Any) -> list[Any]:
        """**Collective.** The values of all ranks, in order."""
        return gather(self.comm, value, self.failure.timeout_s)

    def gather_on_node(self, value: Any) -> list[Any]:
        """**Collective over the node.** The values of its ranks, in order."""
        return gather(self.node.comm, value, self.failure.timeout_s)

    def wait_on_node(self) -> None:
        """**Collective over the node.** Wait for its ranks, by MPI."""
        self.wait([self.node.comm.Ibarrier()])

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
        if self.letters is not None:
            self.letters.close()
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
