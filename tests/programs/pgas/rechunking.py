"""Rechunks on all ranks, against what was written.

As in ``mpirun -n 3 python -m tests.programs.pgas.rechunking``; needs zarr and h5py.
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import Any

import numpy as np

import redist
from tests.programs.pgas.reading import COMM, folder, refused, stored
from tests.programs.together import main, run_named


def values(shape: Any) -> Any:
    return np.random.default_rng(0).integers(0, 1000, shape).astype(np.float32)


def write(path: Any, kind: str, shape: Any, chunks: Any, shards: Any = None) -> None:
    from tests.store.chunks.measured import make

    make(path, kind, values(shape), chunks, shards)


def every_way_gives_the_same_elements() -> str | None:
    import zarr

    shape = (30, 17, 12)
    for kind, chunks, shards in (
        ("zarr3", (1, 17, 12), None), ("zarr3", (5, 4, 3), (10, 8, 12)), ("zarr2", (4, 17, 5), None),
        ("hdf5", (7, 3, 12), None), ("npy", shape, None), ("npy", shape, (1,)),
    ):  # fmt: skip
        name = f"{kind} {chunks} {shards}.{kind}"
        source = stored(name, partial(write, kind=kind, shape=shape, chunks=chunks, shards=shards))
        for limit, new, outer in ((25 * 2**20, (30, 3, 5), None), (2**30, (4, 4, 4), (8, 8, 8))):
            target = folder() / "out.zarr"
            done = redist.rechunk(source, target, new, outer, limit, verify=True, overwrite=True)
            if len({*COMM.allgather(done.plan.digest)}) != 1:
                return f"{name}: plans differ"
            found = zarr.open(target, mode="r")
            found = found["x"] if kind == "hdf5" else found
            same = np.array_equal(found[...], values(shape))
            if found.chunks != new or found.shards != outer or not same:
                return f"{name} to {new} {outer}: {done.plan}"
            COMM.barrier()
    return None


def a_scratch_file_is_filled_by_all_ranks() -> str | None:
    import zarr

    source = stored("s.zarr", partial(write, kind="zarr3", shape=(64, 32, 32), chunks=(1, 32, 32)))
    done = redist.rechunk(source, folder() / "t.zarr", (64, 4, 4), limit_bytes=24 * 2**20 + 90_000)
    if done.plan.arrays[0].plan.way.kind != "scratch":
        return str(done.plan)
    found = zarr.open_array(folder() / "t.zarr", mode="r")[...]
    return None if np.array_equal(found, values((64, 32, 32))) else "other elements"


def errors_are_one() -> str | None:
    source = stored("e.zarr", partial(write, kind="zarr3", shape=(8, 8), chunks=(1, 8)))
    rank = COMM.rank
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ("none.zarr", {"chunks": (2, 2)}, "no such file"),
        (source, {"chunks": (2, 2, 2)}, "3 sizes and 2 dims"),
        (source, {"chunks": (2, 2), "limit_bytes": 10}, "give limit_bytes="),
        *([(source, {"chunks": (2 + rank, 2)}, "ranks disagree")] if COMM.size > 1 else []),
    ]
    for path, options, said in cases:
        found = refused(partial(redist.rechunk, path, folder() / "e.out", **options))
        if said not in found:
            return f"{said!r}: {found}"
    return None


def a_rank_that_fails_ends_all_and_the_rest_follows() -> str | None:
    import zarr

    from redist.store.chunks.targets import ZarrTarget

    source = stored("f.zarr", partial(write, kind="zarr3", shape=(64, 16), chunks=(1, 16)))
    target, real = folder() / "f.out", ZarrTarget.write

    def fail(self: Any, box: Any, values: Any) -> None:
        if COMM.rank == COMM.size - 1 and box[1][0] > 2:
            raise OSError(28, "No space left on device")
        real(self, box, values)

    ZarrTarget.write = fail  # type: ignore[method-assign]
    try:
        said = refused(partial(redist.rechunk, source, target, (64, 1)))
    finally:
        ZarrTarget.write = real  # type: ignore[method-assign]
    if "No space left on device" not in said or "the same call goes on from there" not in said:
        return said
    if target.exists():
        return "half a target has its name"
    COMM.barrier()
    done = redist.rechunk(source, target, (64, 1))
    found = zarr.open_array(target, mode="r")[...]
    if not done.resumed or not np.array_equal(found, values((64, 16))):
        return f"{done}"
    COMM.barrier()
    if COMM.rank == 0:
        shutil.rmtree(folder())
    folder.cache_clear()
    return None


CHECKED = (
    every_way_gives_the_same_elements,
    a_scratch_file_is_filled_by_all_ranks,
    errors_are_one,
    a_rank_that_fails_ends_all_and_the_rest_follows,
)
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
