"""Carry packed bytes by NCCL, between GPUs of which every rank has its own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from threading import Thread
from typing import Any

import numpy as np

from redist.errors import PeerError, TransferError
from redist.runtime.copies.addresses import Addresses
from redist.runtime.copies.kernels import ALL_SAME, NOT_YET
from redist.runtime.cuda.kernels.rounds import CudaRound
from redist.runtime.cuda.transports.all_gather import agree, claim_of
from redist.runtime.cuda.transports.carriers import StagingLease, pack
from redist.runtime.ranks.waiting import broadcast
from redist.runtime.ranks.world import World
from redist.runtime.schedule.compiler import Message
from redist.runtime.schedule.stages import StagePart

UINT8 = 1
"""NCCL's number of the type."""
LOOK_S = 2e-5
JOIN_S = 120.0
"""Longer than this nobody waits for a communicator of NCCL."""
MOST_GROUPS = 8
"""Each communicator takes memory of the GPU: beyond this many, all-gathers go as messages."""


def nccl_version() -> tuple[int, ...]:
    """**Local.** The version of NCCL that CuPy finds; an error if there is none.

    As in ``nccl_version() == (2, 27, 5)``.
    """
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        raise TransferError(f"cannot use NCCL: {error}") from None
    if not nccl.available:
        raise TransferError("cannot use NCCL: CuPy does not find it; install nvidia-nccl-cu13")
    number = int(nccl.get_version())
    return number // 10000, number // 100 % 100, number % 100


def join(world: World) -> ByNccl:
    """**Collective.** Make a carrier over a new communicator of all ranks, still to be tried out.

    All ranks must have found NCCL and a GPU of their own before.
    """
    import cupy
    from cupy.cuda import nccl

    number = broadcast(
        world.comm, nccl.get_unique_id() if world.rank == 0 else None, world.failure.timeout_s
    )
    communicator = communicator_of(world.size, number, world.rank, world.failure.timeout_s)
    return ByNccl(world, communicator, nccl, cupy.cuda.Stream(non_blocking=True))


def communicator_of(size: int, number: Any, place: int, timeout_s: float | None) -> Any:
    """**Collective over its ranks.** A communicator of NCCL, or an error.

    ``number`` is the unique one that all of them were told, ``place`` that of this rank.
    """
    import cupy
    from cupy.cuda import nccl

    made: list[Any] = []
    device = cupy.cuda.Device().id

    def make() -> None:
        try:
            with cupy.cuda.Device(device):
                made.append(nccl.NcclCommunicator(size, number, place))
        except Exception as error:
            made.append(error)

    most_s = JOIN_S if timeout_s is None else min(JOIN_S, timeout_s / 2)
    thread = Thread(target=make, daemon=True)  # if a rank fails the others may never return
    thread.start()
    thread.join(most_s)
    if not made:
        raise TransferError(f"cannot join ranks by NCCL: not done within {most_s:g} s")
    if isinstance(made[0], Exception):
        raise TransferError(f"cannot join ranks by NCCL: {made[0]}")
    return made[0]


