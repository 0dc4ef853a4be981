"""How the end of one rank reaches all ranks of a communicator of MPI, and waits for what MPI does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from redist.runtime.ranks.control_page import ControlPages
from redist.runtime.ranks.failure import Failure, failed
from redist.runtime.ranks.node import Node
from redist.runtime.ranks.signs import raise_if_forked
from redist.runtime.ranks.tokens import Tag
from redist.runtime.ranks.waiting import may_call_mpi, wait_for, wait_until


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
            f"({self.broken}); go on with a new one, as from comm.Dup()"
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

    # Waiting

    def wait(self, requests: list[Any]) -> None:
        """Wait for a collective of MPI; raise if a rank fails meanwhile, or if it takes too long."""
        self.count_wait()
        wait_for(requests, self.timeout_s, self)

    def wait_for_messages(self, requests: list[Any]) -> None:
        """The same for messages, of which ranks may have different numbers."""
        wait_for(requests, self.timeout_s, self)

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """The same until something is done that calls MPI itself."""
        wait_until(is_done, self.timeout_s, self)
