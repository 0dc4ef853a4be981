"""A 3-D Fourier transform by pencils: ``mpirun -n 8 python examples/fft3d.py --n 128``.

The array is cut by two axes of the mesh. ``fftn`` transforms a dim that is whole, hands an axis over
to it and goes on with the next: each move is one all-to-all among a row of the mesh.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas


def square_mesh(size: int) -> redist.Mesh:
    """All ranks along two axes, as square as can be."""
    rows = next(k for k in range(math.isqrt(size), 0, -1) if size % k == 0)
    return redist.Mesh(x=rows, y=size // rows)


def make(n: int, mesh: redist.Mesh) -> pgas.Array:
    """A wave along every dim, of complex numbers: its transform is a single peak."""
    return pgas.from_function(
        lambda i, j, k: np.exp(2j * np.pi * (2 * i + 3 * j + 5 * k) / n),
        (n, n, n),
        dtype=np.complex128,
        type="{}, {x}, {y}",
        mesh=mesh,
    )


def main() -> None:
    """Transform there and back."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=64, help="size along every dim")
    n = parser.parse_args().n
    a = make(n, square_mesh(MPI.COMM_WORLD.size))
    with redist.trace() as t:
        f = pgas.fft.fftn(a)
    peak = complex(f[2 % n, 3 % n, 5 % n]) / n**3
    error = float(pgas.max(pgas.abs(pgas.fft.ifftn(f) - a)))
    assert abs(peak - 1) < 1e-10 and error < 1e-10, (peak, error)
    if MPI.COMM_WORLD.rank == 0:
        print(t)
        print(f"fft3d: {n}^3, {a.type} -> {f.type}, error {error:.1e}")


if __name__ == "__main__":
    main()
