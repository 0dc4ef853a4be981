"""The most memory that ranks of ``torch.distributed`` take for some work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from redist.measure.pages import give_back, private_bytes, private_peak_bytes, reset_peak
from redist.runtime.shm.segments import allocated_bytes

Work = Callable[[], Any]


def peak_bytes(work: Work, has_pools: bool = True) -> int:
    """**Collective.** Bytes of the fullest rank at most, beyond what it held before.

    With ``has_pools`` also redist's pools, all that this process has made: for work that uses them.
    """
    work()  # what is prepared once does not count
    dist.barrier()
    give_back()
    before = private_bytes()
    reset_peak()
    result = work()
    grown = private_peak_bytes() - before + (allocated_bytes() if has_pools else 0)
    del result
    most = torch.tensor(grown)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return int(most)
