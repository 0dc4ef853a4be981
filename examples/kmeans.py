"""k-means: ``mpirun -n 8 python examples/kmeans.py --points 200000``.

Points are cut by rows, centres are on every rank. Sums over the points stay pending until they are
divided: one small reduction a round.
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI

from redist import pgas


def make(points: int, dims: int, k: int) -> pgas.Array:
    """Points around k corners, in turn."""
    noise = pgas.random.generator(3).normal((points, dims), deviation=0.05, type="{x}, {}")
    return noise + pgas.from_function(
        lambda i, j: (i % k >> j % 8) & 1, (points, dims), type="{x}, {}"
    )


def step(points: pgas.Array, centres: pgas.Array) -> tuple[pgas.Array, pgas.Array]:
    """**Collective.** The centre of every point, and the means of the points of every centre."""
    k = centres.shape[0]
    far = pgas.sum(centres * centres, axis=1) - 2.0 * (points @ centres.T)
    nearest = pgas.argmin(far, axis=1)
    del far
    belongs = pgas.astype(nearest[:, None] == pgas.arange(k, type="{}"), points.dtype)
    sums, counts = belongs.T @ points, pgas.sum(belongs, axis=0)
    return nearest, (sums / pgas.maximum(counts, 1.0)[:, None]).to("{}, {}")


def main() -> None:
    """Find the corners."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--dims", type=int, default=8)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    points = make(args.points, args.dims, args.k)
    centres = points[: args.k, :].to("{}, {}")
    for _ in range(args.rounds):
        nearest, centres = step(points, centres)
    corners = np.array([[(i >> j % 8) & 1 for j in range(args.dims)] for i in range(args.k)])
    error = float(np.abs(centres.gather() - corners).max())
    right = pgas.from_function(lambda i: i % args.k, (args.points,), dtype=np.int64, type="{x}")
    wrong = int(pgas.count_nonzero(nearest != right))
    assert error < 0.02 and wrong == 0, (error, wrong)
    if MPI.COMM_WORLD.rank == 0:
        print(f"k-means: {points.type}, {args.k} centres, {args.rounds} rounds, error {error:.1e}")


if __name__ == "__main__":
    main()
