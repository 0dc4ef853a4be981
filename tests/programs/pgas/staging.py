"""Moves by index under a tight memory limit: what they really allocate, and the same result.

As in ``mpirun -n 3 python -m tests.programs.pgas.staging``; ``--messages`` lets no rank read another's tile.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.pgas.memory import BUFFERS
from redist.runtime.elements import by_position as flat
from redist.runtime.ranks import neighbours as nearby
from tests.programs.mpi.counting import Count
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD
N = 768
SPARE_BYTES = 2**20
"""What a limit leaves beside the tiles that an operation makes."""
BOOKS_BYTES = 2**19
"""Lists, tables and control pages that are no arrays."""
ROWS = np.random.default_rng(0).integers(0, N, N)
KEEP = np.random.default_rng(1).random((N, N)) < 0.5
PLACES = np.random.default_rng(2).permutation(N * N)[: N * N // 2]


def filled(a: Any, key: Any, values: Any) -> Any:
    """An array after an assignment."""
    a[key] = values
    return a


OPERATIONS: dict[str, tuple[float, Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    # tiles that it makes; what it does to an array and to places; the same in NumPy
    "flip": (1, lambda a, q: pgas.flip(a), lambda w, q: w[::-1, ::-1]),
    "roll": (1, lambda a, q: pgas.roll(a, 100, axis=0), lambda w, q: np.roll(w, 100, 0)),
    "slice": (1, lambda a, q: a[::-2], lambda w, q: w[::-2]),
    "take": (1, lambda a, q: a[ROWS], lambda w, q: w[ROWS]),
    "concat": (2, lambda a, q: pgas.concat([a, a]), lambda w, q: np.concatenate([w, w])),
    "reshape": (2, lambda a, q: pgas.reshape(a.T, (N * N,)), lambda w, q: w.T.reshape(-1)),
    "mask": (3, lambda a, q: a[KEEP], lambda w, q: w[KEEP]),
    "fetch": (1.5, lambda a, q: a[q // N, q % N], lambda w, q: w[q // N, q % N]),
    "two lists": (1, lambda a, q: a[ROWS[:, None], ROWS], lambda w, q: w[ROWS[:, None], ROWS]),
    "assign": (1, lambda a, q: filled(a, slice(None), a[::-1]), lambda w, q: w[::-1]),
    "store": (0.5, lambda a, q: filled(a, (ROWS[:9], 5), 1.0), lambda w, q: w),
}  # fmt: skip


def kept(name: str) -> str | None:
    """Why not, if an operation allocates more than its limit or gives something else."""
    tiles, operation, by_numpy = OPERATIONS[name]
    whole = np.arange(float(N * N)).reshape(N, N)
    places = pgas.asarray(PLACES, type="{x}")

    def make() -> Any:
        return pgas.asarray(whole, type="{x}, {}")

    operation(make(), places)  # worlds and tables are there before we count
    a = make()
    gc.collect()
    room = int(tiles * -(-N // COMM.size) * N * 8) + SPARE_BYTES
    with redist.memory_limit(BUFFERS.live_bytes + room):
        BUFFERS.forget()
        with Count() as count:
            out = operation(a, places)
    if count.most > room + BOOKS_BYTES:
        return f"{count.most} bytes, room for {room}"
    want = by_numpy(whole.copy(), PLACES)
    if name == "store":
        want[ROWS[:9], 5] = 1.0
    return None if np.array_equal(out.gather(), want) else "other values"


def refused() -> str | None:
    """Why not, if ranks do not all refuse what has no room, before anything moves."""
    a = pgas.ones((N, N), type="{x}, {}")
    said = ""
    for operation in (
        lambda: pgas.flip(a),
        lambda: a[KEEP],
        lambda: pgas.reshape(a.T, (N * N,)),
        lambda: filled(a, slice(None), a.T),
    ):
        with redist.memory_limit(BUFFERS.live_bytes + 2**16):
            try:
                operation()
            except redist.MemoryLimitError as error:
                said = str(error)
            else:
                return "not refused"
        if len(set(COMM.allgather(said))) != 1:
            return f"ranks say different things: {said}"
    return None


CHECKS = (*OPERATIONS, "refused")


def program() -> int:
    """0 if the limit is kept."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", action="store_true")
    args = parser.parse_args()
    if args.messages:
        modules: tuple[Any, ...] = (nearby, flat)
        modules[0].find = lambda tile: None
        modules[1].can_share = lambda: False
    wrong = 0
    for name in OPERATIONS:
        wrong += not all_well(COMM, name, kept(name))
    wrong += not all_well(COMM, "refused", refused())
    if COMM.rank == 0:
        print("the limit is kept" if not wrong else "the limit is not kept", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
