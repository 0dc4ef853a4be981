"""The ranks of a process group: who they are, and what they tell each other."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from redist.errors import PeerError, RequestError
from redist.runtime.ranks.long_wait import TIMEOUT_S

_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""Its name from PyTorch 2.13 on, and before."""
Ints = NDArray[np.int64]
Sent = tuple[int, torch.Tensor]
"""The number of a rank in the group, and the bytes that go there or come from there."""


class Ranks:
    """Some ranks of a group, by default all; methods that speak are **collective over** these.

    ``names`` has their numbers in the whole job; ``rank`` is the number of this one among them. If they
    are not all of the group they speak by messages alone: no group has to be made for them.
    """

    def __init__(
        self, group: Any, timeout_s: float | None = TIMEOUT_S, names: tuple[int, ...] | None = None
    ) -> None:
        everyone = tuple(dist.get_process_group_ranks(group))
        self.group, self.names = group, everyone if names is None else names
        if dist.get_rank() not in self.names:
            raise RequestError(
                f"cannot move between ranks {list(self.names)} from rank {dist.get_rank()}: it is none of "
                "them; call it on these only"
            )
        self.rank, self.size = self.names.index(dist.get_rank()), len(self.names)
        self.are_all = self.names == everyone
        self.timeout_s = timeout_s
        backends = str(dist.get_backend_config(group))
        self._device = "cpu" if "gloo" in backends or "mpi" in backends else "cuda"
        self._by_host = "nccl" not in backends

    @property
    def device(self) -> str:
        """The kind of device whose tensors the group can pass on by itself: small values go so."""
        return self._device

    def tell(self, values: Ints) -> Ints:
        """The numbers of all ranks, a row each; every rank gives as many."""
        mine = torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(self._device)
        out = torch.empty(self.size * mine.numel(), dtype=torch.int64, device=self._device)
        self._gather(out, mine.reshape(-1))
        return np.asarray(out.cpu().numpy().reshape(self.size, -1))

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in order."""
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = self.tell(np.array([len(data)]))[:, 0].tolist()
        room = torch.zeros(max(sizes), dtype=torch.uint8, device=self._device)
        room[: len(data)] = torch.from_numpy(data.copy())
        out = torch.empty(self.size * max(sizes), dtype=torch.uint8, device=self._device)
        self._gather(out, room)
        rows = out.cpu().numpy().reshape(self.size, -1)
        return [pickle.loads(row[:n].tobytes()) for row, n in zip(rows, sizes, strict=True)]

    def all_max(self, values: Ints) -> Ints:
        """The largest of any rank, number by number."""
        return np.asarray(self.tell(values).max(axis=0)).reshape(values.shape)

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
        self._wait(lambda: [_GATHER(out, mine, group=self.group, async_op=True)])

    def _wait(self, start: Callable[[], list[Any]]) -> None:
        """Start work and wait until it is done; an error of the backend names what it may mean."""
        try:
            for work in start():
                if self.timeout_s is None or self._device != "cpu":
                    work.wait()  # NCCL has its own watch over the clock
                else:
                    work.wait(timedelta(seconds=self.timeout_s))
        except (RuntimeError, ValueError) as error:
            raise PeerError(
                f"another rank of {list(self.names)} failed, died or did not come within "
                f"{self.timeout_s} s: {error}"
            ) from error
