"""Seconds of work, here or of the slowest rank, of ways in turn; and work that a stopwatch can repeat."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Work = Callable[[], Any]
K = TypeVar("K")


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


def timed(work: Work) -> tuple[float, Any]:
    """**Local.** Seconds that some work took, and what it made."""
    start = time.perf_counter()
    made = work()
    return time.perf_counter() - start, made


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
