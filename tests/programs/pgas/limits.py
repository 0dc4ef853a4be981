"""The memory limit: kept by what ranks really allocate, refused alike on all ranks, buffers reused.

As in ``mpirun -n 3 python -m tests.programs.pgas.limits``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.pgas.memory import BUFFERS, GRAIN
from tests.programs.mpi.counting import Count
from tests.programs.pgas.rounds import names_of
from tests.programs.together import all_well, freeze, main
from tests.tiers import THOROUGH

COMM = MPI.COMM_WORLD
MIB = 2**20
SIDE = 1024 if THOROUGH else 512
"""Of matrices of 8 or 2 MiB."""
BOOKS_BYTES = 2**19
"""Lists, tables and control pages that are no arrays."""


def _tile_bytes() -> int:
    return -(-SIDE // COMM.size) * SIDE * 8


def make() -> tuple[Any, Any]:
    """Two arrays of 8 MiB, or of 2."""
    a = pgas.from_function(lambda i, j: i - j, (SIDE, SIDE), type="{x}, {}")
    return a, pgas.ones((SIDE, SIDE), type="{}, {x}")


ROWS = np.random.default_rng(0).integers(0, SIDE, SIDE)

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "where": lambda a, b: pgas.where(a > 0, a, 0.0),
    "several": lambda a, b: pgas.sqrt(pgas.abs(a * 2 - 1)) + a,
    "sum": lambda a, b: pgas.sum(a, axis=0) + 1,
    "std": lambda a, b: pgas.std(a, axis=0) + 0,
    "argmax": lambda a, b: pgas.argmax(a, axis=0),
    "cumulative_sum": lambda a, b: pgas.cumulative_sum(a, axis=0),
    "to": lambda a, b: a.to("{}, {x}"),
    "gather": lambda a, b: a.gather(),
    "astype": lambda a, b: pgas.astype(a, np.float32),
    "sort, cut": lambda a, b: pgas.sort(a, axis=0),
    "argsort": lambda a, b: pgas.argsort(a, axis=1),
    "unique": lambda a, b: pgas.unique_values(a),
    "searchsorted": lambda a, b: pgas.searchsorted(pgas.arange(999.0), pgas.reshape(a, (-1,))),
    "reshape": lambda a, b: pgas.reshape(a, (SIDE // 2, 2 * SIDE)),
    "flip": lambda a, b: pgas.flip(a, axis=0),
    "concat": lambda a, b: pgas.concat([a, b], axis=0),
    "take": lambda a, b: pgas.take(a, pgas.asarray(ROWS), axis=0),
    "slice": lambda a, b: a[::2],
    "rows": lambda a, b: a[ROWS],
    "mask": lambda a, b: a[a > 0],
    "nonzero": lambda a, b: pgas.nonzero(a),
    "tril": lambda a, b: pgas.tril(a),
    "repeat": lambda a, b: pgas.repeat(a, 2, axis=0),
    "matmul": lambda a, b: a @ b,
    "matmul, other way": lambda a, b: b @ a,
    "einsum": lambda a, b: pgas.einsum("ij,kj->ik", a, b),
    "ein": lambda a, b: pgas.ein("ij,kj->ik", a[:64], b, join=lambda x, y: abs(x - y)),
    "qr": lambda a, b: pgas.linalg.qr(pgas.reshape(a, (-1, 16))),
    "fft": lambda a, b: pgas.fft.fft(a, axis=0),
    "rfft": lambda a, b: pgas.fft.rfft(a, axis=1),
    "long fft": lambda a, b: pgas.fft.fft(pgas.reshape(a, (-1,))),
    "uniform": lambda a, b: pgas.random.generator(0).uniform((SIDE, SIDE), type="{x}, {}"),
    "from_function": lambda a, b: pgas.from_function(lambda i, j: 1.0 * i + j, (SIDE, SIDE)),
    "linspace": lambda a, b: pgas.linspace(0, 1, SIDE**2),
}
LOOKED_AT = dict([*OPERATIONS.items()][:: 1 if THOROUGH else 2])
"""``make test`` takes every second one."""
HALF_TILES = (80, 8, 4, 3, 2, 1) if THOROUGH else (80, 3)
"""Limits beyond what is alive, in halves of a tile."""


def bound_is_kept(name: str, operation: Callable[[Any, Any], Any]) -> str | None:
    """Why not, if a rank allocates more than any limit that it accepts, or before it refuses."""
    a, b = make()
    operation(a, b)  # plans, worlds and tables are there before we count
    freeze()
    for halves in HALF_TILES:
        limit = BUFFERS.live_bytes + halves * _tile_bytes() // 2
        refuses = False
        with redist.memory_limit(limit):
            BUFFERS.forget()
            before = BUFFERS.live_bytes
            with Count() as count:
                try:
                    operation(a, b)
                except redist.MemoryLimitError:
                    refuses = True
        answers = COMM.allgather((refuses, before + count.most - limit - BOOKS_BYTES))
        if len({one for one, _ in answers}) > 1:
            return f"{halves} halves of a tile: some ranks refuse, others do not"
        over = max(more for _, more in answers)
        if over > 0:
            return f"{halves} halves of a tile: {over} bytes more than the limit"
        if refuses:
            return None if halves < HALF_TILES[0] else "40 tiles are not enough"
    return None


def refused(what: Callable[[], Any], limit: int) -> str | None:
    """The error under a limit, None where it fits; nothing may have been allocated."""
    live, said = BUFFERS.live_bytes, None
    with redist.memory_limit(limit):
        try:
            what()
        except redist.MemoryLimitError as error:
            said = str(error)
    assert BUFFERS.live_bytes == live, "the error came after the allocation"
    return said


def errors_are_alike() -> str | None:
    """Why not, if ranks do not all refuse, with one text, what none has room for."""
    a, _ = make()
    v = pgas.ones((1000, 13), type="{x}, {}")  # uneven: the last rank has less
    del v
    live = BUFFERS.live_bytes
    for what in (
        lambda: pgas.zeros((1021, 1024), type="{x}, {}"),
        lambda: a + 1,
        lambda: pgas.where(a > 0, a, 0.0),
        lambda: a.to("{}, {}") if COMM.size > 1 else pgas.zeros((2048, 2048)),
        lambda: pgas.cumulative_sum(a, axis=0),
        lambda: pgas.astype(a, np.complex128),
    ):
        said = COMM.allgather(refused(what, live + _tile_bytes() // 2))
        if None in said or len(set(said)) != 1:
            return f"{said}"
        if refused(lambda: a + 1, live + 3 * _tile_bytes()) is not None:
            return "refused what fits"
    return None


def garbage_does_not_count() -> str | None:
    """Why not, if what one rank keeps by an unreachable cycle makes it refuse what others do."""
    a, _ = make()
    gc.collect()
    limit = BUFFERS.live_bytes + 2 * _tile_bytes() + 4 * GRAIN
    for what in (
        lambda: a + 1,
        lambda: a.to("{}, {x}"),
        lambda: pgas.cumulative_sum(a, axis=0),
        lambda: pgas.sort(a, axis=0),
    ):
        clean = refused(what, limit)
        gc.disable()
        if COMM.rank == COMM.size - 1:
            cycle: list[Any] = [BUFFERS.empty((2 * _tile_bytes(),), np.dtype("u1"), 0)]
            cycle.append(cycle)
            del cycle
        littered = None
        with redist.memory_limit(limit):
            try:
                what()
            except redist.MemoryLimitError as error:
                littered = str(error)
        gc.enable()
        gc.collect()
        if len(set(COMM.allgather(littered))) > 1 or (clean is None) != (littered is None):
            return f"clean: {clean}; with garbage on one rank: {littered}"
    return None


def limit_in_pairs() -> str | None:
    """Why not, if a limit is not what is there plus the new tile."""
    shape = (COMM.size * 64, 1024)
    size = -(-64 * 1024 * 8 // GRAIN) * GRAIN
    live = BUFFERS.live_bytes
    fits = refused(lambda: pgas.zeros(shape, type="{x}, {}"), live + size)
    too_much = refused(lambda: pgas.zeros(shape, type="{x}, {}"), live + size - 1)
    if fits is not None or too_much is None:
        return f"{fits}; {too_much}"
    return None


def temporaries_are_freed() -> str | None:
    """Why not, if an expression leaves more behind than its result."""
    a, b = make()
    live = BUFFERS.live_bytes
    c = pgas.sqrt(pgas.abs(a * 2 - b)) + 1
    gc.disable()
    grown = BUFFERS.live_bytes - live
    gc.enable()
    want = -(-_tile_bytes() // GRAIN) * GRAIN
    del c
    if grown != want:
        return f"{grown} bytes more, not {want}"
    return None if BUFFERS.live_bytes == live else "the result was not freed"


def buffers_are_reused() -> str | None:
    """Why not, if a loop allocates new segments for the same tiles."""
    a, b = make()

    def step() -> None:
        c = (a + b) * 2
        c.to("{}, {x}")

    step()
    step()
    made, reused = BUFFERS.made, BUFFERS.reused
    for _ in range(10):
        step()
    if BUFFERS.made != made:
        return f"{BUFFERS.made - made} new segments"
    return None if BUFFERS.reused - reused >= 20 else f"{BUFFERS.reused - reused} reused"


def tiles_of_others_count() -> str | None:
    """Why not, if a user's tile does not count while a global array holds it."""
    live = BUFFERS.live_bytes
    tile = np.ones((128, 1024))
    a = pgas.from_local(tile, f"f64[{128 * COMM.size}{{x}}, 1024]")
    b = a.T
    if BUFFERS.live_bytes != live + tile.nbytes:
        return f"{BUFFERS.live_bytes - live} bytes counted, not {tile.nbytes}"
    del a, b, tile
    return None if BUFFERS.live_bytes == live else "still counted"


