"""Lloyd steps and candidates for seeds on a GPU have the bits of the host's; the CUDA source runs as C++ too.

As in ``python -m tests.programs.learn.gpu_lloyd``; ``--with-gpu`` runs it on one.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from mpi4py import MPI

from redist.learn.kernels import steps
from redist.learn.kernels.cuda.lloyd import tiling_for
from redist.runtime.cuda.arrays import to_device, to_host
from redist.spmd import ExactGrid
from tests.fakes import numpy_cupy as standin
from tests.programs.together import all_well, main

COMM = MPI.COMM_WORLD
SIZES = (
    (0, 3, 2), (1, 1, 1), (1000, 16, 64), (3001, 3, 7), (700, 5, 130), (300, 40, 9), (300, 200, 9),
    (300, 128, 64), (260, 3, 5000), (60, 2000, 3), (99, 300, 64),
)  # fmt: skip
CHECKS = ("lloyd_step", "without_sums", "not_aligned", "candidates", "tilings")
Given = tuple[Any, Any, Any, Any, tuple[ExactGrid, ExactGrid]]


def case(n: int, d: int, k: int, dtype: Any) -> Given:
    """Rows, weights, centres, their norms, and grids."""
    rng = np.random.default_rng(n + d + k)
    rows, centers = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(k, d)).astype(dtype)
    if n > 9:
        rows[:9] = centers[0]  # equally far from what is equal
        centers[-1] = centers[0]
    weights = rng.uniform(size=n).astype(dtype)
    grids = ExactGrid.for_sum(10.0, max(n, 1)), ExactGrid.for_sum(1.0, max(n, 1))
    return rows, weights, centers, (centers * centers).sum(axis=1), grids


def step(n: int, d: int, k: int, dtype: Any, sums: bool = True, shift: int = 0) -> str | None:
    """What differs between a step of the host and one of the GPU, whose rows begin off by some numbers."""
    rows, weights, centers, norms, grids = case(n, d, k, dtype)
    asked = grids if sums else None
    labels = np.full(n, -1, np.int32)
    there = to_device(np.concatenate([np.zeros(shift, dtype), rows.reshape(-1)]))[shift:]
    own = to_device(labels.copy())
    want = steps.lloyd_step(rows, weights, centers, norms, labels, asked)
    got = steps.lloyd_step(there.reshape(n, d), to_device(weights), centers, norms, own, asked)
    words = f"{n} x {d}, k={k}, {np.dtype(dtype)}"
    if want[0] != got[0] or not np.array_equal(labels, to_host(own)):
        return f"other labels: {words}"
    if sums and not np.array_equal(want[1], got[1]):  # type: ignore[arg-type]
        return f"other sums: {words}"
    return None


def first_wrong(**options: Any) -> str | None:
    found = [step(*size, dtype, **options) for size in SIZES for dtype in (np.float32, np.float64)]
    return next((one for one in found if one is not None), None)


def candidates() -> str | None:
    """Distances to the nearest of candidates and their sums."""
    for n, d, _ in SIZES[1:]:
        rows, weights, *_ = case(n, d, 2, np.float64)
        norms = (rows * rows).sum(axis=1)
        closest, some = np.full(n, 5.0), rows[: min(3, n)]
        grid = ExactGrid.for_sum(5.0, n)
        want = steps.try_candidates(rows, norms, weights, some, norms[: len(some)], closest, grid)
        x, squares, own = (to_device(one) for one in (rows, norms, weights))
        got = steps.try_candidates(
            x, squares, own, some, norms[: len(some)], to_device(closest), grid
        )
        if not (np.array_equal(want[0], to_host(got[0])) and np.array_equal(want[1], got[1])):
            return f"other candidates: {n} x {d}"
    return None


def tilings() -> str | None:
    """The sizes above are shared out in every way."""
    found = [tiling_for(k, d, 4) for _, d, k in SIZES]
    kinds = {None if t is None else (t.in_registers, t.near_sums) for t in found}
    wanted = {None, (True, True), (True, False), (False, True), (False, False)}
    return None if kinds == wanted else f"only {kinds}"


def program() -> int:
    """0 if nothing is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--with-gpu", action="store_true")
    if not parser.parse_args().with_gpu:
        standin.install()
    found = {
        "lloyd_step": first_wrong(),
        "without_sums": first_wrong(sums=False),
        "not_aligned": first_wrong(shift=1),
        "candidates": candidates(),
        "tilings": tilings(),
    }
    return int(not all([all_well(COMM, name, wrong) for name, wrong in found.items()]))


if __name__ == "__main__":
    main(program)
