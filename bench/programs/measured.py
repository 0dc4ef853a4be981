"""Bytes that products receive, as the transport counts them, and small sums moved together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.plans.products import least_bytes
from bench.report.figures import in_turn, quartiles, slowest_s
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

    times = seconds_of_pairs(comm, [one_by_one, together], pairs)
    return quartiles(times[:, 1] / times[:, 0])


def seconds_of_pairs(comm: MPI.Intracomm, works: Sequence[Any], pairs: int) -> Any:
    """Seconds of two ways, one right after the other, so many times: a row a pair. **Collective.**"""
    watch = Stopwatch.on(comm)
    turns = (watch.in_turn(works, 1) for _ in range(pairs))
    return np.array([[times.median_s for times in turn] for turn in turns])


REPEATS = 9
BLOCK_ELEMS = 512
BLOCKS, READS, INTERVALS = 32, 4, 10


def measure_hosts(comm: MPI.Intracomm) -> dict[str, Any]:
    """All figures of a job with a rank on every host. **Collective over `comm`.**"""
    return {"overlap": [overlap(comm, k) for k in (1, 2, 4)], "reads": reads(comm)}


def overlap(comm: MPI.Intracomm, products: int) -> dict[str, Any]:
    """A step whose move does not depend on its products. **Collective over `comm`.**"""
    rng = pgas.random.generator(1)
    x = rng.normal((4 * SIDE, SIDE), type="{x}, {}")
    y = rng.normal((SIDE // 4 * comm.size, SIDE), type="{x}, {}")
    a = rng.normal((SIDE, SIDE), type="{}, {}")

    def compute(x: Any, y: Any) -> Any:
        for _ in range(products):
            y = pgas.tanh(y @ a * 0.01)
        return y

    def move(x: Any, y: Any) -> Any:
        return (x + 1.0).to("{}, {x}")

    def both(x: Any, y: Any) -> Any:
        moved = move(x, y)
        return compute(x, y), moved * 2.0

    plain: Any = pgas.program(layouts="as written", cache=False, prefetch=False)
    ways: dict[str, Any] = {
        "move": plain(move),
        "compute": plain(compute),
        "in turn": plain(both),
        "early": pgas.program(layouts="as written", cache=False)(both),
    }
    calls = {name: partial(way, x, y) for name, way in ways.items()}
    times = in_turn(calls, REPEATS + 2, partial(slowest_s, comm))
    found = {name: float(np.median(some[2:])) for name, some in times.items()}
    shorter = min(found["move"], found["compute"])
    return {"products": products, **found, "hidden": (found["in turn"] - found["early"]) / shorter}


def reads(comm: MPI.Intracomm) -> dict[str, float]:
    """Seconds of reading far blocks, each several times an interval. **Collective over `comm`.**"""
    n = 4 * BLOCKS * BLOCK_ELEMS
    a = pgas.from_function(lambda i: i * 1.0, (n * comm.size,), type="{x}")
    first = (comm.rank + 1) % comm.size * n

    def work(prefetch: bool, cache: bool) -> None:
        with a.epoch(prefetch=prefetch, cache=cache):
            for _ in range(INTERVALS):
                for _ in range(READS):
                    for k in range(BLOCKS):
                        at = first + 4 * k * BLOCK_ELEMS
                        assert a.get(slice(at, at + BLOCK_ELEMS))[0] == at
                a.fence()

    ways = {"neither": (False, False), "cache": (False, True), "both": (True, True)}
    calls = {name: partial(work, *way) for name, way in ways.items()}
    times = in_turn(calls, 5, partial(slowest_s, comm))
    return {name: float(np.median(some)) for name, some in times.items()}
