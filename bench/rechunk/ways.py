"""The same rechunk by each library, in a process of its own: ``python -m bench.rechunk.ways WAY JSON``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]
Asked = dict[str, Any]


def values(shape: tuple[int, ...], box: tuple[slice, ...]) -> Values:
    """The elements of a box, by a formula of the index: a smooth field with eight bits of noise."""
    t, y, x = (np.arange(one.start, one.stop, dtype=np.uint32) for one in box)
    place = (t[:, None, None] * np.uint32(shape[1]) + y[:, None]) * np.uint32(shape[2]) + x
    noise = ((place * np.uint32(2654435761)) >> np.uint32(24)).astype(np.float32)
    smooth = (y[:, None] + x)[None] + (t % 24)[:, None, None]
    return smooth.astype(np.float32) + noise / np.float32(256)


def make(source: Path, shape: tuple[int, ...]) -> None:
    """Write the source, in chunks of one step of time."""
    import zarr

    made = zarr.create_array(source, shape=shape, chunks=(1, *shape[1:]), dtype="f4")
    for at in range(0, shape[0], 64):
        box = (slice(at, min(shape[0], at + 64)), slice(0, shape[1]), slice(0, shape[2]))
        made[box] = values(shape, box)


def boxes(shape: tuple[int, ...], chunks: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The boxes of all chunks."""
    for y in range(0, shape[1], chunks[1]):
        for x in range(0, shape[2], chunks[2]):
            yield slice(0, shape[0]), slice(y, y + chunks[1]), slice(x, x + chunks[2])


def is_right(target: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> bool:
    """Whether a store has these chunks, and every element is what the formula says."""
    import zarr

    found = zarr.open_array(target, mode="r")
    if found.shape != shape or found.chunks != chunks:
        return False
    return all(np.array_equal(found[box], values(shape, box)) for box in boxes(shape, chunks))


def by_redist(asked: Asked) -> None:
    """One process; a limit for all of its buffers."""
    import redist

    redist.rechunk(
        asked["source"], asked["target"], asked["chunks"], limit_bytes=asked["memory_bytes"],
        threads=asked["workers"],
    )  # fmt: skip


def by_cubed(asked: Asked) -> None:
    """One process with threads; its limit is that of a task."""
    import cubed

    allowed = asked["memory_bytes"]
    spec = cubed.Spec(work_dir=asked["folder"], allowed_mem=allowed, reserved_mem=0)
    array = cubed.from_zarr(asked["source"], spec=spec).rechunk(tuple(asked["chunks"]))
    cubed.to_zarr(array, asked["target"])


def by_dask(method: str, asked: Asked) -> None:
    """Some workers, which share the memory, and a scheduler."""
    import dask
    import dask.array
    from distributed import Client, LocalCluster

    dask.config.set({"temporary-directory": asked["folder"]})
    each = asked["memory_bytes"] // asked["workers"]
    with (
        LocalCluster(
            n_workers=asked["workers"], threads_per_worker=1, memory_limit=each, dashboard_address=None
        ) as cluster,
        Client(cluster),
    ):  # fmt: skip
        array = dask.array.from_zarr(asked["source"]).rechunk(tuple(asked["chunks"]), method=method)
        array.to_zarr(asked["target"])


WAYS: dict[str, Callable[[Asked], None]] = {
    "redist": by_redist,
    "cubed": by_cubed,
    "dask-p2p": lambda asked: by_dask("p2p", asked),
    "dask-tasks": lambda asked: by_dask("tasks", asked),
}

if __name__ == "__main__":
    WAYS[sys.argv[1]](json.loads(sys.argv[2]))
