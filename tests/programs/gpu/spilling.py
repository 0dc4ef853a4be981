"""Arrays on GPUs that are larger than their memory: in pinned memory of the host, and behind it in a file.

As in ``mpirun -n 2 python -m tests.programs.gpu.spilling``; ``--without-gpu`` lets NumPy stand for CuPy.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.offload.clock import ClockedRun
from redist.pgas.memory import BUFFERS, DEVICE
from redist.pgas.programs.limited import fit
from redist.pgas.spill.memory_limit import stored_tile
from redist.runtime.cuda.arrays import to_host
from tests.fakes import numpy_cupy
from tests.programs.pgas.limited import SLACK, high_water, planned_within
from tests.programs.pgas.spilling import tightly
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
X: Any = pgas
FOLDER = tempfile.mkdtemp()
SIDE, LAYERS = 256, 6


def weights(n: int) -> list[Any]:
    draw = X.random.generator(5)
    several = [X.floor(draw.normal((SIDE, SIDE), type="{x}, {}") * 3) for _ in range(n)]
    return [one.to_device("cuda") for one in several]


def layers(x: Any, several: list[Any]) -> Any:
    """Of whole numbers: a GPU's products add up in one order or another."""
    for w in several:
        x = X.remainder(x @ w, 7.0) + x
    return x


@contextmanager
def pool_peak() -> Iterator[list[int]]:
    """The most bytes of the GPU's pool while a block runs, what was there before included."""
    cupy: Any = sys.modules["cupy"]
    most = [0]
    if cupy.ndarray is numpy_cupy.ndarray:
        lent = numpy_cupy.LENT
        lent[1] = lent[0]
        yield most
        most[0] = lent[1]
        return
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()

    class Watch(cupy.cuda.memory_hook.MemoryHook):  # type: ignore[misc]
        name = "watch"

        def malloc_postprocess(self, **what: Any) -> None:
            most[0] = max(most[0], pool.used_bytes())

    with Watch():
        yield most


def eager(spill: str) -> str | None:
    """Eager arrays that do not fit together give the same bits, within the limit."""
    x, several = weights(1)[0], weights(LAYERS)
    want = to_host(layers(x, several).tile)
    limit = DEVICE.live_bytes // 2 + 2 * SIDE * SIDE * 8  # products are whole on every rank
    with redist.memory_limit(limit, spill=spill), high_water(DEVICE) as most:
        got = layers(x, several)
        if not any(stored_tile(one) is not None for one in several):
            return "nothing was put away"
        if most[0] > limit:
            return f"{most[0]} bytes held, limit {limit}"
    values = to_host(got.tile)
    if values.tobytes() != want.tobytes():
        wrong = np.flatnonzero((values != want).any(axis=1))
        return f"other bits: {abs(values - want).max()} apart in rows {wrong[:3]} of {len(wrong)}"
    pairs = zip(several, weights(LAYERS), strict=True)
    same = all(np.array_equal(to_host(a.gather()), to_host(b.gather())) for a, b in pairs)
    return None if same else "weights came back otherwise"


def streamed(spill: str) -> str | None:
    """Weights that are put away stream through a program, call after call, and stay where they are."""
    x, several = weights(1)[0], weights(LAYERS)
    want = to_host(layers(x, several).gather())
    step, limit = tightly(layers, x, several, spill)
    plan = step.plan(x, several)
    if plan.certificate.verdict != "proved" or plan.certificate.scope != "every order":
        return f"{plan.certificate}"
    before = DEVICE.live_bytes  # all weights, until the first call has put them away
    for call in range(3):
        with pool_peak() as most:
            got = step(x, several)
        if most[0] > (limit if call else max(before, limit)) + limit // 100 + SLACK:
            return f"{most[0]} bytes of the pool, limit {limit}"
        if not np.array_equal(to_host(got.gather()), want):
            return "other values"
        del got
    (program,) = planned_within(step)
    assert program.fitted is not None
    names = [place.name for place in program.fitted.graph.places]
    if names != (["GPU", "host"] if spill == "host" else ["GPU", "host", "file"]):
        return f"places {names}"
    if spill != "host" and program.peak_bytes[1] > limit:
        return f"{program.peak_bytes[1]} bytes of the host, limit {limit}"
    away = [stored_tile(one) is not None for one in several]
    return None if any(away) else "no weight is away"


def roomy() -> str | None:
    """Of ways that the clock finds equally quick, that is taken which leaves most room to load ahead."""
    x, several = weights(1)[0], weights(2 * LAYERS)
    _, limit = tightly(layers, x, several, "host")
    limit += LAYERS * several[0].type.tile_bytes
    step: Any = X.program(layouts="as written", limit=limit, spill="host")(layers)
    with patch.object(fit, "clock", lambda graph: ClockedRun(100, 100, 0)):
        step(x, several)
    stay = [stored_tile(one) is None for one in several]
    return f"stay {stay}" if any(stay[1:]) else None  # nothing runs before the first is needed


def host_is_for_gpus() -> str | None:
    """Arrays in memory are not put away into memory: a clear error, or none where the limit does."""
    x = X.ones((SIDE, SIDE))
    with redist.memory_limit(BUFFERS.live_bytes + 1000, spill="host"):
        try:
            X.zeros((SIDE, SIDE))
        except redist.MemoryLimitError:
            return None if stored_tile(x) is None else "put away"
    return "no error"


CHECKS = (
    "eager_host", "eager_file", "streamed_host", "streamed_file", "roomy", "host_is_for_gpus", "nothing_left",
)  # fmt: skip


def program() -> int:
    """0 if everything holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--without-gpu", action="store_true", help="where NumPy stands for CuPy")
    if parser.parse_args().without_gpu:
        numpy_cupy.install()
    found = {
        "eager_host": lambda: eager("host"),
        "eager_file": lambda: eager(FOLDER),
        "streamed_host": lambda: streamed("host"),
        "streamed_file": lambda: streamed(FOLDER),
        "roomy": roomy,
        "host_is_for_gpus": host_is_for_gpus,
        "nothing_left": lambda: None if not os.listdir(FOLDER) else "files are left",
    }
    return run_named(found)


if __name__ == "__main__":
    main(program)
