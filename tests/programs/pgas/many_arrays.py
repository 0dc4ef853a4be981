"""Thousands of live arrays within the usual limit of open files, moved again and again.

As in ``mpirun -n 4 python -m tests.programs.pgas.many_arrays``.
"""

from __future__ import annotations

import gc
import os
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import pgas
from tests.programs.pgas.rounds import names_of
from tests.programs.together import all_well, main
from tests.tiers import sample

COMM = MPI.COMM_WORLD
OPEN_FILES = 1024
"""The usual soft limit of a process."""
N_ARRAYS = sample(1100, of=10000)
ROWS = 128 * COMM.size
"""Of 64 columns: a tile has 64 KiB, and so lies in shared memory."""
CALLS = sample(6, of=12)


def descriptors() -> int:
    """The open files of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def mappings() -> int:
    """The mapped segments of redist in this process."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:redist-")


def arrays_by_the_thousand_stay_right() -> str | None:
    """Why not, if there are too many files or mappings, or a move gives other values."""
    first = pgas.full((ROWS, 64), -1.0, type="{x}, {}")
    before = descriptors()
    for _ in range(3):
        first.gather()  # from the second time on a recorded call
    kept = [pgas.full((ROWS, 64), float(k), type="{x}, {}") for k in range(N_ARRAYS)]
    for turn in range(3):
        for k in range(turn, N_ARRAYS, 3 + 6 * turn):  # of all, which are alive
            if not (kept[k].gather() == k).all():
                return f"array {k} is wrong in turn {turn}"
            if k % 100 == 0 and not np.all(kept[k].to("{}, {x}").local == k):
                return f"array {k} has wrong columns in turn {turn}"
        if not (first.gather() == -1).all():
            return f"a repeated move is wrong in turn {turn}"
        for k in range(turn, N_ARRAYS, 5 + turn):  # others in the memory of those that end
            kept[k] = pgas.full((ROWS, 64), float(k), type="{x}, {}")
    if descriptors() > before + 12:
        return f"{descriptors() - before} more open files"
    if mappings() > 12 * COMM.size:
        return f"{mappings()} mapped segments"
    return None


def calls_within_a_limit_leave_nothing_open() -> str | None:
    """Why not, if descriptors or mappings grow from call to call."""

    def layers(x: Any, weights: Any) -> Any:
        for w in weights:
            x = pgas.tanh(x @ w) + x
        return x

    draw = pgas.random.generator(3)
    weights = [0.05 * draw.normal((256, 256), type="{x}, {}") for _ in range(6)]
    x = draw.normal((256, 256), type="{}, {x}")
    want = layers(x, weights).gather()
    with tempfile.TemporaryDirectory() as folder:
        limit = 24 * 2**16 + 5 * x.type.tile_bytes
        step = pgas.program(limit=limit, spill=folder)(layers)
        counts = []
        for call in range(CALLS):
            if not np.allclose(step(x, weights).gather(), want):
                return f"call {call} is wrong"
            counts.append((descriptors(), mappings()))
    middle, last = counts[CALLS // 2], counts[-1]
    return None if last == middle else f"files and mappings grow from {middle} to {last}"


PARTS: tuple[Callable[[], str | None], ...] = (
    arrays_by_the_thousand_stay_right,
    calls_within_a_limit_leave_nothing_open,
)
CHECKS = names_of(PARTS)


def program() -> int:
    """0 if everything is as it should be."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, most), most))
    wrong = sum(not all_well(COMM, part.__name__, part()) for part in PARTS)
    return 1 if wrong else 0


if __name__ == "__main__":
    main(program)
