"""Elements on GPUs by lists that ranks tell each other once: a gather, an exchange, and a gather or a fold.

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
from redist.runtime.cuda.exchange import Counts, exchange
from redist.runtime.cuda.parts import CODES, fold_in
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
    given = flat.take(found.given, axis=0)
    passed = _pass_units(comm, width, given, found.gives, come, found.asks)
    for which, out in zip(found.which, raws, strict=True):
        come.take(which, axis=0, out=out)
    return passed


def combine(
    comm: MPI.Comm, t: ArrayType, found: Inspection, tile: Any, values: Any, op: str
) -> Passed:
    """**Collective over** ``comm``. Combine elements that were asked for with values, or replace them.

    In the order of :func:`redist.runtime.elements.inspected.combine`, so that the bits are the same.
    """
    width = found.width
    if op == "replace":
        values, tile = t.dtype.raw(values), t.dtype.raw(tile)
    code = CODES[op]
    there, here = (
        empty_on_device((len(one), width), values.dtype) for one in (found.at, found.given)
    )
    for which in found.which:
        fold_in(there, which, values, ((code, len(which)),), width, anew=True)
    passed = _pass_units(comm, width, there, found.asks, here, found.gives)
    if tile is not None:
        units = tile if tile.flags.c_contiguous else tile.copy()
        fold_in(units, found.given, here, ((code, len(here)),), width)
        if units is not tile:
            tile[...] = units
    return passed


def _pass_units(
    comm: MPI.Comm, width: int, given: Any, gives: Counts, into: Any, takes: Counts
) -> Passed:
    """**Collective.** Send each rank its units, and receive those of others, rank by rank."""
    sent, got = ((n * width, (np.cumsum(n) - n) * width) for n in (gives, takes))
    received = exchange(comm, given.reshape(-1), sent, into.reshape(-1), got)
    others = [n for rank, n in enumerate(gives.tolist()) if rank != comm.rank]
    return Passed(received, sum(n > 0 for n in others))
