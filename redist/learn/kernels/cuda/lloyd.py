"""Lloyd steps and candidates for seeds on a GPU: the same bits as in C."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from redist.learn.kernels.library import C_TYPES, source_of
from redist.runtime.cuda.arrays import device_address, to_device, to_host
from redist.runtime.cuda.loops import MOST_SHARED_BYTES, functions_for, n_processors, run_loop
from redist.spmd import ExactGrid

THREADS = 256
"""Of a block, where they fit."""
MOST_SUM_BYTES = 32 * 1024
"""Sums that take more leave too little of a processor's memory to blocks side by side."""
REGISTER_BYTES, TWO_ROWS_BYTES = 512, 128
"""Rows up to this many bytes stay in a thread's registers, and up to this many two of them."""


def lloyd_step(
    rows: Any, weights: Any, centers: Any, norms: Any, labels: Any,
    grids: tuple[ExactGrid, ExactGrid] | None,
) -> tuple[int, Any]:  # fmt: skip
    """**Local.** As :func:`redist.learn.kernels.steps.lloyd_step`; centres and sums are in memory."""
    xp = functions_for(rows)
    n, (k, d) = len(rows), centers.shape
    own_norms, changed = to_device(norms), xp.zeros(1, np.uint64)
    sums = steps = None
    if grids is not None:
        sums, steps = xp.zeros((k, 2, d + 1), np.float64), to_device(constants_of(grids))
    tiling = tiling_for(k, d, rows.dtype.itemsize)
    if not n:
        pass
    elif tiling is not None:
        padded = np.zeros((k, tiling.pitch), rows.dtype)
        padded[:, :d] = centers
        options = (
            f"-DREAL={C_TYPES[rows.dtype]}",
            f"-DALIGNED={int(is_aligned(rows))}",
            *tiling.options,
        )
        room = tiling.shared_bytes
        blocks = min(-(-n // tiling.n_rows), n_processors() * max(1, MOST_SHARED_BYTES // room))
        run_loop(
            source_of("lloyd"), "lloyd", blocks, tiling.n_threads, rows, n, weights, to_device(padded),
            own_norms, k, labels, steps, sums, changed, options=options, shared_bytes=room,
        )  # fmt: skip
    else:
        own_centers = to_device(centers.astype(rows.dtype))
        _run_wide(rows, "label", n, d, own_centers, own_norms, k, labels, changed)
        if sums is not None:
            _run_wide(rows, "add_rows", n, d, weights, labels, steps, sums)
    return int(to_host(changed)[0]), None if sums is None else to_host(sums)


def try_candidates(
    rows: Any, norms: Any, weights: Any, candidates: Any, candidate_norms: Any, closest: Any,
    grid: ExactGrid,
) -> tuple[Any, Any]:  # fmt: skip
    """**Local.** As :func:`redist.learn.kernels.steps.try_candidates`; candidates and sums are in memory."""
    xp = functions_for(rows)
    (n, d), trials = rows.shape, len(candidates)
    near = xp.empty((trials, n), np.float64)
    given = to_device(candidates.astype(rows.dtype)), to_device(candidate_norms)
    _run_wide(rows, "try_candidates", n, d, norms, *given, trials, closest, near)
    sums = np.stack([to_host(grid.sum_rows(one * weights)) for one in near])
    return near, sums


def batch_step(batch: Any, labels: Any, centers: Any, counts: Any) -> tuple[Any, Any, Any]:
    """**Local.** A step of k-means by batches: centres, how many rows each had, and squares of distances.

    The batch and its labels are on the GPU, all else in memory, before and after. Centres move by their
    rows in the order of the batch; distances are those to the centres before.
    """
    (k, d), n = centers.shape, len(batch)
    told = to_device(np.concatenate([centers.reshape(-1), counts]).astype(batch.dtype))
    found = functions_for(batch).empty(k * d + k + n, batch.dtype)
    blocks = min(-(-(k * d + n) // 128), 32 * n_processors())
    options = (f"-DREAL={C_TYPES[batch.dtype]}",)
    run_loop(
        source_of("batches"), "move_centers", blocks, 128, batch, n, d, labels, k, told, found,
        options=options,
    )  # fmt: skip
    new, counted, far = np.split(to_host(found), [k * d, k * d + k])
    return new.reshape(k, d), counted, far


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


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a block shares a Lloyd step out: rows of a thread, and what it keeps in its memory."""

    k: int
    d: int
    n_bytes: int
    """Of a number."""
    n_threads: int
    per_thread: int
    in_registers: bool
    near_centers: bool
    near_sums: bool

    @property
    def n_rows(self) -> int:
        """Rows that a block takes at a time."""
        return self.n_threads * self.per_thread

    @property
    def pitch(self) -> int:
        """How many numbers rows are apart in the block's memory."""
        lanes = 16 // self.n_bytes
        return (-(-self.d // lanes) | 1) * lanes

    @property
    def shared_bytes(self) -> int:
        """What a block takes of a processor's memory, as lloyd.cu lays it out."""
        k, lanes = self.k, 16 // self.n_bytes
        numbers = (self.n_rows + self.near_centers * k) * self.pitch + -(-k // lanes) * lanes
        sums = 16 * k * (self.d + 1) * self.near_sums
        return sums + self.n_bytes * (numbers + self.n_rows) + 4 * (2 * k + 2) + 6 * self.n_rows

    @property
    def options(self) -> tuple[str, ...]:
        """What the compiler is told."""
        flags = {
            "DIMS": self.d, "THREADS": self.n_threads, "PER_THREAD": self.per_thread,
            "IN_REGISTERS": self.in_registers, "NEAR_CENTERS": self.near_centers,
            "NEAR_SUMS": self.near_sums,
        }  # fmt: skip
        return tuple(f"-D{name}={int(value)}" for name, value in flags.items())


@lru_cache(maxsize=256)
def tiling_for(k: int, d: int, n_bytes: int) -> Tiling | None:
    """**Local.** The first that fits, the quickest ones first; None if a block's memory is too small.

    >>> tiling_for(64, 16, 4).in_registers, tiling_for(64, 200, 4).in_registers, tiling_for(8, 5000, 4)
    (True, False, None)
    """
    if k >= 2**15:
        return None
    row_bytes = d * n_bytes
    near_sums = 16 * k * (d + 1) <= MOST_SUM_BYTES
    each = 2 if row_bytes <= TWO_ROWS_BYTES else 1
    for threads, near_centers in itertools.product((THREADS, 128, 64, 32), (True, False)):
        in_registers = row_bytes <= REGISTER_BYTES
        found = Tiling(k, d, n_bytes, threads, each, in_registers, near_centers, near_sums)
        if found.shared_bytes <= MOST_SHARED_BYTES:
            return found
    return None
