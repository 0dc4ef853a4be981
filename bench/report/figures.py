"""Many figures as one; seconds of work, here or of the slowest rank, of ways in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np


def geomean(values: Iterable[float]) -> float | None:
    """The geometric mean; None of nothing.

    >>> geomean([1.0, 4.0]), geomean([])
    (2.0, None)
    """
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def most(values: Iterable[float]) -> float | None:
    """The largest; None of nothing."""
    return max(values, default=None)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that this share of all does not exceed; None of nothing.

    >>> quantile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    return float(np.quantile(values, share)) if values else None


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Quartiles and the median between them.

    >>> quartiles([3.0, 1.0, 2.0])
    (1.5, 2.0, 2.5)
    """
    low, middle, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
    return low, middle, high


def met(good: bool) -> str:
    """How an aim is reported.

    >>> met(True), met(False)
    ('met', 'MISSED')
    """
    return "met" if good else "MISSED"


Work = Callable[[], Any]
K = TypeVar("K")
T = TypeVar("T")


def repeated(work: Callable[..., Any], *args: Any) -> Callable[[int], None]:
    """Do something so many times.

    >>> repeated(print, "again")(2)
    again
    again
    """

    def act(times: int) -> None:
        for _ in range(times):
            work(*args)

    return act


def timed(work: Callable[[], T], clock: Callable[[], float] = time.perf_counter) -> tuple[float, T]:
    """**Local.** Seconds that some work took, by some clock, and what it made."""
    start = clock()
    made = work()
    return clock() - start, made


def slowest_s(comm: Any, work: Work) -> float:
    """Seconds until the last rank is done, after all have met. **Collective over `comm`.**"""
    from mpi4py import MPI

    from redist.measure.timing import meet

    meet(comm)
    return float(comm.allreduce(timed(work)[0], MPI.MAX))


def in_turn(
    ways: Mapping[K, Work], repeat: int, seconds_of: Callable[[Work], float]
) -> dict[K, list[float]]:
    """Seconds of every way, so many turns of all: what disturbs one turn disturbs all ways.

    >>> in_turn({"short": lambda: 1.0, "long": lambda: 2.0}, 2, lambda work: work())
    {'short': [1.0, 1.0], 'long': [2.0, 2.0]}
    """
    turns = [{name: seconds_of(way) for name, way in ways.items()} for _ in range(repeat)]
    return {name: [turn[name] for turn in turns] for name in ways}
