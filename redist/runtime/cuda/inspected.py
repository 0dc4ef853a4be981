"""Elements on GPUs by lists that ranks tell each other once: a gather, an exchange, a gather.

As :mod:`redist.runtime.elements.inspected`, which makes the lists on the host; then they stay on the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.layout.array_type import ArrayType
from redist.runtime.cuda.arrays import empty_on_device, to_device, to_host
from redist.runtime.cuda.exchange import exchange
from redist.runtime.elements.inspected import Inspection, Passed, joined


def on_gpu(found: Inspection) -> Inspection:
    """**Local.** The same lists on the current GPU; counts stay on the host."""
    which = tuple(map(to_device, found.which))
    return replace(found, at=to_device(found.at), given=to_device(found.given), which=which)


def joined_on_gpu(several: Sequence[Inspection]) -> Inspection:
    """**Local.** As :func:`~redist.runtime.elements.inspected.joined`, of lists on a GPU."""
    there = [
        replace(
            one, at=to_host(one.at), given=to_host(one.given), which=tuple(map(to_host, one.which))
        )
        for one in several
    ]
    return on_gpu(joined(there))


def read(comm: MPI.Comm, t: ArrayType, found: Inspection, tile: Any, outs: Sequence[Any]) -> Passed:
    """**Collective over** ``comm``. Fill results with what was asked for, on the current stream."""
    width, raws = found.width, [t.dtype.raw(out).reshape(-1, found.width) for out in outs]
    dtype = raws[0].dtype
    flat = (
        empty_on_device((0, width), dtype) if tile is None else t.dtype.raw(tile).reshape(-1, width)
    )
    come = empty_on_device((len(found.at), width), dtype)
    sent, got = ((n * width, (np.cumsum(n) - n) * width) for n in (found.gives, found.asks))
    given = flat.take(found.given, axis=0)
    received = exchange(comm, given.reshape(-1), sent, come.reshape(-1), got)
    for which, out in zip(found.which, raws, strict=True):
        come.take(which, axis=0, out=out)
    others = [n for rank, n in enumerate(found.gives.tolist()) if rank != comm.rank]
    return Passed(received, sum(n > 0 for n in others))
