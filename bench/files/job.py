"""Write and read an array as a file of NumPy: ``mpirun -n 2 python -m bench.files.job [--mib 256]``.

The rivals take turns in one job: redist, ``numpy.save`` and ``numpy.load`` of the whole array, and every
rank with its rows of ``numpy.lib.format.open_memmap``. All sync what they wrote. Medians, with quartiles.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import pgas
from redist.text.columns import table

COMM = MPI.COMM_WORLD


def by_hand(path: Path, a: Any) -> None:
    """Every rank writes its rows of a mapped file, as one would without redist."""
    if COMM.rank == 0:
        np.lib.format.open_memmap(path, "w+", a.dtype, a.shape)
    COMM.barrier()
    (lo, hi), *_ = a.box
    mapped = np.lib.format.open_memmap(path, "r+")
    mapped[lo:hi] = a.local
    mapped.flush()


def save(path: Path, whole: Any) -> None:
    """One process writes all."""
    if COMM.rank == 0:
        with path.open("wb") as file:
            np.save(file, whole)
            file.flush()
            os.fsync(file.fileno())


def rows_by_hand(path: Path, a: Any) -> Any:
    """Every rank reads its rows of a mapped file."""
    (lo, hi), *_ = a.box
    return np.array(np.load(path, mmap_mode="r")[lo:hi])


def measure(works: dict[str, Callable[[], Any]], check: Callable[[], None], n: int) -> list[Any]:
    """**Collective.** A row for each: its median, quartiles, and the ratio to the first."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(n):
        for name, work in works.items():
            COMM.barrier()
            start = time.perf_counter()
            work()
            COMM.barrier()
            taken[name].append(time.perf_counter() - start)
            check()
    rows, first = [], 0.0
    for name, seconds in taken.items():
        low, middle, high = quantiles(seconds, n=4)
        first = first or middle
        rows.append([name, f"{middle:.3f} s", f"{low:.3f}-{high:.3f}", f"{middle / first:.2f}"])
    return rows


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--n", type=int, default=5)
    parser.add_argument("--folder", default=None)
    args = parser.parse_args()
    name = tempfile.mkdtemp(dir=args.folder) if COMM.rank == 0 else ""
    path = Path(COMM.bcast(name)) / "a.npy"
    shape = (args.mib * 2**17 // 256, 256)
    a = pgas.from_function(lambda i, j: i + j / 256, shape, type="{x}, {}")
    columns = a.to("{}, {x}")
    whole = a.gather()

    def check() -> None:
        assert np.array_equal(np.load(path, mmap_mode="r"), whole), "other values"
        COMM.barrier()

    def nothing() -> None:
        COMM.barrier()

    rows = measure(
        {
            "pgas.write_npy, cut by rows": lambda: pgas.write_npy(path, a),
            "pgas.write_npy, cut by columns": lambda: pgas.write_npy(path, columns),
            "numpy.save on one rank": lambda: save(path, whole),
            "open_memmap by hand": lambda: by_hand(path, a),
        },
        check,
        args.n,
    )
    rows += measure(
        {
            "pgas.read_npy by rows": lambda: pgas.read_npy(path, type="{x}, {}"),
            "numpy.load on every rank": lambda: np.load(path),
            "mapped rows by hand": lambda: rows_by_hand(path, a),
        },
        nothing,
        args.n,
    )
    if COMM.rank == 0:
        path.unlink()
        path.parent.rmdir()
        print(f"{args.mib} MiB, {COMM.size} ranks; ratios to the first of each kind")
        print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
