"""Train an MLP by steps down the gradient: ``mpirun -n 4 python examples/train_mlp.py``.

Samples are cut by rows, weights lie as new arrays lie. What every rank adds to a gradient stays pending
until the weights are changed. ``pgas.grad`` finds the gradients; for the check, NumPy has them by hand.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist import pgas


def gradients(xp: Any, x: Any, y: Any, *weights: Any) -> tuple[Any, ...]:
    """How the mean squared error of the last layer changes with every weight."""
    inputs = [x]
    for w in weights[:-1]:
        inputs.append(xp.tanh(inputs[-1] @ w))
    slope = (inputs[-1] @ weights[-1] - y) * (2.0 / x.shape[0])
    found = []
    for w, h in zip(reversed(weights), reversed(inputs), strict=True):
        found.append(h.T @ slope)
        if h is not x:
            slope = (slope @ w.T) * (1.0 - h * h)
    return tuple(reversed(found))


def loss(x: Any, y: Any, *weights: Any) -> Any:
    """The squared error of the last layer, summed over its columns: the mean over samples."""
    for w in weights[:-1]:
        x = pgas.tanh(x @ w)
    return pgas.sum((x @ weights[-1] - y) ** 2) / x.shape[0]


def values(samples: int, sides: tuple[int, ...], dtype: Any = "f4") -> list[NDArray[Any]]:
    """Samples, what is wanted for them, and random weights."""
    rng = np.random.default_rng(11)
    x = rng.standard_normal((samples, sides[0]))
    y = rng.standard_normal((samples, sides[-1]))
    pairs = itertools.pairwise(sides)
    weights = [rng.standard_normal(pair) * pair[0] ** -0.5 for pair in pairs]
    return [array.astype(dtype) for array in (x, y, *weights)]


def step(xp: Any, rate: float, x: Any, y: Any, *weights: Any) -> tuple[Any, ...]:
    """Better weights."""
    found = gradients(xp, x, y, *weights)
    return tuple(w - rate * g for w, g in zip(weights, found, strict=True))


def main() -> None:
    """Train for a few steps, and compare with NumPy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    x, y, *want = values(args.samples, (16, args.width, args.width, 4), "f8")
    rows = [pgas.asarray(array, type="{x}, {}") for array in (x, y)]
    weights: Any = [pgas.asarray(w) for w in want]

    @pgas.program
    def train(*arrays: Any) -> Any:
        slopes = pgas.grad(loss, argnums=range(2, len(arrays)))(*arrays)
        return tuple(w - 0.1 * g for w, g in zip(arrays[2:], slopes, strict=True))

    for _ in range(args.steps):
        weights = train(*rows, *weights)
        want = list(step(np, 0.1, x, y, *want))
    error = max(float(np.abs(w.gather() - a).max()) for w, a in zip(weights, want, strict=True))
    assert error < 1e-10, error
    if MPI.COMM_WORLD.rank == 0:
        print(f"train an MLP: {rows[0].type}, {args.steps} steps, error {error:.1e}")


if __name__ == "__main__":
    main()
