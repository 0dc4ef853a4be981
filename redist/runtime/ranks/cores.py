"""On which cores ranks run."""

from __future__ import annotations

import os
from collections.abc import Sequence


def own_cores() -> frozenset[int]:
    """**Local.** The cores on which this rank may run; none where the system does not tell."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def enough_cores(of_ranks: Sequence[frozenset[int]]) -> bool:
    """Whether there is a core for each of some ranks, given those on which each may run.

    >>> enough_cores([frozenset({0}), frozenset({1})]), enough_cores([frozenset({0, 1})] * 3)
    (True, False)
    """
    return len(frozenset().union(*of_ranks)) >= len(of_ranks)
