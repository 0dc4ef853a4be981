"""What saves and loads take beside the arrays, as the system counts it: never more than the limit.

As in ``mpirun -n 3 python -m tests.programs.store.memory``. Each call runs once before it is measured, so
that what MPI and Python set up once does not count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mpi4py import MPI

import redist
from redist import ArgumentError, pgas
from redist.measure.memory import can_measure, held_bytes, peak_bytes
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
LEAST = 2**20
SLACK = 2**20
"""For objects of Python, and pages that the allocator rounds up."""
FOLDER = Path()
SHAPE = (1024, 4096)
"""16 MiB of f32: much more than the least limit on each of 4 ranks."""
SAVED = ("{x}, {}", "{}, {x}", "{}, {}")
LOADED = ("{x}, {}", "{}, {x}", "{x/3}, {}", "{}, {x/5}", "{}, {}")


def array(cuts: str) -> Any:
    return pgas.from_function(lambda i, j: i * 3.0 + j, SHAPE, type=cuts, dtype="f4")


def beyond(call: Callable[[], Any]) -> int:
    """**Collective.** What the call takes at its worst on the fullest rank, results included."""
    kept: list[Any] = []

    def once() -> None:
        kept[:] = [call()]

    once()
    kept.clear()
    before = held_bytes(COMM)
    peak = peak_bytes(COMM, once)
    kept.clear()
    return int(COMM.allreduce(peak - before, MPI.MAX))


def saves() -> str | None:
    for cuts in SAVED:
        arrays = {"w": array(cuts)}
        for limit in (LEAST, 4 * LEAST):
            call = partial(redist.save, limit_bytes=limit, sync=False)
            took = beyond(partial(call, FOLDER / "w.safetensors", arrays))
            if took > limit + SLACK:
                return f"a save of {cuts} within {limit} took {took}"
    return None


def loads() -> str | None:
    redist.save(FOLDER / "w.safetensors", {"w": array("{x}, {}")}, sync=False)
    for cuts in LOADED:
        held = redist.load(FOLDER / "w.safetensors", {"w": cuts})["w"].type.tile_bytes
        for dtype in (None, "f64"):
            size = held * (2 if dtype else 1)
            call = partial(redist.load, limit_bytes=LEAST, dtype=dtype)
            took = beyond(partial(call, FOLDER / "w.safetensors", {"w": cuts}))
            if took > size + LEAST + SLACK:
                return f"a load of {cuts} as {dtype} within {LEAST} took {took}, of it {size} for tiles"
    return None


def pairs() -> str | None:
    """The least limit works, and one byte less is refused before anything happens."""
    arrays = {"w": array("{}, {x}")}
    path = FOLDER / "pair.safetensors"
    for call in (
        lambda n: redist.save(path, arrays, limit_bytes=n, sync=False),
        lambda n: redist.load(FOLDER / "w.safetensors", limit_bytes=n),
    ):
        try:
            call(LEAST - 1)
        except ArgumentError as error:
            if "need 1 MiB or more" not in str(error):
                return str(error)
        else:
            return "less than the least limit was enough"
        if path.exists():
            return "a file was made"
        call(LEAST)
        COMM.Barrier()
        if COMM.rank == 0:
            path.unlink(missing_ok=True)
        COMM.Barrier()
    return None


PROGRAMS = {"saves": saves, "loads": loads, "pairs": pairs}
CHECKS = tuple(PROGRAMS)


def program() -> int:
    global FOLDER
    able = can_measure(COMM)
    with tempfile.TemporaryDirectory() as name:
        FOLDER = Path(COMM.bcast(name))
        checks = PROGRAMS if able else {**dict.fromkeys(PROGRAMS, lambda: None), "pairs": pairs}
        status = run_named(checks)
        COMM.Barrier()
    return status


if __name__ == "__main__":
    main(program)
