"""Least squares through the QR of a tall matrix: ``mpirun -n 8 python examples/least_squares.py``.

Every rank factors its rows, the small triangles are factored together, and nobody holds the matrix.
"""

from __future__ import annotations

import argparse

from mpi4py import MPI

from redist import pgas


def make(rows: int, columns: int) -> tuple[pgas.Array, pgas.Array, pgas.Array]:
    """A random matrix, coefficients, and what they give with a little noise."""
    random = pgas.random.generator(1)
    a = random.normal((rows, columns), type="{x}, {}")
    x = pgas.arange(1.0, columns + 1.0, type="{}")
    noise = random.normal((rows,), deviation=1e-3, type="{x}")
    return a, x, a @ x + noise


def fit(a: pgas.Array, b: pgas.Array) -> pgas.Array:
    """**Collective.** The coefficients with the least squared error, on every rank."""
    q, r = pgas.linalg.qr(a)
    return pgas.linalg.solve(r, q.T @ b)


def main() -> None:
    """Find the coefficients again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=16)
    args = parser.parse_args()
    a, x, b = make(args.rows, args.columns)
    found = fit(a, b)
    error = float(pgas.max(pgas.abs(found - x)))
    residual = float(pgas.linalg.vector_norm(a @ found - b))
    assert error < 1e-3, error
    if MPI.COMM_WORLD.rank == 0:
        print(f"least squares: {a.type}, error {error:.1e}, residual {residual:.3f}")


if __name__ == "__main__":
    main()
