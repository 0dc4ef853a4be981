"""Blur a volume by way of its frequencies: ``mpirun -n 4 python examples/fft_filter.py --n 64``.

Forward transform, a factor for every frequency, transform back. The factor is a product of three short
arrays, so that it lies wherever the frequencies lie. ``xp`` is ``redist.pgas``, or NumPy for the check.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist import pgas


def blur(xp: Any, volume: Any, *frequencies: Any) -> Any:
    """Smooth values by a bell-shaped factor of their frequencies, one array of them for each dim."""
    spectrum = xp.fft.fftn(volume)
    for f in frequencies:
        spectrum = spectrum * xp.exp(-20.0 * f * f)
    return xp.fft.ifftn(spectrum)


def multiply(xp: Any, image: Any, response: Any) -> Any:
    """Filter values by a factor that is given for every frequency."""
    return xp.fft.ifftn(xp.fft.fftn(image) * response)


def frequencies(shape: tuple[int, ...]) -> list[NDArray[Any]]:
    """The frequencies along each dim, ready to be spread over the others."""
    found = []
    for dim, n in enumerate(shape):
        found.append(np.fft.fftfreq(n).reshape([-1 if i == dim else 1 for i in range(len(shape))]))
    return found


def main() -> None:
    """Blur noise, and compare with NumPy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=24)
    args = parser.parse_args()
    shape = (args.n, args.n, args.n)
    noise = np.random.default_rng(4).standard_normal(shape) + 0j
    volume = pgas.asarray(noise, type="{x}, {}, {}")
    along = [pgas.asarray(f, type="{}, {}, {}") for f in frequencies(shape)]

    @pgas.program
    def blur_on_all_ranks(volume: Any, *along: Any) -> Any:
        return blur(pgas, volume, *along)

    found = blur_on_all_ranks(volume, *along)
    error = float(np.abs(found.gather() - blur(np, noise, *frequencies(shape))).max())
    assert error < 1e-10, error
    if MPI.COMM_WORLD.rank == 0:
        print(f"fft filter: {volume.type} -> {found.type}, error {error:.1e}")


if __name__ == "__main__":
    main()
