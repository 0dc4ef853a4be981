"""Power iteration on a matrix larger than a rank may hold.

``mpirun -n 8 python examples/power_iteration.py --n 4096``. The limit holds for everything: whoever
gathers the matrix gets an error before a byte is allocated.
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.text.units import format_bytes


def make(n: int) -> pgas.Array:
    """A symmetric matrix whose largest eigenvalue is n + 1, of the vector of ones."""
    a = pgas.from_function(lambda i, j: 1.0 * (i == j), (n, n), type="{x}, {}")
    a += 1.0
    return a


def step(a: pgas.Array, v: pgas.Array) -> tuple[float, pgas.Array]:
    """**Collective.** An estimate of the eigenvalue, and a better vector on every rank."""
    w = (a @ v).to("{}")
    value = float(pgas.linalg.vector_norm(w))
    return value, w / value


def main() -> None:
    """Find the largest eigenvalue within a limit below the size of the matrix."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    comm, n = MPI.COMM_WORLD, args.n
    limit = 8 * n * (-(-n // comm.size) + 64) + 2**21
    with redist.memory_limit(limit):
        a = make(n)
        v = pgas.from_function(lambda i: np.where(i % 2, 1.0, 2.0), (n,), type="{}")
        for _ in range(args.steps):
            value, v = step(a, v)
        refused = comm.size == 1
        try:
            if not refused:
                a.gather()
        except redist.MemoryLimitError:
            refused = True
    assert abs(value - (n + 1)) < 1e-6 * n and refused, (value, refused)
    if comm.rank == 0:
        print(
            f"power iteration: matrix of {format_bytes(8 * n * n)}, limit {format_bytes(limit)} a rank, "
            f"eigenvalue {value:.6f}"
        )


if __name__ == "__main__":
    main()
