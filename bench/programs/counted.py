"""Bytes that products receive, as the transport counts them, and small sums moved together."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.plans.products import least_bytes
from bench.report.figures import quartiles
from redist import ArrayType, Mesh, pgas
from redist.measure.timing import Stopwatch
from redist.pgas.tiles.layouts import resolved_type

SIDE = 1024
TOGETHER, ELEMS = 8, 512


def measure_products(comm: MPI.Intracomm) -> float:
    """What a cube receives on the default mesh, result included, over the least. **Collective.**"""
    rng = pgas.random.generator(3)
    a, b = rng.normal((SIDE, SIDE)), rng.normal((SIDE, SIDE))
    with redist.trace() as t:
        product = a @ b
        product.to(str(resolved_type(product.type)))
    received: int = comm.allreduce(t.received_bytes)
    return received / least_bytes((SIDE, SIDE, SIDE), comm.size)


def measure_together(comm: MPI.Intracomm, pairs: int, has_outs: bool) -> tuple[float, ...]:
    """Time of 8 pending sums of 4 KiB as one batch over that of single moves: quartiles. **Collective.**

    Into arrays that are there, or into new ones.
    """
    mesh = Mesh(x=comm.size)
    source, target = (
        ArrayType.parse(text, mesh) for text in (f"f64[{ELEMS}] sum{{x}}", f"f64[{ELEMS}]")
    )
    names = [str(i) for i in range(TOGETHER)]
    sources, targets = dict.fromkeys(names, source), dict.fromkeys(names, target)
    tiles = {name: np.full(ELEMS, float(i)) for i, name in enumerate(names)}
    outs: Any = {name: np.empty(ELEMS) for name in names} if has_outs else dict.fromkeys(names)

    def one_by_one(times: int) -> None:
        for _ in range(times):
            for name in names:
                redist.redistribute(tiles[name], source, target, comm, out=outs[name])

    def together(times: int) -> None:
        for _ in range(times):
            redist.redistribute(tiles, sources, targets, comm, out=outs if has_outs else None)

    watch = Stopwatch.on(comm)
    ratios: list[Any] = []
    for _ in range(pairs):
        single, whole = watch.in_turn([one_by_one, together], 1)
        ratios.append(whole.median_s / single.median_s)
    return quartiles(ratios)
