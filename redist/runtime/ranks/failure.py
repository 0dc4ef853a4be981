"""How the failure of one rank reaches the others: an abort, a death, or a wait that takes too long."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI

from redist.errors import PeerError, TransferError
from redist.runtime.ranks.control_page import STATUS, TEXT_AT, TEXT_BYTES, ControlPages
from redist.runtime.ranks.node import Node
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import wait_for, wait_until
from redist.runtime.shm.processes import is_alive


class Failure:
    """What this rank knows of failures, and how long it waits for others.

    ``timeout_s`` is that of the operation under way. A failure in the middle of one is for good:
    ranks may have stopped at different places, and only a new communicator gives them a common start.
    """

    def __init__(
        self, comm: MPI.Comm, node: Node, pages: ControlPages, timeout_s: float | None
    ) -> None:
        self.timeout_s = timeout_s
        self.broken: str | None = None
        """Why the communicator cannot be used any more, if so."""
        self._comm, self._node, self._pages = comm, node, pages
        self._told: list[MPI.Request] = []
        """Words under way to others: MPI reads them as long as they are not there."""

    def raise_if_broken(self) -> None:
        """**Local.** Raise if an earlier failure ended the use of the communicator."""
        if self.broken is not None:
            raise TransferError(
                f"cannot use this communicator any more: an earlier transfer failed "
                f"({self.broken}); go on with a new one, as from comm.Dup()"
            )

    def abort(self, error: BaseException) -> None:
        """**Local.** Tell every rank that this one has given up; nothing can be used after that.

        Other nodes are told what they cannot notice: an error of this rank, or a death on its node. That
        a rank is late or gone they notice themselves, and it must not be sent anything: MPICH
        crashes on a message to a process that is gone.
        """
        reason = f"{type(error).__name__}: {error}"
        self.broken = reason
        page = self._pages.own
        text = reason.encode()[: TEXT_BYTES - 1]
        page.memory[TEXT_AT : TEXT_AT + len(text)] = np.frombuffer(text, np.uint8)
        page.control[STATUS] = 1
        if isinstance(error, PeerError) and not self._gone():
            return
        for rank in range(self._comm.size):
            if rank not in self._node.ranks:
                with contextlib.suppress(MPI.Exception):
                    self._told.append(self._comm.isend(reason, rank, Tag.ABORT))

    def raise_if_aborted(self) -> None:
        """**Local.** Raise if a rank of this node has given up."""
        for rank, page in self._pages.by_rank.items():
            if int(page.control[STATUS]):
                raise PeerError(f"rank {rank} failed: {page.text}")

    def raise_if_message(self) -> None:
        """**Local.** Let MPI go on with what is under way; raise if another node has given up."""
        status = MPI.Status()
        if self._comm.Iprobe(MPI.ANY_SOURCE, Tag.ABORT, status):
            text = self._comm.recv(source=status.source, tag=Tag.ABORT)
            raise PeerError(f"rank {status.source} failed: {text}")

    def raise_if_dead(self) -> None:
        """**Local.** Raise if the process of a rank of this node is gone."""
        for rank, pid in self._gone().items():
            raise PeerError(f"rank {rank} died (process {pid} is gone)")

    def _gone(self) -> dict[int, int]:
        """The ranks of this node whose processes are gone, and these."""
        others = {r: pid for r, pid in self._node.pids.items() if r != self._node.rank}
        return {rank: pid for rank, pid in others.items() if not is_alive(pid)}

    def raise_if_any(self) -> None:
        """**Local.** Raise if any other rank is known to have failed."""
        self.raise_if_aborted()
        self.raise_if_message()
        self.raise_if_dead()

    def raise_late(self, ranks: list[int]) -> NoReturn:
        """**Local.** Raise because these ranks have not come in time."""
        names = ", ".join(map(str, ranks))
        who = f"rank {names}" if len(ranks) == 1 else f"ranks {names}"
        raise PeerError(f"{who} did not come within {self.timeout_s:g} s")

    def wait(self, requests: list[Any]) -> None:
        """Wait for requests of MPI; raise if a rank fails meanwhile, or if it takes too long."""
        wait_for(requests, self.timeout_s, self.raise_if_any)

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """The same until something is done that calls MPI itself."""
        wait_until(is_done, self.timeout_s, self.raise_if_any)
