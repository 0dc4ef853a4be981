"""Dask arrays as global arrays: equal to NumPy, chunks computed once, within the limit, one error on all.

As in ``mpirun -n 3 python -m tests.programs.foreign.dask_arrays``; needs Dask.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import pgas
from redist.measure.memory import can_measure
from redist.pgas.call_check import VARIABLE
from redist.pgas.files.blocks import LEAST_BYTES
from tests.programs.pgas.reading import COMM, TYPES, refused
from tests.programs.pgas.taking_blocks import beyond
from tests.programs.together import main, run_named

SLACK = 2 * 2**20
"""For objects of Python and of Dask, and pages that the allocator rounds up."""


def chunks_are_numpys() -> str | None:
    import dask.array as da

    values = np.arange(23 * 10.0).reshape(23, 10)
    for chunks in ((4, 10), (23, 3), ((1, 7, 0, 15), (6, 4)), (5, 5), -1):
        x = da.from_array(values, chunks=chunks) * 2 + 1
        for cut in TYPES:
            for given in (x, x.T, x[::2, 1:], x.astype("i2"), x.astype(">f4")):
                want = given.compute()
                a = pgas.asarray(given, type=cut)
                if not np.array_equal(a.gather(), want) or a.dtype != want.dtype.newbyteorder("="):
                    return f"{given} to {cut}: {a.type}"
    total = pgas.asarray(da.from_array(values, chunks=4).sum())
    if float(total) != values.sum():
        return f"of no dims: {total}"
    empty = pgas.asarray(da.zeros((0, 3), chunks=2))
    doubled = pgas.asarray(da.ones((4, 4), chunks=2, dtype="f4"), dtype="f8", type="{}, {x}")
    return None if empty.shape == (0, 3) and doubled.dtype == np.float64 else f"{empty.type}"


def chunks_are_computed_once() -> str | None:
    import dask.array as da

    seen, lock = [], threading.Lock()

    def note(block: Any, block_info: Any = None) -> Any:
        with lock:
            seen.append(block_info[0]["chunk-location"])
        return block + 1

    x = da.zeros((30, 8), chunks=(4, 3)).map_blocks(note, dtype="f8", meta=np.empty((0, 0)))
    for cut in TYPES:
        seen.clear()
        a = pgas.asarray(x, type=cut)
        every = sorted(one for own in COMM.allgather(seen) for one in own)
        if every != [*np.ndindex(8, 3)] or not np.array_equal(a.gather(), np.ones((30, 8))):
            return f"to {cut}: {every}"
    return None


def what_chunks_need_in_common_is_computed_once() -> str | None:
    """Chunks of one rank that are in hand together: their source is computed once there."""
    import dask.array as da

    seen: list[int] = []

    def source(block: Any) -> Any:
        seen.append(block.nbytes)
        return block

    x = da.ones((64, 64), chunks=-1).map_blocks(source, dtype="f8", meta=np.empty((0, 0)))
    pgas.asarray(x.rechunk((8, 64)), type="{x}, {}")
    return None if len(seen) == 1 else f"computed {len(seen)} times"


def the_limit_holds() -> str | None:
    """64 MiB in chunks of 512 KiB across tiles: what is taken beside the tile, as the kernel counts."""
    import dask
    import dask.array as da

    if not can_measure(COMM):
        return None
    n = 4096

    def make(block_info: Any = None) -> Any:
        rows, columns = (np.arange(lo, hi) for lo, hi in block_info[None]["array-location"])
        return (rows[:, None] * 3 + columns).astype("f4")

    x = da.map_blocks(
        make, chunks=((n,), (32,) * (n // 32)), dtype="f4", meta=np.empty((0, 0), "f4")
    )
    for limit in (3 * 2**20, 16 * 2**20):
        kept: list[Any] = []

        def once(limit: int = limit, kept: list[Any] = kept) -> None:
            with dask.config.set(scheduler="synchronous"):
                kept[:] = [pgas.asarray(x, type="{x}, {}", limit_bytes=limit)]

        once()
        corner, tile = float(kept[0][n - 1, n - 1]), kept[0].local.nbytes
        kept.clear()
        took = COMM.allreduce(beyond(once) - tile, MPI.MAX)
        kept.clear()
        if corner != (n - 1) * 4:
            return f"the last element is {corner}"
        if took > limit + SLACK:
            return f"within {limit}: took {took} beside a tile of {tile}"
        if COMM.rank == 0:
            print(
                f"limit {limit / 2**20:.0f} MiB: {took / 2**20:.2f} MiB beside {tile / 2**20:.0f} MiB",
                flush=True,
            )
    least = LEAST_BYTES + 2 * 4 * n * 32
    said = refused(partial(pgas.asarray, x, type="{x}, {}", limit_bytes=least - 1))
    return None if f"limit_bytes={least}" in said else said


def failures_are_one_error() -> str | None:
    import dask.array as da

    def fail(block: Any, block_info: Any = None) -> Any:
        if block_info[0]["chunk-location"] == (2, 0):
            raise ZeroDivisionError("no such luck")
        return block

    values = da.ones((12 * COMM.size, 4), chunks=(4 * COMM.size, 4))
    unknown = values[values[:, 0] > 0]
    wrong: list[tuple[str, Any, dict[str, Any]]] = [
        ("of a Dask array: ZeroDivisionError: no such luck",
         values.map_blocks(fail, dtype="f8", meta=np.empty((0, 0))), {}),
        ("it is float64", values.map_blocks(lambda b: b, dtype="f4", meta=np.empty((0, 0), "f4")), {}),
        ("x.compute_chunk_sizes()", unknown, {}),
        ("unknown dtype", values.astype(object), {}),
        ("the mask", da.ma.masked_equal(values, 1), {}),
        ("3 dims", values, {"type": "{x}, {}, {}"}),
        ("limit_bytes", values, {"limit_bytes": 7}),
        ("without a copy", values, {"copy": False}),
    ]  # fmt: skip
    if COMM.size > 1:
        said = "cannot make this call" if os.environ.get(VARIABLE, "0") != "0" else "ranks disagree"
        wrong.append((said, values if COMM.rank else values.T, {}))
    for words, x, options in wrong:
        said = refused(partial(pgas.asarray, x, **options))
        if words.replace("the mask", "mask would be lost") not in said:
            return f"{words}: {said}"
    said = refused(partial(pgas.asarray, [1, 2], limit_bytes=2**20))
    return None if "cannot use limit_bytes= here" in said else said


def a_cluster_is_asked_for() -> str | None:
    said = refused(partial(pgas.to_dask, pgas.ones((4, 4))))
    return None if "distributed.Client(address)" in said else said


CHECKS = {
    "chunks are NumPy's": chunks_are_numpys,
    "chunks are computed once": chunks_are_computed_once,
    "what chunks need in common": what_chunks_need_in_common_is_computed_once,
    "the limit holds": the_limit_holds,
    "failures are one error": failures_are_one_error,
    "a cluster is asked for": a_cluster_is_asked_for,
}


def program() -> int:
    """**Collective.** 0 if all checks hold."""
    return run_named(CHECKS)


if __name__ == "__main__":
    main(program)