def moves_are_planned_within_it() -> str | None:
    """Why not, if a tight limit changes the values or is passed over in the plan."""
    a, _ = make()
    if COMM.size == 1:
        return None
    want = a.to("{}, {x}").gather()
    tight = BUFFERS.live_bytes + _tile_bytes() + 6 * GRAIN
    with redist.memory_limit(tight), redist.trace() as t:
        b = a.to("{}, {x}")
    if not np.array_equal(b.gather(), want):
        return "wrong values"
    plan = t.moves[0].plan
    assert plan is not None
    room = tight - BUFFERS.live_bytes + 2 * _tile_bytes() + GRAIN
    return None if plan.peak_bytes <= room else f"{plan.peak_bytes} planned in {room}"


OTHERS: tuple[Callable[[], str | None], ...] = (
    errors_are_alike, garbage_does_not_count, limit_in_pairs, temporaries_are_freed, buffers_are_reused,
    tiles_of_others_count, moves_are_planned_within_it,
)  # fmt: skip
CHECKS = (*LOOKED_AT, *names_of(OTHERS))


def program() -> int:
    """0 if nothing is wrong."""
    wrong = checks = 0
    for name, operation in LOOKED_AT.items():
        checks += 1
        wrong += not all_well(COMM, name, bound_is_kept(name, operation))
    for check in OTHERS:
        checks += 1
        wrong += not all_well(COMM, check.__name__, check())
    if COMM.rank == 0:
        print(f"{checks - wrong} of {checks} checks of limits hold ({COMM.size} ranks)", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
