"""Programs within a limit take no more real memory than their plans say, and give it back."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import pgas
from redist.pgas.memory import BUFFERS, RESERVE_BYTES
from redist.runtime.lanes.residencies import LiveTiles
from redist.runtime.shm.segments import allocated_bytes
from redist.text.units import format_bytes
from tests.programs.mpi.counting import held_bytes
from tests.programs.pgas.cutting import held
from tests.programs.pgas.limited import planned_within
from tests.programs.together import all_well, main
from tests.tiers import THOROUGH

N, M = 1100, 500
SLACK = 3 * 2**20
"""What BLAS, the interpreter and the allocator take for themselves."""


def kernel(x: Any, a: Any, v: Any) -> Any:
    """Distances by a product, with rows and columns that stretch; rows divided by their sums."""
    q = pgas.sum(x * x, axis=1)
    k = pgas.exp(-(q[:, None] + q[None, :] - 2.0 * (x @ x.T)))
    return (k / pgas.sum(k, axis=1, keepdims=True)) @ q


def stretched(x: Any, a: Any, v: Any) -> Any:
    """Small operands, large results, reductions both ways."""
    b = pgas.where(x[:, :1] > v, x[:, :1] - v, v * 2.0)
    return pgas.sum(b, axis=0), pgas.max(b * b + b, axis=1)


def lines(x: Any, a: Any, v: Any) -> Any:
    """Sorted rows and running sums."""
    b = pgas.cumulative_sum(pgas.sort(a * a - v, axis=1), axis=1)
    return pgas.argmax(b, axis=1), pgas.std(b)


def products(x: Any, a: Any, v: Any) -> Any:
    """Products with a large operand along both dims, and with letters."""
    b = a + 1
    return b @ v, x.T @ b, pgas.einsum("ij,ij->j", b, a)


@contextmanager
def real_high_water() -> Iterator[list[int]]:
    """The most bytes that this process had, looked at wherever a task or a copy begins."""
    most = [0]
    kind: Any = LiveTiles
    begin = kind.begin

    def begun(self: Any, row: Any) -> None:
        most[0] = max(most[0], held_bytes())
        begin(self, row)

    kind.begin = begun
    try:
        yield most
    finally:
        kind.begin = begin


def several(result: Any) -> tuple[Any, ...]:
    """One result or several, as several."""
    return result if isinstance(result, tuple) else (result,)


def measure(function: Callable[..., Any], comm: MPI.Comm, folder: str) -> str | None:
    """The real bytes of the second call against the plan; what stays afterwards."""
    draw = pgas.random.generator(3)
    x = draw.normal((N * comm.size, 3), type="{x}, {}")
    a = draw.uniform((N * comm.size, M), type="{x}, {}")
    v = draw.uniform((M,), type="{}")
    outside = BUFFERS.live_bytes - held(x, a, v)
    want = [one.gather() for one in several(function(x, a, v))]
    limit = a.type.tile_bytes * 5 // 4 if function in (lines, products) else "10MiB"
    step: Any = pgas.program(limit=limit, spill=folder, layouts="as written")(function)
    step.plan(x, a, v)
    gc.collect()
    before = held_bytes() - allocated_bytes()
    with real_high_water() as most:
        for _ in range(2):
            got = step(x, a, v)
    (one,) = planned_within(step)
    if one.fitted is None or one.fitted.fitter.cut is None:
        return "it was not cut"
    gc.collect()
    alive = BUFFERS.live_bytes
    grown, bound = most[0] - before - outside, one.fitted.bound_bytes
    if grown > bound + SLACK:
        return f"{format_bytes(grown)} taken, {format_bytes(bound)} planned"
    kept = allocated_bytes() - alive
    if kept > RESERVE_BYTES + 2**20:
        return f"{format_bytes(kept)} of shared memory stay after the call"
    pairs = zip(several(got), want, strict=True)
    if not all(np.allclose(one.gather(), other, rtol=1e-9) for one, other in pairs):
        return "another result"
    return None


FUNCTIONS = (stretched, lines, products, *([kernel] if THOROUGH else []))
"""The kernel is called within a limit by its page too; here it takes as long as all others."""
CHECKS = tuple(function.__name__ for function in FUNCTIONS)


def program() -> int:
    """0 if all is well."""
    comm, bad = MPI.COMM_WORLD, 0
    with tempfile.TemporaryDirectory() as own:
        folder = comm.bcast(own)
        for function in FUNCTIONS:
            bad += not all_well(comm, function.__name__, measure(function, comm, folder), "")
        comm.barrier()
    return bad


if __name__ == "__main__":
    main(program)
