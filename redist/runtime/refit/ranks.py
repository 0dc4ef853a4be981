"""What a refit needs of its ranks: those of MPI fill it, and those of a process group of PyTorch. No MPI."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from redist.runtime.copies.addresses import Addresses
from redist.runtime.refit.program import RefitRound


class RefitRanks(Protocol):
    """Ranks that bound a plan together. Methods that speak are **collective**."""

    @property
    def rank(self) -> int:
        """The number of this rank, as the plan has it."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    @property
    def shares(self) -> bool:
        """Whether all ranks can map each other's memory."""

    @property
    def sends_from_gpu(self) -> bool:
        """Whether messages go out of the memory of GPUs, and into it, since :meth:`choose_messages`."""

    def on_stream(self) -> AbstractContextManager[Any]:
        """**Local.** While inside, the caller's stream of the GPU is CuPy's current one."""

    def operation(self) -> AbstractContextManager[None]:
        """An operation of all ranks: an error inside reaches the others as an error of theirs."""

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in order."""

    def meet(self) -> None:
        """Wait for all ranks, which share memory: what they wrote before is visible after."""

    def choose_messages(self, memories: Collection[str]) -> str | None:
        """**Local.** Choose how messages go between tiles in such memories; why they cannot."""

    def choose_voters(self, ranks: Sequence[int]) -> None:
        """Let these ranks vote: they wait for no other, and hear of no failure of another."""

    def vote(self, value: Any) -> list[Any]:
        """**Collective over the voters.** What they say, in order."""

    def carry(self, rounds: Sequence[RefitRound], table: Addresses, held: Any) -> None:
        """Carry out rounds by messages; ``held`` is kept for good if a failure leaves some behind."""

    def finish(self) -> None:
        """**Local.** Wait for the stream of the GPU, not longer than for another rank."""

    def close(self) -> None:
        """Free what was made for the refit."""
