"""The ranks of a communicator: who shares a node, how they meet, and how a failure reaches them all."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist.errors import PeerError, RedistError, TransferError
from redist.plan.topology import Level, Topology
from redist.runtime.copies.addresses import address_of
from redist.runtime.copies.kernels import ABORTED, ALL_SAME, NOT_YET, kernels
from redist.runtime.ranks.background import Queue
from redist.runtime.ranks.control_page import (
    CONTROL_BYTES,
    CONTROL_WORD,
    DESCRIPTION,
    LEAST_POOL_BYTES,
    TEXT_AT,
    TEXT_BYTES,
    ControlPage,
)
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import TIMEOUT_S, gather, wait_for
from redist.runtime.shm.pages import release_pages
from redist.runtime.shm.segments import Bytes, Handle, attach, can_share, find, shared_bytes

Comm = MPI.Comm
"""For the layers that pass communicators on and never call MPI themselves."""
SLICE_NS = 50_000_000
"""Waits look up so often: at signals, at the clock, and at whether the others live."""
BETWEEN_NODES_NS = 200_000
"""So often where ranks are on several nodes: see :meth:`World.patiently`."""
MOST_MAPPED = 1024
SAME, MIXED, DISAGREE = range(3)


class Disagreement(TransferError):
    """A rank came to the first meeting with another request, or with an error (this rank's, if any)."""

    def __init__(self, error: RedistError | None = None) -> None:
        super().__init__("ranks met for the same request in different ways: all must make one call")
        self.error = error


class World:
    """What all transfers over one communicator share. Making one is **collective over** ``comm``.

    ``node`` lists the ranks that share memory with this one, itself included; ``groups`` has the
    node of every rank. A failure after a transfer has begun ends the world for good: ranks may have
    stopped at different places, and only a new communicator gives them a common start.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        transport: str = "auto",
        node_size: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.comm = comm.Dup()
        self.rank, self.size = comm.rank, comm.size
        self.transport = transport
        self.seq = 0
        self.version = 0
        self.broken: str | None = None
        self.attached: dict[tuple[int, int], Bytes] = {}
        self.reads_memory = False
        self.touched_bytes = 0
        self.transfers: dict[Any, Any] = {}
        self.windows: Any = None
        self.gpus: Any = None
        """What joins the GPUs of its ranks, once one has appeared."""
        self._queue = Queue()
        self._find_node(transport, node_size)
        self.boards: dict[int, ControlPage] = {}
        self._addresses = np.zeros(1, dtype=np.uintp)
        self.pids: dict[int, int] = {}
        self.reserve(16, LEAST_POOL_BYTES, timeout_s)
        self._probe(timeout_s)

    @property
    def one_node(self) -> bool:
        """Whether all ranks share memory."""
        return len(self.node) == self.size

    def _find_node(self, transport: str, node_size: int | None) -> None:
        colour = self.rank if transport == "mpi" or not can_share() else 0
        if node_size is not None:
            colour = self.rank // node_size
        split = self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        self.node_comm = split.Split(colour, key=self.rank)
        split.Free()
        nodes = self.comm.allgather(tuple(self.node_comm.allgather(self.rank)))
        self.groups = tuple(node[0] for node in nodes)
        self.node = nodes[self.rank]
        compiled = self.comm.allreduce(int(kernels() is not None), op=MPI.MIN)
        self.kernels = kernels() if compiled else None

    def _probe(self, timeout_s: float | None) -> None:
        """Map the neighbours' memory; a node where that fails falls apart into single ranks."""
        works = 1
        try:
            self._map_boards(timeout_s)
        except (OSError, ValueError, TransferError):
            works = 0
        if self.node_comm.allreduce(works, op=MPI.MIN) == 0:
            alone = self.node_comm.Split(self.rank)
            self.node_comm.Free()
            self.node_comm = alone
        nodes = self.comm.allgather(tuple(self.node_comm.allgather(self.rank)))
        self.groups = tuple(node[0] for node in nodes)
        self.node = nodes[self.rank]
        self._map_boards(timeout_s)
        self.reads_memory = self._can_read_memory()

    def _can_read_memory(self) -> bool:
        """Whether the kernel lets every rank of this node read its neighbours' private memory."""
        if self.kernels is None:
            return False
        mine, got = np.array([self.rank + 1], dtype=np.int64), np.zeros(1, dtype=np.int64)
        places = self.node_comm.allgather((os.getpid(), address_of(mine)))
        from redist.runtime.copies.copy_list import BufferCopy, CopyList
        from redist.runtime.copies.strided import Strided

        ok = True
        for rank, (pid, address) in zip(self.node, places, strict=True):
            moves = CopyList.of([BufferCopy(0, 0, 1, 0, Strided(8, ()))])
            try:
                moves.read(pid, np.array([address_of(got), address], dtype=np.uintp))
            except TransferError:
                ok = False
            ok = ok and int(got[0]) == rank + 1
        return bool(self.node_comm.allreduce(int(ok), op=MPI.MIN))

    def all_max(self, values: NDArray[np.int64], timeout_s: float | None) -> None:
        """**Collective.** Replace numbers by the largest of any rank."""
        self.wait([self.comm.Iallreduce(MPI.IN_PLACE, values, op=MPI.MAX)], timeout_s)

    def gather_on_node(self, value: Any, timeout_s: float | None) -> list[Any]:
        """**Collective over the node.** What its ranks say, in order."""
        return gather(self.node_comm, value, timeout_s, self._look_for_aborts)

    def reserve(self, n_items: int, pool_bytes: int, timeout_s: float | None) -> None:
        """**Collective.** Make boards large enough for transfers of so many arrays and bytes."""
        mine = self.boards.get(self.rank)
        if mine is not None and mine.n_items >= n_items and mine.pool_bytes >= pool_bytes:
            return
        if mine is not None:
            n_items, pool_bytes = max(n_items, mine.n_items), max(pool_bytes, mine.pool_bytes)
        self.touched_bytes = 0
        n_bytes = CONTROL_BYTES + 2 * n_items * DESCRIPTION * 8 + pool_bytes
        memory = shared_bytes(n_bytes) if can_share() else np.zeros(n_bytes, np.uint8)
        self.boards = {self.rank: ControlPage(memory, n_items)}
        if mine is not None:
            self._map_boards(timeout_s)

    def _map_boards(self, timeout_s: float | None) -> None:
        mine = self.boards[self.rank]
        found = find(mine.memory)
        token = os.urandom(8)
        mine.memory[TEXT_AT : TEXT_AT + 8] = np.frombuffer(token, np.uint8)
        said = (found[0] if found else None, token, os.getpid())
        handles = self.gather_on_node(said, timeout_s)
        boards: dict[int, ControlPage] = {}
        for rank, (handle, there, pid) in zip(self.node, handles, strict=True):
            memory = mine.memory
            if rank != self.rank:
                if handle is None:
                    raise TransferError(f"rank {rank} has no memory to share")
                memory = attach(handle)[: len(mine.memory)]
            if bytes(memory[TEXT_AT : TEXT_AT + 8]) != there:
                raise TransferError(f"what is mapped is not the memory of rank {rank}")
            boards[rank] = ControlPage(memory, mine.n_items)
            self.pids[rank] = pid
        self.boards = boards
        self._addresses = np.array([boards[r].address for r in self.node], dtype=np.uintp)
        self.table = address_of(self._addresses)
        self.place = self.node.index(self.rank)
        self._words = {rank: _words(board.control) for rank, board in boards.items()}
        self.seq = 0
        self.version += 1
        self.wait([self.node_comm.Ibarrier()], timeout_s)
        mine.memory[TEXT_AT : TEXT_AT + 8] = 0
        mine.control[:] = 0
        self.wait([self.node_comm.Ibarrier()], timeout_s)

    def map_segment(self, rank: int, handle: Handle) -> Bytes:
        """A segment of a neighbour, mapped once."""
        key = rank, handle.number
        found = self.attached.get(key)
        if found is None:
            found = self.attached[key] = attach(handle)
        return found

    def forget_segments(self) -> None:
        """Unmap old segments: those of dead arrays hold no memory, but addresses."""
        if len(self.attached) > MOST_MAPPED:
            self.attached.clear()

    # Meeting

    def meet(self, word: int, flag: int, timeout_s: float | None) -> int:
        """Wait for every rank; ``SAME`` if all came with this word and flag, else why not.

        Ranks with other flags are no disagreement: ``MIXED``; :meth:`flag_of` tells whose.
        """
        said = 2 * word + flag
        if self.one_node and self.kernels is not None:
            self.seq += 1
            return self.judge(self._wait_on_node(said, timeout_s), said)
        self.seq += 1
        self._words[self.rank][CONTROL_WORD * (1 + (self.seq & 1))] = said
        seen = np.array([said, -said], dtype=np.int64)
        self.wait([self.comm.Iallreduce(MPI.IN_PLACE, seen, op=MPI.MAX)], timeout_s)
        if seen[0] == -seen[1]:
            return SAME
        return MIXED if seen[0] // 2 == -seen[1] // 2 else DISAGREE

    def judge(self, answer: int, said: int) -> int:
        """What an answer of the kernel means for a meeting of all ranks."""
        if answer == ALL_SAME:
            return SAME
        at = CONTROL_WORD * (1 + (self.seq & 1))
        words = {self._words[rank][at] for rank in self.node}
        if words == {said}:
            return SAME
        return MIXED if all(word // 2 == said // 2 for word in words) else DISAGREE

    def flag_of(self, rank: int) -> int:
        """The flag with which a neighbour came to the last meeting of all ranks."""
        return self._words[rank][CONTROL_WORD * (1 + (self.seq & 1))] & 1

    def meet_node(self, timeout_s: float | None) -> None:
        """Wait for the ranks of this node; what they wrote before is visible after."""
        self.seq += 1
        if len(self.node) == 1:
            return
        if self.kernels is not None:
            self._wait_on_node(0, timeout_s)
        else:
            self.wait([self.node_comm.Ibarrier()], timeout_s)

    def _wait_on_node(self, said: int, timeout_s: float | None) -> int:
        assert self.kernels is not None
        slice_ns = SLICE_NS if self.one_node else BETWEEN_NODES_NS
        args = self.table, len(self.node), self.place, self.seq, said, None, slice_ns
        return self.patiently(lambda: self.kernels.meet(*args), timeout_s)  # type: ignore[union-attr]

    def patiently(self, meet: Callable[[], int], timeout_s: float | None) -> int:
        """Call ``meet`` until the others have come; an error if one fails, dies or is too late.

        MPI calls a send complete when it has taken the data, not when it has delivered it: for that
        it must be called again. A neighbour may be waiting for that very message, so MPI is called
        here too.
        """
        start = looked = 0.0
        while True:
            answer = meet()
            if answer == ABORTED:
                self._raise_abort()
            if answer != NOT_YET:
                return answer
            now = time.monotonic()
            start = start or now
            if not self.one_node:
                self._look_for_messages()
            if now - looked < SLICE_NS / 1e9:
                continue
            looked = now
            self._look_for_the_dead()
            if self.one_node and self._may_call_mpi:
                self._look_for_messages()
            if timeout_s is not None and now - start > timeout_s:
                late = [rank for rank in self.node if self._words[rank][0] < self.seq]
                raise PeerError(f"{_ranks(late)} did not come within {timeout_s:g} s")

    def wait(self, requests: list[Any], timeout_s: float | None) -> None:
        """Wait for MPI requests, and for failures of others."""
        wait_for(requests, timeout_s, self._look_for_aborts)

    def _look_for_aborts(self) -> None:
        for board in self.boards.values():
            if int(board.control[1]):
                self._raise_abort()
        self._look_for_messages()
        self._look_for_the_dead()

    def _look_for_messages(self) -> None:
        """Let MPI go on with what is under way, and see whether another node has given up."""
        status = MPI.Status()
        if self.comm.Iprobe(MPI.ANY_SOURCE, Tag.ABORT, status):
            text = self.comm.recv(source=status.source, tag=Tag.ABORT)
            raise PeerError(f"rank {status.source} failed: {text}")

    def _raise_abort(self) -> None:
        for rank in self.boards:
            if int(self.boards[rank].control[1]):
                raise PeerError(f"rank {rank} failed: {self.boards[rank].text}")

    def hear(self) -> None:
        """**Local.** Raise if a rank of this node has given up, as it may have before this one came."""
        self._raise_abort()

    def _look_for_the_dead(self) -> None:
        for rank in self.pids:
            if rank != self.rank and not _is_alive(self.pids[rank]):
                raise PeerError(f"rank {rank} died (process {self.pids[rank]} is gone)")

    def abort(self, reason: str) -> None:
        """Tell every rank that this one has given up. The world cannot be used after that."""
        self.broken = reason
        board = self.boards[self.rank]
        text = reason.encode()[: TEXT_BYTES - 1]
        board.memory[TEXT_AT : TEXT_AT + len(text)] = np.frombuffer(text, np.uint8)
        board.control[1] = 1
        for rank in range(self.size):
            if rank not in self.node:
                with contextlib.suppress(MPI.Exception):
                    self.comm.isend(reason, rank, Tag.ABORT)

    @contextlib.contextmanager
    def failing_together(self) -> Iterator[None]:
        """An exception inside reaches the other ranks as an error of theirs."""
        try:
            yield
        except Disagreement:
            raise
        except BaseException as error:
            if self.broken is None:
                self.abort(f"{type(error).__name__}: {error}")
            raise

    def trim(self, slot_bytes: int) -> None:
        """**Local.** Give back what earlier transfers touched of this rank's pool beyond two slots."""
        if self.touched_bytes > slot_bytes:
            board = self.boards[self.rank]
            start = len(board.memory) - board.pool_bytes + slot_bytes
            release_pages(board.memory[start : len(board.memory) - slot_bytes])
            self.touched_bytes = slot_bytes

    @property
    def _may_call_mpi(self) -> bool:
        return MPI.Query_thread() >= MPI.THREAD_MULTIPLE or MPI.Is_thread_main()

    def enqueue(self, work: Callable[[], None]) -> None:
        """Run ``work`` after everything enqueued before, without waiting for it if that can be."""
        silent = self.one_node and self.kernels is not None  # a thread would not need MPI
        if silent or MPI.Query_thread() >= MPI.THREAD_MULTIPLE:
            self._queue.put(work)
        else:
            work()

    def finish(self) -> None:
        """Wait until nothing is under way."""
        self._queue.finish()

    def close(self) -> None:
        """**Collective.** Free the communicators."""
        self._queue.close()
        if self.windows is not None:
            self.windows.close()
        if self.gpus is not None:
            self.gpus.forget()
        self.broken = self.broken or "the communicator was freed"
        self.node_comm.Barrier()  # a neighbour may still read this rank's pool
        for comm in (self.node_comm, self.comm):
            comm.Free()

    def check_usable(self) -> None:
        """An error if an earlier failure ended this world."""
        if self.broken is not None:
            raise TransferError(
                f"cannot use this communicator any more: an earlier transfer failed "
                f"({self.broken}); go on with a new one, as from comm.Dup()"
            )


def _words(control: Any) -> memoryview:
    """Control words as Python numbers, quick to read."""
    return memoryview(control)


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _ranks(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks))
    return f"rank {names}" if len(ranks) == 1 else f"ranks {names}"


STEP_PS = 20_000_000
_KEY = MPI.Comm.Create_keyval(delete_fn=lambda comm, key, worlds: _close(worlds))


def world_of(
    comm: MPI.Comm,
    transport: str = "auto",
    node_size: int | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> World:
    """The world of a communicator; **collective over** ``comm`` the first time."""
    worlds: Any = comm.Get_attr(_KEY)
    if worlds is None:
        worlds = {}
        comm.Set_attr(_KEY, worlds)
    key = transport, node_size
    if key not in worlds:
        wait_for([comm.Ibarrier()], timeout_s)
        worlds[key] = World(comm, transport, node_size, timeout_s)
    return worlds[key]


def default_topology(world: World) -> Topology:
    """What to plan for where nothing was measured: a node is near, the network far.

    Within a node a message is a copy: it costs next to nothing beyond its bytes, but ranks wait for
    each other in every step. ``redist calibrate`` measures the real figures.
    """
    sizes = {world.groups.count(group) for group in world.groups}
    in_blocks = world.groups == tuple(r // max(sizes) * max(sizes) for r in range(world.size))
    network = Level("network", None, 2_000_000, 100_000)
    if world.one_node:
        return Topology((Level("node", None, 0, 100_000),), STEP_PS)
    if len(sizes) == 1 and in_blocks and max(sizes) > 1:
        return Topology((Level("node", max(sizes), 0, 100_000), network), STEP_PS)
    return Topology((network,), STEP_PS)


def _close(worlds: dict[tuple[str, int | None], World]) -> None:
    for world in worlds.values():
        world.close()


def comm_or_world(comm: Comm | None) -> Comm:
    """The communicator given, or the one of all ranks."""
    return MPI.COMM_WORLD if comm is None else comm
