"""Which ranks share memory and cores with this one, whoever starts them and carries their messages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from redist.runtime.copies.kernels import Kernels


@dataclass(frozen=True, eq=False)
class Node:
    """The ranks that share memory with this one, itself included.

    ``groups`` has for every rank there is the first rank of its node; ``place`` says which of ``ranks``
    this one is; ``kernels`` are None on all ranks if one of them has none.

    >>> node = Node(2, (1, 2), (0, 1, 1), {}, None)
    >>> node.place, node.is_everyone
    (1, False)
    """

    rank: int
    ranks: tuple[int, ...]
    groups: tuple[int, ...]
    pids: dict[int, int]
    kernels: Kernels | None

    @cached_property
    def place(self) -> int:
        """Which of the ranks of the node this one is."""
        return self.ranks.index(self.rank)

    @cached_property
    def is_everyone(self) -> bool:
        """Whether all ranks share memory."""
        return len(self.ranks) == len(self.groups)


def own_cores() -> frozenset[int]:
    """**Local.** The cores on which this rank may run; none where the system does not tell."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def enough_cores(of_ranks: Sequence[frozenset[int]]) -> bool:
    """Whether there is a core for each of some ranks, given those on which each may run.

    >>> enough_cores([frozenset({0}), frozenset({1})]), enough_cores([frozenset({0, 1})] * 3)
    (True, False)
    """
    return len(frozenset().union(*of_ranks)) >= len(of_ranks)


class RankGroup(Protocol):
    """What a move needs of its ranks: those of MPI and those of PyTorch fill it."""

    @property
    def rank(self) -> int:
        """The number of this rank."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    @property
    def node(self) -> Node:
        """Who shares memory with this rank."""

    @property
    def one_node(self) -> bool:
        """Whether all ranks share memory."""

    def all_max(self, values: NDArray[np.int64]) -> None:
        """**Collective.** Replace numbers by the largest of any rank."""

    def gather_on_node(self, value: Any) -> list[Any]:
        """**Collective over the node.** The values of its ranks, in order."""

    def wait_on_node(self) -> None:
        """**Collective over the node.** Wait for its ranks, without the memory that they share."""
