"""Between hosts: moves begun early beside moves in their place, and far blocks read again and again."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.report.timing import in_turn, slowest_s
from redist import pgas

REPEATS = 9
SIDE = 1024
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
