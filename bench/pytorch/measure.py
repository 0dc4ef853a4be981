"""Time and memory of something that all ranks do.

They are measured in jobs of their own: memory shows at its peak only if PyTorch's allocator gives everything
back at once (``MIMALLOC_PURGE_DELAY=0``), which costs time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from tests.programs.torch.peak import Work, peak_bytes

POOLED = "redist"
"""The way that uses pools."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds of every repetition, the slowest rank's, or else the bytes of the fullest rank at most.

    Bytes are what was allocated beyond what was there before; of redist through shared memory also its pools,
    whenever they were made.
    """

    seconds: tuple[float, ...]
    peak_bytes: int


def race(works: dict[str, Work], repeat: int) -> dict[str, Taken]:
    """**Collective.** Measure several ways in turn; the first repetition of each does not count.

    If there is nothing to repeat, it is memory that is measured.
    """
    if repeat == 0:
        return {name: Taken((), peak_bytes(work, name == POOLED)) for name, work in works.items()}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeat + 1):
        for name, work in works.items():
            dist.barrier()
            start = time.perf_counter()
            result = work()
            taken = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
            del result
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            seconds[name].append(float(taken))
    return {name: Taken(tuple(seconds[name][1:]), 0) for name in works}
