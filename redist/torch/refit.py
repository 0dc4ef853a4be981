"""Bind the plan of a refit to tensors, over a process group of PyTorch. No MPI.

Between hosts messages of the group carry weights: of gloo through memory of the host, of NCCL from GPU to
GPU. On one host ranks share memory, whatever the backend is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from redist.errors import PeerError
from redist.runtime.copies.addresses import Addresses, array_at
from redist.runtime.cuda.arrays import on_stream
from redist.runtime.ranks.long_wait import TIMEOUT_S, check_timeout
from redist.runtime.refit.arrival import COPY
from redist.runtime.refit.bound import BoundRefit, Tiles
from redist.runtime.refit.mover import AUTO, PlanOfRuns
from redist.runtime.refit.near import GPU
from redist.runtime.refit.program import RefitRound
from redist.runtime.refit.said import Version
from redist.runtime.schedule.compiler import Message
from redist.torch.ranks import Ranks, Sent
from redist.torch.world import GroupWorld, world_of

LOOK_S = 0.02
"""So long a wait for a GPU only yields; after that it sleeps."""


def bind(
    plan: PlanOfRuns, send: Tiles | None = None, receive: Tiles | None = None, *, group: Any = None,
    transport: str = AUTO, commit: str = COPY, version: Version | None = None,
    guard: AbstractContextManager[Any] | None = None, timeout_s: float | None = TIMEOUT_S,
) -> BoundRefit:  # fmt: skip
    """**Collective over** ``group``. Bind a plan to the tensors of this rank.

    In a job of 8 ranks, of which 4 train and 4 serve::

        refit = plan.bind(send=state if rank < 4 else None,
                          receive=parameters if rank >= 4 else None, transport="torch")
        refit.send(version=1) if rank < 4 else refit.receive()

    ``send`` and ``receive`` are dicts of tensors by the names of stored tensors; for DTensors, their local
    tensors are used. Ranks of the plan are numbers in the group, which is all ranks by default.
    ``transport`` is ``"auto"``, ``"ipc"`` (ranks of one host write and read each other's memory, on GPUs by
    CUDA IPC) or ``"messages"`` of the group; auto is ipc where that works. The other arguments are those of
    :func:`redist.runtime.refit.bind.bind`. Tensors on GPUs need CuPy, whose kernels copy all blocks of a
    round in one launch.

    If a rank dies, the others raise an error and keep the weights that they had. With gloo they notice when
    its connection breaks, and within 0.1 s where ranks share memory. NCCL does not report a death: a wait
    ends after ``timeout_s``. This must be less than the timeout of the group, at which the group's watchdog
    ends the process. After a failure a group cannot be used for refits any more; make another one, and bind
    again with ``version=refit.version``.
    """
    check_timeout(timeout_s)
    ranks = TorchRanks(world_of(group, timeout_s), timeout_s)
    return BoundRefit(plan, ranks, send, receive, transport, commit, version, guard)


class TorchRanks:
    """The ranks of a group, as :class:`redist.runtime.refit.ranks.RefitRanks` has them."""

    def __init__(self, world: GroupWorld, timeout_s: float | None) -> None:
        self._world, self._timeout_s = world, timeout_s
        self._ranks, self._memory = world.ranks, world.memory
        self.rank, self.size = world.ranks.rank, world.ranks.size
        self.shares = self._memory is not None or self.size == 1
        self.sends_from_gpu = False
        self._voters: Ranks | None = None
        self._gave_up: str | None = None
        """Why these ranks cannot go on together, where they do not share memory."""

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        """**Local.** PyTorch's current stream is CuPy's, where both have a GPU."""
        if not torch.cuda.is_initialized():
            yield
            return
        with on_stream(torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream):
            yield

    @contextlib.contextmanager
    def operation(self) -> Iterator[None]:
        """Let an error inside end the work of all ranks, as far as they can hear of it."""
        self._world.wait_at_most(self._timeout_s)
        if self._memory is not None:
            self._memory.failure.raise_if_broken()
        elif self._gave_up is not None:
            raise PeerError(
                f"cannot use this process group any more: an earlier refit failed ({self._gave_up}); make "
                "another group and bind the plan again"
            )
        try:
            yield
        except BaseException as problem:
            self._gave_up = f"{type(problem).__name__}: {problem}"
            if self._memory is not None and self._memory.failure.broken is None:
                self._memory.failure.abort(problem)
            raise

    def gather(self, value: Any) -> list[Any]:
        """**Collective.** The values of all ranks; where they share memory a death is noticed at once."""
        self.meet()
        return self._ranks.gather(value)

    def meet(self) -> None:
        """**Collective.** Wait for all ranks, if they share memory."""
        if self._memory is not None:
            self._memory.meeting.meet_node()

    def choose_messages(self, memories: Collection[str]) -> str | None:
        """**Local.** By which backend messages go between tiles in such memories; why none can."""
        backends = str(dist.get_backend_config(self._ranks.group))
        self.sends_from_gpu = "nccl" in backends and set(memories) == {GPU}
        if self.sends_from_gpu or self._ranks.device == "cpu":
            return None
        return "NCCL sends no memory of the host; init_process_group('cpu:gloo,cuda:nccl') sends it, too"

    def choose_voters(self, ranks: Sequence[int]) -> None:
        """**Local.** Note who votes: by messages among themselves."""
        if self.rank in ranks:
            names = tuple(self._ranks.names[rank] for rank in ranks)
            self._voters = Ranks(self._ranks.group, self._timeout_s, names)

    def vote(self, value: Any) -> list[Any]:
        """**Collective over the voters.** What they say."""
        assert self._voters is not None, "only ranks with target tiles vote"
        return self._voters.gather(value)

    def carry(self, rounds: Sequence[RefitRound], table: Addresses, held: Any) -> None:
        """**Collective.** Carry out rounds by messages of the group."""
        try:
            for round_ in rounds:
                round_.pack.run(table)
                self._ranks.exchange(
                    [self._sent(one, table) for one in round_.sends],
                    [self._sent(one, table) for one in round_.receives],
                )
                round_.unpack.run(table)
        except BaseException:
            _ABANDONED.append(held)
            raise

    def _sent(self, message: Message, table: Addresses) -> Sent:
        """The bytes that a message takes or fills, as a tensor."""
        address = int(table[message.base]) + message.offset
        if not self.sends_from_gpu:
            memory = array_at(address, (message.n_bytes,), (1,), np.dtype(np.uint8))
            return message.peer, torch.from_numpy(memory)
        interface = {
            "data": (address, False), "shape": (message.n_bytes,), "typestr": "|u1", "version": 3,
        }  # fmt: skip
        there = SimpleNamespace(__cuda_array_interface__=interface)
        return message.peer, torch.as_tensor(there, device="cuda")

    def finish(self) -> None:
        """**Local.** Wait for the stream; messages of NCCL on it may wait for a rank that is gone."""
        event = torch.cuda.current_stream().record_event()
        start = time.monotonic()
        while not event.query():
            waited = time.monotonic() - start
            if self._timeout_s is not None and waited > self._timeout_s:
                raise PeerError(
                    f"the GPU did not come to the end of a refit within {self._timeout_s:g} s; another rank "
                    "may have ended"
                )
            time.sleep(0 if waited < LOOK_S else 1e-4)

    def close(self) -> None:
        """**Local.** There is nothing to free."""


_ABANDONED: list[Any] = []
"""What messages may still be written to, after a failure."""
