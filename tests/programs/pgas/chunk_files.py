"""Zarr stores and HDF5 files as global arrays, against what was written.

As in ``mpirun -n 3 python -m tests.programs.pgas.chunk_files``; needs zarr and h5py.
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import Any

import numpy as np

from redist import pgas
from tests.programs.pgas.reading import COMM, TYPES, folder, refused, stored
from tests.programs.pgas.rechunking import values, write
from tests.programs.together import main, run_named

SHAPES: list[tuple[Any, Any, Any]] = [
    ((23, 5), (4, 5), (8, 5)), ((23, 5), (23, 1), None), ((2, 40), (1, 7), None), ((1, 1), (1, 1), None),
    ((24, 6), (2, 3), (4, 6)), ((0, 3), (1, 3), None),
]  # fmt: skip


def chunks_are_read_by_ranks() -> str | None:
    for kind, read in (
        ("zarr3", pgas.read_zarr),
        ("zarr2", pgas.read_zarr),
        ("hdf5", pgas.read_hdf5),
    ):
        for shape, chunks, shards in SHAPES:
            if kind == "hdf5" and 0 in shape:
                continue
            name = f"{shape} {chunks} {shards}.{kind}"
            path = stored(
                name, partial(write, kind=kind, shape=shape, chunks=chunks, shards=shards)
            )
            for cut in TYPES:
                found = read(path, type=cut)
                if found.dtype != np.float32 or not np.array_equal(found.gather(), values(shape)):
                    return f"{name}, {cut}: {found.type}"
    return None


def group_of(path: Any) -> None:
    import h5py
    import zarr

    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["deep/raw"] = values((9, 4))
            file["one"] = 7.5
            file["words"] = np.array([b"a", b"bc"])
        return
    group = zarr.create_group(path)
    group.create_array("x", data=values((6, 4)))
    group.create_array("deep/one", data=np.array(7.5))


def arrays_of_groups_have_names() -> str | None:
    zarr_path, path = stored("g.zarr", group_of), stored("g.h5", group_of)
    for found, want in (
        (pgas.read_zarr(zarr_path, "x", type="{}, {x}"), values((6, 4))),
        (pgas.read_zarr(zarr_path, "deep/one"), np.array(7.5)),
        (pgas.read_hdf5(path, "/deep/raw", type="{x}, {}"), values((9, 4))),
        (pgas.read_hdf5(path, "one"), np.array(7.5)),
    ):
        if not np.array_equal(found.gather(), want):
            return f"{found.type}"
    cases: list[tuple[Any, str]] = [
        (partial(pgas.read_zarr, zarr_path), "it has deep/one, x; give name="),
        (partial(pgas.read_hdf5, path, "no"), "cannot read 'no' of"),
        (partial(pgas.read_hdf5, path, "words"), "and not numbers"),
        (partial(pgas.read_zarr, path), "it is an HDF5 file; pgas.read_hdf5 reads it"),
        (partial(pgas.read_hdf5, zarr_path, "x"), "it is a Zarr store; pgas.read_zarr reads it"),
        (partial(pgas.read_zarr, "none.zarr"), "no such file"),
        (partial(pgas.read_zarr, folder()), "not a Zarr store"),
    ]
    for call, said in cases:
        problem = refused(call)
        if said not in problem:
            return f"{said!r}: {problem}"
    return None


def arrays_of_any_type_are_written() -> str | None:
    import zarr

    path = folder() / "new.zarr"
    for shape, chunks, shards in (
        *SHAPES, ((50, 40), (3, 40), None), ((50, 41), (7, 7), (14, 21)), ((1001,), (10,), None),
        ((), (), None),
    ):  # fmt: skip
        made = values(shape)
        cuts: list[Any] = list(TYPES) if len(shape) == 2 else [None]
        for cut in cuts:
            a = pgas.asarray(made, type=cut)
            for limit in (None, 300_000):
                pgas.write_zarr(path, a, chunks=chunks, shards=shards, limit_bytes=limit)
                found = zarr.open_array(path, mode="r")
                same = np.array_equal(found[...], made) and found.dtype == made.dtype
                if not same or found.chunks != chunks or found.shards != shards:
                    return f"{shape} {chunks} {shards} {cut}: {found.info}"
                COMM.barrier()
    a = pgas.asarray(values((30, 30)), type="{x}, {}")
    pgas.write_zarr(path, a, dims=["y", "x"], attributes={"units": "m"}, codecs=[])
    found = zarr.open_array(path, mode="r")
    if (
        found.metadata.dimension_names != ("y", "x")
        or dict(found.attrs) != {"units": "m"}
        or found.compressors
    ):
        return f"{found.metadata}"
    sums = pgas.sum(pgas.ones((6, 30), type="{x}, {}"), axis=0)  # pending
    COMM.barrier()
    pgas.write_zarr(path, sums)
    return (
        None if np.array_equal(zarr.open_array(path, mode="r")[...], np.full(30, 6.0)) else "sums"
    )


def errors_are_one() -> str | None:
    a, large = pgas.ones((8, 8), type="{x}, {}"), pgas.ones((512, 512))
    if COMM.rank == 0:
        (folder() / "file").write_text("a")
    COMM.barrier()
    cases: list[tuple[Any, str]] = [
        (partial(pgas.write_zarr, folder() / "a", a, chunks=(2,)), "need 2 whole numbers"),
        (partial(pgas.write_zarr, folder() / "a", a, chunks=(2, 2), shards=(3, 4)), "give 4"),
        (partial(pgas.write_zarr, folder() / "no" / "a", a), "there is no folder"),
        (partial(pgas.write_zarr, folder() / "file", a), "it is a file"),
        (partial(pgas.write_zarr, folder(), a), "not a Zarr store"),
        (partial(pgas.write_zarr, folder() / "a", a, dims=["x"]), "one name for each dim"),
        (partial(pgas.write_zarr, folder() / "a", large, limit_bytes=300_000), "or smaller ones"),
        (partial(pgas.write_zarr, folder() / "a", a, codecs=[{"name": "none such"}]), "cannot write"),
    ]  # fmt: skip
    for call, said in cases:
        found = refused(call)
        if said not in found:
            return f"{said!r}: {found}"
    COMM.barrier()
    left = [one.name for one in folder().iterdir() if "tmp" in one.name or one.name == "a"]
    COMM.barrier()
    if COMM.rank == 0:
        shutil.rmtree(folder())
    folder.cache_clear()
    return f"left: {left}" if left else None


CHECKED = (
    chunks_are_read_by_ranks,
    arrays_of_groups_have_names,
    arrays_of_any_type_are_written,
    errors_are_one,
)
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