class ByNccl:
    """Grouped sends and receives of NCCL, and its all-gather, out of memory of the GPU, on a stream.

    ``api`` has groupStart and groupEnd, ``communicator`` send, recv, allGather and abort, as in
    cupy.cuda.nccl. Partial values are combined here, not by NCCL: all transports give the same bits.
    """

    name = "NCCL"

    def __init__(self, world: World, communicator: Any, api: Any, side: Any) -> None:
        self.world, self.communicator, self.api, self.side = world, communicator, api, side
        self.groups: dict[tuple[int, ...], Any] = {tuple(range(world.size)): communicator}
        """Communicators of groups of ranks; None where these could not be join_ranks."""

    def lease(self) -> StagingLease:
        """**Local.** From the pool."""
        return StagingLease(on_device=True)

    def all_gather(self, parts: Sequence[StagePart]) -> tuple[int, ...]:
        """**Collective.** The ranks among which messages of a stage are one all-gather; else none.

        The first time for a group, its ranks get a communicator of their own.
        """
        world = self.world
        claim = claim_of(parts, world.rank, world.node.ranks)
        is_new = claim is not None and claim.ranks not in self.groups
        if is_new and len(self.groups) >= MOST_GROUPS:
            claim, is_new = None, False
        ranks, is_any_new = agree(world, claim, is_new)
        if is_any_new:
            self._join(ranks if is_new else ())
        return ranks if self.groups.get(ranks) is not None else ()

    def _join(self, ranks: tuple[int, ...]) -> None:
        """**Collective.** Join this rank and others of a new group, if it has one."""
        rank = self.world.rank
        number: Any = None
        made: Any = None
        problem = ""
        try:
            number = self.api.get_unique_id() if ranks and rank == ranks[0] else None
        except Exception as error:
            problem = str(error)
        numbers = self.world.gather(number)
        if ranks and numbers[ranks[0]] is not None:
            try:
                number, place = numbers[ranks[0]], ranks.index(rank)
                made = communicator_of(len(ranks), number, place, self.world.failure.timeout_s)
            except TransferError as error:
                problem = str(error)
        problems = self.world.gather(problem)
        if ranks:
            if made is not None and any(problems[one] for one in ranks):
                made.abort()
                made = None
            self.groups[ranks] = made

    def carry(
        self,
        rounds: Sequence[CudaRound],
        lease: StagingLease,
        tables: Sequence[Addresses],
        stream: Any,
        held: Any,
    ) -> None:
        """**Collective.** Rounds follow each other on the GPU; the host waits once, at the end.

        It does so to hear of ranks that fail: their messages would keep this GPU waiting for ever.
        """
        n = len(tables)
        try:
            packed = pack(0, rounds, tables, stream)
            for k, round_ in enumerate(rounds):
                table = tables[k % n]
                self.side.wait_event(packed)
                self._pass(round_, table)
                arrived = self.side.record()
                if n > 1:
                    packed = pack(k + 1, rounds, tables, stream)  # while messages are under way
                round_.fetch(table, stream)
                stream.wait_event(arrived)
                round_.take_apart(table, stream)
                if n == 1:
                    packed = pack(k + 1, rounds, tables, stream)
            lease.pool.mark(stream)
            self._wait(stream.record(), self.world.failure.timeout_s)
        except BaseException:
            for communicator in self.groups.values():
                if communicator is not None:
                    communicator.abort()
            raise

    def _pass(self, round_: CudaRound, table: Addresses) -> None:
        """Put the messages of a round onto the side stream, or its all-gather, in place."""
        if round_.gathered is None:
            self._exchange(round_.sends, round_.receives, table)
            return
        ranks, n_bytes = round_.gathered.ranks, round_.gathered.n_bytes
        start = int(table[round_.gathered.base])
        own = start + ranks.index(self.world.rank) * n_bytes
        self.groups[ranks].allGather(own, start, n_bytes, UINT8, self.side.ptr)

    def _exchange(
        self, sends: Iterable[Message], receives: Iterable[Message], table: Addresses
    ) -> None:
        self.api.groupStart()
        try:
            both = (self.communicator.recv, receives), (self.communicator.send, sends)
            for start, messages in both:
                for m in messages:
                    address = int(table[m.base]) + m.offset
                    start(address, m.n_bytes, UINT8, m.peer, self.side.ptr)
        finally:
            self.api.groupEnd()

    def _wait(self, event: Any, timeout_s: float | None) -> None:
        start = time.monotonic()

        def look() -> int:
            if event.done:
                return ALL_SAME
            if timeout_s is not None and time.monotonic() - start > timeout_s:
                raise PeerError(f"messages of NCCL did not arrive within {timeout_s:g} s")
            time.sleep(LOOK_S)
            return NOT_YET

        self.world.meeting.wait_until(look)

    def try_out(self) -> None:
        """**Collective.** Pass a number round a ring of all ranks; an error unless it arrives."""
        import cupy

        world = self.world
        both = cupy.asarray(np.array([world.rank + 1, 0], np.int64))
        cupy.cuda.get_current_stream().synchronize()
        table = np.array([int(both.data.ptr)], np.uintp)
        before, after = (world.rank - 1) % world.size, (world.rank + 1) % world.size
        self._exchange([Message(after, 0, 0, 8)], [Message(before, 0, 8, 8)], table)
        timeout_s = world.failure.timeout_s
        self._wait(self.side.record(), JOIN_S if timeout_s is None else timeout_s / 2)
        if int(both[1]) != before + 1:
            raise TransferError("cannot use NCCL: a number did not arrive as it was sent")
