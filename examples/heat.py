"""The heat equation with halos: ``mpirun -n 8 python examples/heat.py --n 512 --steps 100``.

Every rank computes the rows of its tile; the row above and the row below are one-sided reads, on a
node a load from the neighbour's memory. One fence a step says that all have written.
"""

from __future__ import annotations

import argparse

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist import pgas

SHARE = 0.2
"""Time step over the square of the grid's; stable below 0.25."""


def step(u: pgas.Array, v: pgas.Array) -> None:
    """**Collective.** ``v`` becomes ``u`` one step later; the edge of the plate stays as it is."""
    u.fence()
    if u.box is None or u.local is None or v.local is None:
        return
    (lo, hi), _ = u.box
    n = u.shape[0]
    old, new = u.local, v.local
    for first, last in ((lo, lo + 1), (lo + 1, hi - 1), (hi - 1, hi)):
        first, last = max(first, 1), min(last, n - 1)
        if first >= last:
            continue
        if lo < first and last < hi:
            around = old[first - lo - 1 : last - lo + 1]
        else:
            around = u.get((slice(first - 1, last + 1), slice(None)))
        inner = new[first - lo : last - lo, 1:-1]
        np.add(around[:-2, 1:-1], around[2:, 1:-1], out=inner)
        inner += around[1:-1, :-2]
        inner += around[1:-1, 2:]
        inner *= SHARE
        inner += (1 - 4 * SHARE) * around[1:-1, 1:-1]


def plate(n: int) -> pgas.Array:
    """A square plate, hot along one edge."""
    return pgas.from_function(
        lambda i, j: np.where(i == 0, 100.0, 0.0) + 0.0 * j, (n, n), type="{x}, {}"
    )


def reference(n: int, steps: int) -> NDArray[np.float64]:
    """The same on one rank."""
    a = np.zeros((n, n))
    a[0] = 100.0
    for _ in range(steps):
        b = a.copy()
        b[1:-1, 1:-1] = SHARE * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
        b[1:-1, 1:-1] += (1 - 4 * SHARE) * a[1:-1, 1:-1]
        a = b
    return a


def main() -> None:
    """Heat a plate and compare with one rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=200, help="points along each side")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    u, v = plate(args.n), plate(args.n)
    for _ in range(args.steps):
        step(u, v)
        u, v = v, u
    u.fence()
    error = float(np.abs(u.gather() - reference(args.n, args.steps)).max())
    assert error < 1e-9, error
    mean = float(pgas.mean(u))
    if MPI.COMM_WORLD.rank == 0:
        print(f"heat: {args.n} x {args.n}, {args.steps} steps, mean {mean:.4f}, error {error:.1e}")


if __name__ == "__main__":
    main()
