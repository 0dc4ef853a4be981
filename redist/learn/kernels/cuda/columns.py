"""Columns of rows on a GPU, with the host's bits.

How far each two are apart, means of sets of them, and products with blocks of columns.
"""

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


def times(rows: Any, block: Any) -> Any:
    """**Local.** Rows on a GPU times a block in memory; the product is in memory."""
    (n, d), k = rows.shape, block.shape[1]
    out = functions_for(rows).empty((n, k))
    if out.size:
        blocks = min(-(-out.size // THREADS), 64 * n_processors())
        _run(rows, "row_products", blocks, n, d, to_device(np.ascontiguousarray(block)), k, out)
    return to_host(out)


def inner_sums(rows: Any, block: Any, grid: ExactGrid) -> Any:
    """**Local.** Inner products of columns of rows on a GPU and of a block: ``2, d, k``; both in memory."""
    (n, d), k = rows.shape, block.shape[1]
    sums = functions_for(rows).zeros((2, d, k))
    if n and sums.size:
        stretch = max(16, n * d * k // (2048 * n_processors()))
        blocks = min(-(-d * k * -(-n // stretch) // THREADS), 64 * n_processors())
        other = to_device(np.ascontiguousarray(block))
        _run(rows, "inner_products", blocks, n, d, other, k, stretch, *grid.steps, sums)
    return to_host(sums)


def _run(rows: Any, loop: str, blocks: int, *args: Any, squared: bool = True) -> None:
    options = f"-DREAL={C_TYPES[rows.dtype]}", f"-DSQUARED={int(squared)}", f"-DTHREADS={THREADS}"
    run_loop(source_of("columns"), loop, blocks, THREADS, rows, *args, options=options)
