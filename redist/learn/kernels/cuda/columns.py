"""Columns of rows on a GPU: how far each two are apart, and means of sets of them; the host's bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from redist.learn.kernels.library import C_TYPES, source_of
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for, n_processors, run_loop
from redist.spmd import ExactGrid

THREADS = 256
"""Of a block, ACROSS * ACROSS of columns.cu."""
WIDE, STRETCH = 64, 1024
"""Columns of a block on either side, as WIDE in columns.cu, and rows that it goes through at most."""


def pair_sums(rows: Any, grid: ExactGrid, squared: bool) -> Any:
    """**Local.** As :func:`redist.learn.kernels.steps.pair_sums`; the sums are in memory."""
    n, d = rows.shape
    sums = functions_for(rows).zeros((2, d, d))
    if n:
        sets = -(-d // WIDE)
        least = max(
            1, 8 * n_processors() // (sets * sets)
        )  # parts, so that all have something to do
        stretch = max(1, min(STRETCH, -(-n // least)))
        blocks = sets * sets * -(-n // stretch)
        _run(rows, "column_pairs", blocks, n, d, stretch, *grid.steps, sums, squared=squared)
    return to_host(sums)


def column_means(rows: Any, labels: Any) -> Any:
    """**Local.** The mean of the columns with each label, ``n, k``: sums as ``bincount`` adds them up."""
    n, d = rows.shape
    sizes = np.bincount(labels)
    begins, order = np.append(0, np.cumsum(sizes)), np.argsort(labels, kind="stable")
    means = functions_for(rows).empty((n, len(sizes)))
    if n:
        blocks = min(-(-means.size // THREADS), 64 * n_processors())
        lists = to_device(order.astype(np.int64)), to_device(begins.astype(np.int64))
        _run(rows, "column_means", blocks, n, d, *lists, len(sizes), means)
    return means


def _run(rows: Any, loop: str, blocks: int, *args: Any, squared: bool = True) -> None:
    options = f"-DREAL={C_TYPES[rows.dtype]}", f"-DSQUARED={int(squared)}", f"-DTHREADS={THREADS}"
    run_loop(source_of("columns"), loop, blocks, THREADS, rows, *args, options=options)
