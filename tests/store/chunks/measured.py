"""Random rechunks, each in a process of its own: ``python -m tests.store.chunks.measured SEED COUNT FOLDER``.

A line of JSON for each: the limit, the peak of the plan, and the peak above what the process had before;
then bytes that were moved beside those of the plan. Needs zarr and h5py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import redist
from redist.errors import NoPlanError


def make(path: Path, kind: str, x: np.ndarray, chunks: tuple[int, ...], shards: Any) -> None:
    """Write an array to a file of some kind."""
    import h5py
    import zarr

    if kind == "npy":
        np.save(path, np.asfortranarray(x) if shards else x)
    elif kind == "hdf5":
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=x, chunks=chunks, compression="gzip", compression_opts=1)
    else:
        more = {"shards": shards} if kind == "zarr3" else {}
        made = zarr.create_array(
            path, shape=x.shape, chunks=chunks, dtype=x.dtype, zarr_format=int(kind[-1]), **more
        )
        made[...] = x


def status(name: str) -> int:
    """A figure of this process, in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


def random_case(rng: Random, folder: Path, number: int) -> tuple[Path, dict[str, Any], int]:
    """A source of some 40 MB, chunks for it, and the least limit."""
    shape = rng.choice(
        [(rng.randint(200, 400), 160, 160), (3000, rng.randint(2000, 4000)), (10**7,)]
    )
    x = np.random.default_rng(number).integers(0, rng.choice([3, 2**30]), shape).astype("f4")
    chunks = tuple(max(1, n // rng.choice([1, 2, 7, 40])) for n in shape)
    new = tuple(max(1, n // rng.choice([1, 3, 10, 31])) for n in shape)
    kind = rng.choice(["zarr2", "zarr3", "zarr3", "hdf5", "npy"])
    shards = tuple(n * rng.choice([1, 2]) for n in chunks) if rng.random() < 0.5 else None
    outer = tuple(n * rng.choice([1, 2]) for n in new) if rng.random() < 0.4 else None
    source = folder / f"{number}.{kind}"
    make(source, kind, x, chunks, shards)
    options: dict[str, Any] = {"chunks": new, "shards": outer, "threads": rng.choice([1, 2])}
    try:
        redist.plan_rechunk(source, folder / f"{number}.out", limit_bytes=1, **options)
    except NoPlanError as error:
        return source, options, error.least_bytes
    raise AssertionError("a plan for one byte")


def measure(source: Path, options: dict[str, Any], limit: int, target: Path) -> dict[str, Any]:
    """Rechunk in this process, which has done nothing large before: peak above that, and what moved."""
    warm = target.with_suffix(".warm.npy")
    np.save(warm, np.zeros((64, 64), "f4"))
    redist.rechunk(warm, warm.with_suffix(".zarr"), chunks=(8, 8), shards=(16, 16), verify=True)
    redist.rechunk(warm.with_suffix(".zarr"), warm.with_suffix(".2.zarr"), chunks=(8, 8))
    make(warm.with_suffix(".h5"), "hdf5", np.zeros((64, 64), "f4"), (8, 8), None)
    redist.rechunk(warm.with_suffix(".h5"), warm.with_suffix(".3.zarr"))
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    done = redist.rechunk(source, target, limit_bytes=limit, **options)
    way = done.plan.arrays[0].plan.way
    return {
        "limit": limit, "planned_peak": done.plan.peak_bytes, "peak": (status("VmHWM") - before) * 1024,
        "moved": done.read_bytes + done.written_bytes,
        "planned": done.plan.read_bytes + done.plan.written_bytes, "way": str(way), "options": options,
    }  # fmt: skip


def main(seed: int, count: int, folder: Path) -> None:
    """Make some cases, limits from the least to four times that, and measure each in a new process."""
    rng = Random(seed)
    for number in range(count):
        source, options, least = random_case(rng, folder, seed * 1000 + number)
        limit = int(least * rng.choice([1, 1, 1.2, 2, 4]))
        case = [str(source), options, limit, str(folder / f"{number}.out")]
        done = subprocess.run(
            [sys.executable, "-m", "tests.store.chunks.measured", "case", json.dumps(case)],
            stdout=subprocess.PIPE, check=True, text=True,
        )  # fmt: skip
        print(done.stdout, end="", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "case":
        source, options, limit, target = json.loads(sys.argv[2])
        print(json.dumps(measure(Path(source), options, limit, Path(target))))
    else:
        main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
