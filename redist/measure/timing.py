"""Time what all ranks do together: quiet waits, a common start, contenders in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

POLL_S = 1e-4
LEAD_S = 2e-3
"""From the moment when all ranks are there to the common start."""
BATCH_S = 1e-2
"""Quicker work is done several times in a row, until it takes about so long."""
MOST_TIMES = 200


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of every repetition, all ranks together.

    >>> t = Times.of([3.0, 1.0, 2.0, 5.0, 4.0])
    >>> t.median_s, t.low_s, t.high_s, t.least_s, t.n
    (3.0, 2.0, 4.0, 1.0, 5)
    """

    n: int
    least_s: float
    low_s: float
    median_s: float
    high_s: float
    most_s: float

    @staticmethod
    def of(seconds: Sequence[float]) -> Times:
        """Least, quartiles and most."""
        return Times(
            len(seconds), *(float(q) for q in np.quantile(seconds, (0, 0.25, 0.5, 0.75, 1)))
        )


def wait(request: MPI.Request) -> None:
    """Wait without burning the processor: somebody else may be at work on it. **Local.**"""
    while not request.Test():
        time.sleep(POLL_S)


def meet(comm: MPI.Intracomm) -> None:
    """A barrier that burns no processor. **Collective over `comm`.**"""
    wait(comm.Ibarrier())


def all_agree(comm: MPI.Intracomm, good: bool) -> bool:
    """Whether it is good on all ranks. **Collective over `comm`.**"""
    answer = np.array([good], np.int32)
    wait(comm.Iallreduce(MPI.IN_PLACE, answer, MPI.MIN))
    return bool(answer[0])


def on_one_machine(comm: MPI.Intracomm) -> bool:
    """Whether all ranks read the same clock. **Collective over `comm`.**"""
    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    answer = all_agree(comm, here.size == comm.size)
    here.Free()
    return answer


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Times work that all ranks of ``comm`` begin together.

    On one machine the clock is common: all ranks sleep until the same moment, and the time is that
    from the first who begins to the last who is done, whatever the ranks do to each other on too
    few cores. On several machines it is the longest time of a rank after a barrier.
    """

    comm: MPI.Intracomm
    common: bool

    @staticmethod
    def on(comm: MPI.Intracomm) -> Stopwatch:
        """A stopwatch for these ranks. **Collective over `comm`.**"""
        return Stopwatch(comm, on_one_machine(comm))

    def once(self, work: Callable[[int], None], times: int = 1) -> float:
        """Seconds for one of ``times`` runs in a row. **Collective over `comm`.**"""
        return float(self._seconds(np.array([self._stamps(work, times)]))[0]) / times

    def in_turn(
        self, works: Sequence[Callable[[int], None]], repeats: int, warm_ups: int = 2
    ) -> list[Times]:
        """Every work once, then every work again, ...: noise hits all alike.

        **Collective over `comm`.**
        """
        times = []
        for work in works:
            seconds = [self.once(work) for _ in range(max(1, warm_ups))]
            times.append(min(MOST_TIMES, math.ceil(BATCH_S / max(min(seconds), 1e-9))))
        stamps = np.array(
            [
                [self._stamps(work, n) for work, n in zip(works, times, strict=True)]
                for _ in range(repeats)
            ]
        )
        seconds_each = [self._seconds(stamps[:, i]) / times[i] for i in range(len(works))]
        return [Times.of([float(s) for s in seconds]) for seconds in seconds_each]

    def _stamps(self, work: Callable[[int], None], times: int) -> tuple[float, float]:
        """When this rank began and ended."""
        if self.common:
            start = np.array([time.perf_counter()])
            wait(self.comm.Iallreduce(MPI.IN_PLACE, start, MPI.MAX))
            time.sleep(max(0.0, float(start[0]) + LEAD_S - time.perf_counter()))
        else:
            self.comm.Barrier()
        begun = time.perf_counter()
        work(times)
        return begun, time.perf_counter()

    def _seconds(self, stamps: NDArray[np.float64]) -> NDArray[np.float64]:
        """All ranks' stamps as seconds; the same on every rank."""
        begun, ended = stamps[:, 0].copy(), stamps[:, 1].copy()
        if not self.common:
            ended -= begun
            begun[:] = 0.0
        wait(self.comm.Iallreduce(MPI.IN_PLACE, begun, MPI.MIN))
        wait(self.comm.Iallreduce(MPI.IN_PLACE, ended, MPI.MAX))
        return ended - begun
