"""Conjugate gradients: ``mpirun -n 4 python examples/conjugate_gradients.py --n 2000``.

The matrix and all vectors are cut by rows; inner products are pending sums of one number. ``xp`` is
``redist.pgas``, or NumPy for the check. How often to repeat is decided outside the program.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist import pgas


def solve(xp: Any, a: Any, b: Any, steps: int) -> tuple[Any, Any]:
    """Solve a x = b for a positive definite matrix: x, and the squared length of what is left."""
    x, r, p = b * 0.0, b, b
    rest = xp.sum(r * r)
    for _ in range(steps):
        q = a @ p
        far = rest / xp.sum(p * q)
        x, r = x + far * p, r - far * q
        before, rest = rest, xp.sum(r * r)
        p = r + (rest / before) * p
    return x, rest


def values(n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """A matrix whose eigenvalues are near one, and a right side."""
    rng = np.random.default_rng(2)
    g = rng.standard_normal((n, n)) / n
    return np.eye(n) + g @ g.T + 0.1 * (g + g.T), rng.standard_normal(n)


def main() -> None:
    """Solve, and look at what is left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    matrix, right = values(args.n)
    a, b = pgas.asarray(matrix, type="{x}, {}"), pgas.asarray(right, type="{x}")

    @pgas.program
    def solve_on_all_ranks(a: Any, b: Any) -> Any:
        return solve(pgas, a, b, args.steps)

    x, rest = solve_on_all_ranks(a, b)
    want, _ = solve(np, matrix, right, args.steps)
    error = float(np.abs(x.gather() - want).max())
    residual = float(np.abs(matrix @ x.gather() - right).max())
    assert error < 1e-9 and residual < 1e-5 and float(rest) < 1e-8, (error, residual)
    if MPI.COMM_WORLD.rank == 0:
        print(f"conjugate gradients: {a.type}, {args.steps} steps, residual {residual:.1e}")


if __name__ == "__main__":
    main()
