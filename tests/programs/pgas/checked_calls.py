"""``REDIST_CHECK_CALLS=1``: ranks that say different things get one error; those that agree get none.

As in ``REDIST_CHECK_CALLS=1 mpirun -n 2 python -m tests.programs.pgas.checked_calls``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD
RANK = COMM.rank
WITHOUT_ERROR = "calls that agree"


@pgas.program
def scaled(x: Any, n: float) -> Any:
    """A program of an array and a number."""
    return x * n


def mistakes(a: Any, b: Any) -> dict[str, tuple[Callable[[], Any], str]]:
    """Calls in which ranks differ, and what the error has for rank 0."""
    mine = slice(2 * RANK, 2 * RANK + 2)
    first = RANK == 0
    return {
        "a part of its own": (lambda: a[mine], "cannot index: rank 0: a[0:2] ("),
        "an element of its own": (lambda: float(a[0, RANK]), "rank 0: a[0, 0] ("),
        "a mask of its own": (
            lambda: a[np.arange(16) % 2 == min(RANK, 1)],
            "cannot index: rank 0:",
        ),
        "write a row of its own": (lambda: operator.setitem(a, RANK, 7.0), "rank 0: a[0] = 7.0 ("),
        "write a value of its own": (lambda: operator.setitem(a, 0, RANK), "rank 0: a[0] = 0 ("),
        "values of its own": (lambda: pgas.asarray([1, RANK]), "rank 0: pgas.asarray([1, 0]) ("),
        "a large array of its own": (lambda: pgas.asarray(np.full(99, RANK)), "digest"),
        "a shape of its own": (
            lambda: pgas.ones((4 + RANK, 3)).sum(),
            "rank 0: pgas.ones((4, 3)) (",
        ),
        "a type of its own": (lambda: a.to("{x}, {}" if first else "{}, {x}"), "a.to('{x}, {}')"),
        "another array": (
            lambda: (a if first else b).gather(),
            "rank 0: (array 0, f64[16{x}, 16]).",
        ),
        "another operand": (lambda: a + (a if first else b), "array 1, f64[16{x}, 16])"),
        "a number of its own": (lambda: a + RANK, "rank 0: a + 0 ("),
        "another function": (lambda: a.sum() if first else a.mean(), "rank 0: a.sum() ("),
        "NumPy's function": (lambda: np.sum(a, axis=0 if first else 1), "rank 0: numpy.sum("),
        "NumPy's ufunc": (lambda: np.add(a, RANK), "rank 0: numpy.add("),
        "linear algebra": (
            lambda: pgas.linalg.matrix_norm(a, ord=1 if first else "fro"),
            "rank 0: pgas.linalg.matrix_norm(f64[16{x}, 16], ord=1) (",
        ),
        "a seed of its own": (
            lambda: pgas.random.generator(RANK).normal((8, 8)),
            "rank 0: pgas.random.generator(0).normal((8, 8)) (",
        ),
        "a file of its own": (
            lambda: pgas.write_npy(Path(f"part{RANK}.npy"), a),
            "rank 0: pgas.write_npy('part0.npy', f64[16{x}, 16]) (",
        ),
        "a program": (lambda: scaled(a, RANK), "rank 0: scaled(f64[16{x}, 16], 0) ("),
    }


def checks_on(ranks: int, args: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of the checks."""
    return (*mistakes(None, None), WITHOUT_ERROR)


def mistaken(call: Callable[[], Any], words: str) -> str | None:
    """Why a call is not refused as it should be."""
    said = None
    try:
        call()
    except redist.RedistError as error:
        said = f"{type(error).__name__}: {error}"
    everyone = COMM.allgather(said)
    if len(set(everyone)) > 1:
        return f"different errors: {everyone}"
    if said is None or not said.startswith("RequestError: cannot ") or words not in said:
        return f"not told: {said}"
    return None if "checked_calls.py:" in said and "every rank must" in said else said


def agreeing(a: Any) -> str | None:
    """Why calls that are alike, or each rank's own, do not work: None if they do."""
    tile = np.full(2, float(RANK))
    x = pgas.from_local(tile, f"f64[{2 * COMM.size}{{x}}]")
    total = sum(range(COMM.size)) * 2.0
    alone = pgas.ones((3 + RANK,), comm=MPI.COMM_SELF) + RANK
    with a.epoch():
        own = float(a.get((RANK, 0)))
    if RANK == 0:
        str(a), len(a), a.type, a.local, f"{a}"
    right = (
        float(x.sum()) == total
        and float(scaled(a, 2.0)[1, 1]) == 34.0
        and own == 16.0 * RANK
        and float(alone.sum()) == (3 + RANK) * (1.0 + RANK)
        and [float(row[0]) for row in a[:3]] == [0.0, 16.0, 32.0]
        and float(np.max(np.sqrt(a * a))) == 255.0
    )
    return None if right else "a wrong value"


def program() -> int:
    """0 if every mistake is told."""
    a, b = (pgas.from_function(lambda i, j: 16.0 * i + j, (16, 16), type="{x}, {}") for _ in "ab")
    bad = 0
    for name, (call, words) in mistakes(a, b).items():
        bad += not all_well(COMM, name, mistaken(call, words))
    bad += not all_well(COMM, WITHOUT_ERROR, agreeing(a))
    return 1 if bad else 0


if __name__ == "__main__":
    main(program)
