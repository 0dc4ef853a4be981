"""Bind the plan of a refit to tiles, over a communicator of MPI."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

from mpi4py import MPI

from redist.runtime.copies.addresses import Addresses
from redist.runtime.host.messages import MessageRounds
from redist.runtime.ranks.long_wait import check_timeout
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm, World, comm_or_world, world_of
from redist.runtime.refit.arrival import COPY
from redist.runtime.refit.bound import BoundRefit, Tiles
from redist.runtime.refit.mover import AUTO, PlanOfRuns
from redist.runtime.refit.program import RefitRound
from redist.runtime.refit.said import Version
from redist.runtime.shm.segments import can_share


def bind(
    plan: PlanOfRuns,
    send: Tiles | None = None,
    receive: Tiles | None = None,
    *,
    comm: Comm | None = None,
    transport: str = AUTO,
    commit: str = COPY,
    version: Version | None = None,
    guard: AbstractContextManager[Any] | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> BoundRefit:
    """**Collective over** ``comm``. Bind a plan to the tiles of this rank.

    >>> import numpy as np, redist
    >>> side = redist.Weights({"w": "f32[4]"}, redist.Mesh())
    >>> trained, served = np.arange(4, dtype="f4"), np.zeros(4, "f4")
    >>> with bind(redist.refit(side, side), {"w": trained}, {"w": served}) as refit:
    ...     refit.send(version=1), served.tolist()
    (1, [0.0, 1.0, 2.0, 3.0])

    ``send`` and ``receive`` are dicts of arrays by the names of stored tensors, of NumPy, CuPy or PyTorch:
    every tensor that the plan puts on this rank, contiguous, in memory or on one GPU. A rank that
    does not send or receive leaves them out. Ranks of the plan are numbers in ``comm``.

    ``transport`` is ``"auto"``, ``"ipc"`` (ranks of one node write and read each other's memory; on GPUs by
    CUDA IPC) or ``"messages"`` of MPI; auto is the first where it works. ``commit`` says how new weights
    come to serve, see :class:`BoundRefit`; tiles of both sides may share memory, but not in place.
    ``version`` is that of the target tiles as they are now, and of the source tiles; without, the first
    refit sends all. ``guard`` is entered while weights are exchanged for new ones: a lock that whoever
    computes with them holds, too. No wait for another rank takes longer than ``timeout_s``.
    """
    check_timeout(timeout_s)
    comm = comm_or_world(comm)
    world = world_of(comm, timeout_s=timeout_s)
    ranks = MpiRanks(world, timeout_s)
    return BoundRefit(plan, ranks, send, receive, transport, commit, version, guard)


class MpiRanks:
    """The ranks of a communicator, as :class:`redist.runtime.refit.ranks.RefitRanks` has them."""

    sends_from_gpu = False

    def __init__(self, world: World, timeout_s: float | None) -> None:
        self._world, self._timeout_s = world, timeout_s
        self.rank, self.size = world.rank, world.size
        self.shares = world.one_node and can_share()
        self._voters: MPI.Comm | None = None

    def on_stream(self) -> AbstractContextManager[None]:
        """**Local.** CuPy's current stream is the caller's."""
        return contextlib.nullcontext()

    def operation(self) -> AbstractContextManager[None]:
        """**Collective.** See :meth:`World.operation`."""
        return self._world.operation(self._timeout_s)

    def gather(self, value: Any) -> list[Any]:
        """**Collective.** The values of all ranks."""
        return self._world.gather(value)

    def meet(self) -> None:
        """**Collective.** Wait for all ranks."""
        self._world.meet_node()

    def choose_messages(self, memories: Collection[str]) -> str | None:
        """**Local.** Messages go through memory of the host, pinned if a GPU writes it."""
        return None

    def choose_voters(self, ranks: Sequence[int]) -> None:
        """**Collective.** Give these ranks a communicator of their own."""
        colour = 0 if self.rank in ranks else MPI.UNDEFINED
        found = self._world.comm.Split(colour, self.rank)
        self._voters = None if found == MPI.COMM_NULL else found

    def vote(self, value: Any) -> list[Any]:
        """**Collective over the voters.** What they say."""
        assert self._voters is not None, "only ranks with target tiles vote"
        return gather(self._voters, value, self._timeout_s)

    def carry(self, rounds: Sequence[RefitRound], table: Addresses, held: Any) -> None:
        """**Collective.** Carry out rounds by messages of MPI."""
        with MessageRounds(self._world, held) as messages:
            for round_ in rounds:
                messages.post(round_.number, round_, table)
                messages.wait(round_.number)
                round_.unpack.run(table)

    def finish(self) -> None:
        """**Local.** Wait for the GPU: nothing on its stream waits for another rank."""
        from redist.runtime.cuda.arrays import current_stream

        current_stream().synchronize()

    def close(self) -> None:
        """**Collective over the voters.** Free their communicator."""
        if self._voters is not None:
            self._voters.Free()
            self._voters = None
