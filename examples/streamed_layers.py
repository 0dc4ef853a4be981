"""Layers whose weights pass through a file: ``mpirun -n 4 python -m examples.streamed_layers``.

The stack of ``transformer.py`` within a quarter of the memory that its weights take. Weights are put away at
the first call and loaded before they are needed, while ranks compute.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from examples import transformer
from redist import pgas
from redist.text.units import format_bytes


def main() -> None:
    """Run the stack within a limit, show how it is kept, and compare with NumPy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="of the file")
    parser.add_argument("--picture", help="an SVG file of what the lanes of all ranks did")
    args = parser.parse_args()
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, args.tokens, args.width)).astype("f4")
    layers = [transformer.values(rng, args.width, 8, 2 * args.width) for _ in range(args.layers)]
    want = transformer.stack(np, x, layers)

    tokens = pgas.asarray(x, type="{}, {}, {}")
    weights = [{name: pgas.asarray(w) for name, w in layer.items()} for layer in layers]
    held = sum(w.type.tile_bytes for layer in weights for w in layer.values())

    def within(limit: int) -> Any:
        return pgas.program(limit=limit, spill=args.folder, progress=True)(stack)

    stack = partial(transformer.stack, pgas)
    forward = within(held // 4)
    try:
        plan = forward.plan(tokens, weights)
    except redist.NoPlanError as problem:  # it names the least limit that would do
        forward = within(problem.least_bytes)
        plan = forward.plan(tokens, weights)
    timeline = forward.timeline(tokens, weights)
    found = timeline.result.gather()
    error = float(np.abs(found - want).max() / np.abs(want).max())
    assert error < 1e-4, error
    if MPI.COMM_WORLD.rank == 0:
        print(timeline)
        if args.picture:
            timeline.svg(args.picture)
        print(f"streamed layers: {plan.certificate}, of {format_bytes(held)}, error {error:.1e}")


if __name__ == "__main__":
    main()
