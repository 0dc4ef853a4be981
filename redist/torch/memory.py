"""The ranks of a group that are on one host: memory that they share, and meetings in it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.runtime.copies.kernels import kernels
from redist.runtime.ranks.control_page import ControlPages
from redist.runtime.ranks.failure import Failure
from redist.runtime.ranks.meeting import Meeting, Met
from redist.runtime.ranks.node import Node
from redist.runtime.shm.segments import can_share
from redist.torch.ranks import Ranks


class GroupFailure(Failure):
    """What this rank knows of failures on its host."""

    def why_broken(self) -> str:
        """**Local.** What users are told who go on after a failure."""
        return (
            f"cannot use this process group any more: an earlier move failed ({self.broken}); restart the "
            "program, or call destroy_process_group() and init_process_group() on every rank and make "
            "meshes and DTensors anew"
        )


class SharedMemory:
    """Ranks that are all on one host, as :class:`redist.runtime.ranks.node.RankGroup` has them.

    Making one is **collective**; :meth:`join` finds out if it can be.
    """

    one_node = True

    def __init__(self, ranks: Ranks, pids: Sequence[int]) -> None:
        self.ranks, self.rank, self.size = ranks, ranks.rank, ranks.size
        everyone = tuple(range(self.size))
        self.node = Node(self.rank, everyone, (0,) * self.size, dict(enumerate(pids)), kernels())
        self.pages = ControlPages(self.node)
        self.failure = GroupFailure(self.node, self.pages, ranks.timeout_s, self.size, ranks.names)
        self.meeting = Meeting(self, self.node, self.pages, self.failure)

    @staticmethod
    def join(ranks: Ranks) -> SharedMemory | None:
        """**Collective.** The memory that all ranks share; None if one of them cannot map the others'."""
        able = can_share() and kernels() is not None and ranks.size > 1
        told = ranks.gather((able, socket.gethostname(), os.getpid()))
        if not all(able for able, *_ in told) or len({host for _, host, _ in told}) > 1:
            return None
        memory = SharedMemory(ranks, [pid for *_, pid in told])
        try:
            memory.pages.map(memory)
        except TransferError:  # on all of them
            return None
        return memory

    def all_max(self, values: NDArray[np.int64]) -> None:
        """**Collective.** Replace numbers by the largest of any rank."""
        self.ranks.all_max(values)

    def gather_on_node(self, value: Any) -> list[Any]:
        """**Collective.** The values of all ranks, in order."""
        return self.ranks.gather(value)

    def wait_on_node(self) -> None:
        """**Collective.** Wait for all ranks, by the process group."""
        self.ranks.barrier()

    def reserve(self, pool_bytes: int) -> None:
        """**Collective.** Make pools of at least this size."""
        if self.pages.reserve(0, pool_bytes, self):
            self.meeting.seq = 0

    def use(self, slot_bytes: int) -> None:
        """**Local.** Give back what earlier moves touched of this rank's pool beyond slots of this size.

        All ranks must have met since: then nobody reads there any more.
        """
        self.pages.trim(slot_bytes)
        self.pages.touched_bytes = slot_bytes

    def meet(self, token: int) -> bool:
        """**Collective.** Wait for every rank; whether all came with this token."""
        self.failure.raise_if_broken()
        try:
            return self.meeting.meet(token) is Met.SAME
        except BaseException as problem:
            self.failure.abort(problem)
            raise
