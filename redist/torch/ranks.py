"""The ranks of a process group: who they are, and what they tell each other.

Those of one host share memory, and meet in it.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from redist.errors import PeerError, RequestError, TransferError
from redist.runtime.copies.kernels import kernels
from redist.runtime.ranks.control_page import ControlPages
from redist.runtime.ranks.failure import Failure
from redist.runtime.ranks.long_wait import TIMEOUT_S, LongWait
from redist.runtime.ranks.meeting import Meeting, Met
from redist.runtime.ranks.node import Node
from redist.runtime.shm.segments import can_share
from redist.text.units import ranks_in_words

_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""Its name from PyTorch 2.13 on, and before."""
SLICE = timedelta(seconds=0.05)
"""Waits for a collective look up so often."""
CLOSED = ("closed by peer", "reset by peer", "Broken pipe", "Connection refused")
"""What gloo says if a process has ended."""
Ints = NDArray[np.int64]
Sent = tuple[int, torch.Tensor]
"""The number of a rank in the group, and the bytes that go there or come from there."""


class Ranks:
    """Some ranks of a group, by default all; methods that speak are **collective over** these.

    ``names`` has their numbers in the whole job; ``rank`` is the number of this one among them. If they
    are not all of the group they speak by messages alone: no group has to be made for them. As
    :class:`redist.runtime.ranks.node.RankGroup` each of them is alone on a node; they do not tell each
    other in which call they wait.
    """

    def __init__(
        self, group: Any, timeout_s: float | None = TIMEOUT_S, names: tuple[int, ...] | None = None
    ) -> None:
        everyone = tuple(dist.get_process_group_ranks(group))
        self.group, self.names = group, everyone if names is None else names
        own = everyone[group.rank()]
        if own not in self.names:
            raise RequestError(
                f"cannot move between ranks {list(self.names)} from rank {own}: it is none of "
                "them; call it on these only"
            )
        self.rank, self.size = self.names.index(own), len(self.names)
        self.node = Node(self.rank, (self.rank,), tuple(range(self.size)), {}, None)
        self.one_node = self.size == 1
        self.are_all = self.names == everyone
        self.timeout_s = timeout_s
        backends = str(dist.get_backend_config(group))
        self.device = "cpu" if "gloo" in backends or "mpi" in backends else "cuda"
        """The kind of device whose tensors the group can pass on by itself: small values go so."""
        self._by_host = "nccl" not in backends

    def tell(self, values: Ints) -> Ints:
        """The numbers of all ranks, a row each; every rank gives as many."""
        mine = torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(self.device)
        out = torch.empty(self.size * mine.numel(), dtype=torch.int64, device=self.device)
        self._gather(out, mine.reshape(-1))
        return np.asarray(out.cpu().numpy().reshape(self.size, -1))

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in order."""
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = self.tell(np.array([len(data)]))[:, 0].tolist()
        room = torch.zeros(max(sizes), dtype=torch.uint8, device=self.device)
        room[: len(data)] = torch.from_numpy(data.copy())
        out = torch.empty(self.size * max(sizes), dtype=torch.uint8, device=self.device)
        self._gather(out, room)
        rows = out.cpu().numpy().reshape(self.size, -1)
        return [pickle.loads(row[:n].tobytes()) for row, n in zip(rows, sizes, strict=True)]

    def all_max(self, values: Ints) -> None:
        """Replace numbers by the largest of any rank."""
        values[...] = self.tell(values).max(axis=0).reshape(values.shape)

    def gather_on_node(self, value: Any) -> list[Any]:
        """**Local.** The value of this rank, which is alone."""
        return [value]

    def wait_on_node(self) -> None:
        """**Local.** There is nobody to wait for."""

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.tell(np.zeros(1, dtype=np.int64))

    def exchange(self, sends: Sequence[Sent], receives: Sequence[Sent]) -> None:
        """Send bytes to some ranks and receive some from others, all at once.

        Local if this rank has no message. Between two ranks messages keep their order. What lies on
        a GPU goes by way of the host's memory if the group knows no other.
        """
        got = [(rank, self._room(t)) for rank, t in receives]
        ops = [dist.P2POp(dist.irecv, t, self.names[rank], self.group) for rank, t in got]
        ops += [
            dist.P2POp(dist.isend, t.cpu() if self._by_host else t, self.names[rank], self.group)
            for rank, t in sends
        ]
        if ops:
            self._wait(lambda: dist.batch_isend_irecv(ops))
        for (_, there), (_, here) in zip(receives, got, strict=True):
            if here is not there:
                there.copy_(here)

    def _room(self, tensor: torch.Tensor) -> torch.Tensor:
        """Where to receive what a tensor is to hold: itself, or as much of the host's memory."""
        if tensor.device.type == "cpu" or not self._by_host:
            return tensor
        return torch.empty_like(tensor, device="cpu")

    def _gather(self, out: torch.Tensor, mine: torch.Tensor) -> None:
        """Put what every rank has behind each other: by a collective, or by way of the first rank."""
        rows, others = out.view(self.size, -1), range(1, self.size)
        if not self.are_all:
            rows[self.rank] = mine
            if self.rank == 0:
                self.exchange([], [(rank, rows[rank]) for rank in others])
                self.exchange([(rank, out) for rank in others], [])
            else:
                self.exchange([(0, mine)], [])
                self.exchange([], [(0, out)])
            return
        self._wait(lambda: [_GATHER(out, mine, group=self.group, async_op=True)], can_look=True)

    def say_waiting(self, call: str | None) -> None:
        """**Local.** Nobody is told."""

    def raise_if_apart(self) -> None:
        """**Local.** Nobody knows."""

    def all_wait_here(self) -> bool:
        """**Local.** Nobody knows."""
        return False

    def absent(self) -> tuple[list[int], list[int], int]:
        """**Local.** This rank waits; a collective does not tell who is missing."""
        return [self.names[self.rank]], [], self.size

    def _wait(self, start: Callable[[], list[Any]], can_look: bool = False) -> None:
        """Start work and wait until it is done; an error of the backend names what it may mean.

        A wait that can look says so when it takes long. Messages of gloo cannot: a wait for one that is
        given up breaks it.
        """
        begin = time.monotonic()
        try:
            for work in start():
                if self.device != "cpu":
                    work.wait()  # NCCL has its own watch over the clock
                elif can_look:
                    self._wait_and_look(work, begin)
                elif self.timeout_s is None:
                    work.wait()
                else:
                    work.wait(timedelta(seconds=self.timeout_s))
        except (RuntimeError, ValueError) as error:
            if isinstance(error, PeerError):
                raise
            raise PeerError(self._why(str(error), time.monotonic() - begin)) from error

    def _wait_and_look(self, work: Any, begin: float) -> None:
        long: LongWait | None = None
        while True:
            try:
                work.wait(SLICE)
                return
            except RuntimeError:
                if work.is_completed():
                    work.wait()  # it failed, or it ended well just after the slice
                    return
            long = long or LongWait(begin, self.timeout_s, self)
            long.look(time.monotonic())

    def _why(self, error: str, waited: float) -> str:
        others = ranks_in_words([name for name in self.names if name != self.names[self.rank]], 0)
        if any(words in error for words in CLOSED):
            return (
                f"cannot go on moving: one of {others} closed its connection, {waited:.1f} s after this rank "
                f"began to wait; it has probably ended: look for its traceback\n{error}"
            )
        return f"cannot go on moving: no word from one of {others} after {waited:.1f} s\n{error}"


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
