"""Random programs of floats in planned layouts, against the same function in double precision.

Every operation is continuous, so that roundings stay roundings. A result may be as far from that of double
precision as ``WORSE`` times what the function itself is, called eagerly, or as ``ROUNDINGS`` times the
precision of the largest of its values.

As in ``mpirun -n 3 python -m tests.programs.pgas.floats --n 100 --seed 0``.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import CaptureError, pgas
from tests.programs.pgas.drawing import Draw, xp
from tests.programs.pgas.programs import (
    Op,
    copied,
    like,
    moved,
    product,
    random_function,
    shaped,
    sliced,
    updated,
)
from tests.programs.together import all_well, main

WORSE, ROUNDINGS = 64, 2**10


def smooth(x: Any, rng: np.random.Generator, values: list[Any]) -> Any:
    """Arithmetic whose result changes little where its operands do, and stays small."""
    match rng.integers(9):
        case 0:
            return xp.maximum(x, like(rng, values, x))
        case 1:
            return xp.tanh(x - like(rng, values, x))
        case 2:
            return xp.tanh(x * like(rng, values, x))
        case 3:
            return xp.abs(x) * 0.75
        case 4:
            return xp.tanh(product(x, rng, values))
        case 5:
            return xp.tanh(xp.cumulative_sum(x, axis=-1)) if x.ndim else x * 0.5
        case 6:
            return xp.exp(-xp.abs(x))
        case _:
            if not x.ndim or 0 in x.shape:
                return x + 0.25
            name = ("mean", "max", "min", "sum")[rng.integers(4)]
            axis, keep = int(rng.integers(x.ndim)), bool(rng.integers(2))
            return xp.tanh(getattr(xp, name)(x, axis=axis, keepdims=keep))


SMOOTH_OPS: tuple[Op, ...] = (
    smooth, smooth, smooth, smooth, smooth, smooth, sliced, moved, shaped, shaped, updated,
)  # fmt: skip


def random_floats(draw: Draw, seed: int) -> str | None:
    """What is too far off in a random program of 5 to 40 nodes, called three times."""
    mesh = draw.mesh()
    shapes = [(draw.size(), draw.size()), (draw.size(),), (7, 4), (4, 7)]
    data = [np.tanh(np.nan_to_num(draw.values(shape, "f8"))).astype("f4") for shape in shapes]
    arrays = [draw.array(one, mesh) for one in data]
    doubles = [xp.astype(copied(one), np.float64) for one in arrays]
    function = random_function(seed, int(draw.rng.integers(5, 41)), SMOOTH_OPS)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        exact = [one.gather() for one in function(*doubles)]
        eager = [one.gather() for one in function(*map(copied, arrays))]
        step: Any = pgas.program(function)
        for call in range(3):
            try:
                got = [one.gather() for one in step(*map(copied, arrays))]
            except CaptureError as problem:
                return None if "through another" in str(problem) else f"refused: {problem}"
            for one, want, plain in zip(got, exact, eager, strict=True):
                if (one.shape, one.dtype) != (plain.shape, plain.dtype):
                    return f"seed {seed}: {one.dtype}{one.shape}, not {plain.dtype}{plain.shape}"
                far, usual = (np.abs(y - want).max(initial=0.0) for y in (one, plain))
                eps = float(np.finfo(one.dtype).eps)
                allowed = max(WORSE * usual, ROUNDINGS * eps * np.abs(want).max(initial=1.0))
                if not far <= allowed:
                    return f"seed {seed} on {mesh}, call {call}: off by {far}, eagerly by {usual}"
    return None


CHECKS = ("floats",)


def program() -> int:
    """0 if every program is near enough."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    draw = Draw(comm, args.seed)
    bad = 0
    for number in range(args.n):
        seed = 100_000 * args.seed + number
        bad += not all_well(comm, "floats", random_floats(draw, seed), str(seed))
    if comm.rank == 0:
        print(f"{args.n - bad} agree, {bad} do not ({comm.size} ranks)", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    main(program)
