"""Work that a stopwatch can repeat, and seconds of the slowest rank."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from redist.measure.timing import meet


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


def slowest_s(comm: MPI.Intracomm, work: Callable[[], Any]) -> float:
    """Seconds until the last rank is done, after all have met. **Collective over `comm`.**"""
    meet(comm)
    start = time.perf_counter()
    work()
    return float(comm.allreduce(time.perf_counter() - start, MPI.MAX))
