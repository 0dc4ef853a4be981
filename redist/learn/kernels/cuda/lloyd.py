"""Lloyd steps and candidates for seeds on a GPU: the same bits as in C."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from redist.learn.kernels.exact_sums import ExactGrid
from redist.runtime.cuda.arrays import device_address, to_device, to_host
from redist.runtime.cuda.loops import functions_for, n_processors, run_loop

THREADS = 128
"""Of a block."""
MOST_SHARED_BYTES = 220 * 1024
"""What a block may take of a processor's memory; blocks side by side share it."""
MOST_NUMBERS = 64
"""A thread holds so many 4-byte numbers of rows at most: they stay in registers."""
MOST_PER_THREAD = 4
C_TYPES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


@lru_cache(maxsize=16)
def source_of(*names: str) -> str:
    """**Local.** The text of files of loops, after what all of them share."""
    folder = Path(__file__).parent
    return "\n".join(
        (folder / f"{one}.cu").read_text(encoding="utf-8") for one in ("threads", *names)
    )


def lloyd_step(
    rows: Any,
    weights: Any,
    centers: Any,
    norms: Any,
    labels: Any,
    grids: tuple[ExactGrid, ExactGrid] | None,
) -> tuple[int, Any]:
    """**Local.** As :func:`redist.learn.kernels.steps.lloyd_step`; centres and sums are in memory."""
    xp = functions_for(rows)
    n, (k, d) = len(rows), centers.shape
    own_centers, own_norms = to_device(centers.astype(rows.dtype)), to_device(norms)
    changed = xp.zeros(1, np.uint64)
    sums = steps = None
    if grids is not None:
        sums, steps = xp.zeros((k, 2, d + 1), np.float64), to_device(constants_of(grids))
    per_thread = rows_per_thread(k, d, rows.dtype.itemsize)
    if not n:
        pass
    elif per_thread:
        tile = per_thread * THREADS
        options = (
            f"-DREAL={C_TYPES[rows.dtype]}", f"-DDIMS={d}", f"-DTHREADS={THREADS}",
            f"-DPER_THREAD={per_thread}", f"-DALIGNED={int(is_aligned(rows))}",
        )  # fmt: skip
        room = shared_bytes(k, d, rows.dtype.itemsize, per_thread)
        blocks = min(-(-n // tile), n_processors() * max(1, MOST_SHARED_BYTES // room))
        run_loop(
            source_of("lloyd"), "lloyd", blocks, THREADS, rows, n, weights, own_centers, own_norms,
            k, labels, steps, sums, changed, options=options, shared_bytes=room,
        )  # fmt: skip
    else:
        _run_wide(rows, "label", n, d, own_centers, own_norms, k, labels, changed)
        if sums is not None:
            _run_wide(rows, "add_rows", n, d, weights, labels, steps, sums)
    return int(to_host(changed)[0]), None if sums is None else to_host(sums)


def try_candidates(
    rows: Any,
    norms: Any,
    weights: Any,
    candidates: Any,
    candidate_norms: Any,
    closest: Any,
    grid: ExactGrid,
) -> tuple[Any, Any]:
    """**Local.** As :func:`redist.learn.kernels.steps.try_candidates`; candidates and sums are in memory."""
    xp = functions_for(rows)
    (n, d), trials = rows.shape, len(candidates)
    near = xp.empty((trials, n), np.float64)
    given = to_device(candidates.astype(rows.dtype)), to_device(candidate_norms)
    _run_wide(rows, "try_candidates", n, d, norms, *given, trials, closest, near)
    sums = np.stack([to_host(grid.sum_rows(one * weights)) for one in near])
    return near, sums


def _run_wide(rows: Any, name: str, *args: Any) -> None:
    """**Local.** Start a loop with a thread for each row."""
    blocks = min(-(-len(rows) // 256), 32 * n_processors())
    options = (f"-DREAL={C_TYPES[rows.dtype]}",)
    run_loop(source_of("wide"), name, blocks, 256, rows, *args, options=options)


def constants_of(grids: tuple[ExactGrid, ExactGrid]) -> Any:
    """**Local.** The constants of both grids, as loops take them."""
    return np.array([*grids[0].steps, *grids[1].steps])


def is_aligned(rows: Any) -> bool:
    """**Local.** Whether rows can be read 16 bytes at a time."""
    row_bytes = rows.shape[1] * rows.dtype.itemsize
    return row_bytes % 16 == 0 and device_address(rows) % 16 == 0


def rows_per_thread(k: int, d: int, n_bytes: int) -> int:
    """**Local.** How many rows a thread looks after at a time; 0 if the block's memory is too small.

    >>> rows_per_thread(64, 16, 4), rows_per_thread(64, 16, 8), rows_per_thread(8, 500, 4)
    (4, 2, 0)
    """
    most = min(MOST_PER_THREAD, MOST_NUMBERS * 4 // max(1, d * n_bytes))
    fits = [
        m for m in (4, 2, 1) if m <= most and shared_bytes(k, d, n_bytes, m) <= MOST_SHARED_BYTES
    ]
    return max(fits, default=0) if k < 2**15 else 0


def shared_bytes(k: int, d: int, n_bytes: int, per_thread: int) -> int:
    """**Local.** What a block takes of a processor's memory, as lloyd.cu lays it out."""
    lanes, tile = 16 // n_bytes, per_thread * THREADS
    pitch = (-(-d // lanes) | 1) * lanes
    numbers = (tile + k) * pitch + -(-k // lanes) * lanes + tile
    return 16 * k * (d + 1) + n_bytes * numbers + 4 * (2 * k + 2) + 6 * tile
