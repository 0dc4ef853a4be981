"""Zarr stores and HDF5 files as global arrays: each chunk is decoded once, by one rank."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ReadError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.tiles import Box
from redist.pgas.conversion import asarray, from_local
from redist.pgas.creation import Type
from redist.pgas.files.chunked import open_reader, store_head
from redist.pgas.files.heads import (
    ArrayHead,
    StoreHead,
    check_elements,
    part_at,
    parts_in,
    zarr_store,
)
from redist.pgas.files.same_call import same_call
from redist.pgas.files.shares import File, Wanted, empty_rows, look, must_have_data, together
from redist.pgas.files.workers import Workers, default_threads
from redist.pgas.global_array import Array
from redist.pgas.kinds import file_kind
from redist.pgas.tiles.layouts import dtype_of, line_mesh
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.text.units import ceil_div

Values = NDArray[Any]


@same_call
def read_zarr(
    file: File, name: str | None = None, *, type: Type | None = None, mesh: Mesh | None = None,
    comm: Comm | None = None, device: Any = None,
) -> Array:  # fmt: skip
    """**Collective.** Read an array from a Zarr store (version 2 or 3) into a global array.

    ``x = pgas.read_zarr("weather.zarr", "t2m", type="{x}, {}, {}")``. Needs zarr, the extra ``store``.
    ``name`` is the name of the array in a group; a store with only one array needs none. Chunks are
    distributed to the ranks along the dim that has the most of them: each chunk is read and decoded once. For
    any other type, the array is then moved by a plan.
    """
    return _read(file, name, "zarr", Wanted(comm_or_world(comm), type, mesh, device))


@same_call
def read_hdf5(
    file: File, name: str | None = None, *, type: Type | None = None, mesh: Mesh | None = None,
    comm: Comm | None = None, device: Any = None,
) -> Array:  # fmt: skip
    """**Collective.** Read a dataset from an HDF5 file into a global array.

    ``x = pgas.read_hdf5("run.h5", "fields/density", type="{x}, {}")``. Needs h5py, the extra ``store``; h5py
    need not be built for MPI. NetCDF-4 files are HDF5 files, too. Chunks are distributed to the
    ranks as in :func:`read_zarr`, and a dataset without chunks is read by rows.
    """
    return _read(file, name, "hdf5", Wanted(comm_or_world(comm), type, mesh, device))


def _read(file: File, name: str | None, kind: str, wanted: Wanted) -> Array:
    """**Collective.** Read own chunks, then move to the type asked for."""
    must_have_data(file)
    comm = wanted.comm
    head = look(comm, file, lambda: _chosen(store_head(file), name, kind))
    native = head.dtype.newbyteorder("=")
    target = wanted.check(head.shape, native)
    if not head.shape or 0 in head.shape:
        return _read_little(file, head, wanted, target)
    dim, edges = _shares(head, comm.size)
    mesh = line_mesh(comm.size)
    sizes = [hi - lo for lo, hi in pairwise(edges)]
    cut = (
        f"{head.shape[dim]}{{x={';'.join(map(str, sizes))}}}"
        if comm.size > 1
        else f"{head.shape[dim]}"
    )
    dims = [cut if i == dim else f"{n}" for i, n in enumerate(head.shape)]
    t = ArrayType.parse(f"{dtype_of(native)}[{', '.join(dims)}]", mesh)
    own = (edges[comm.rank], edges[comm.rank + 1])
    box = tuple(own if i == dim else (0, n) for i, n in enumerate(head.shape))
    tile = np.empty([hi - lo for lo, hi in box], native)
    with together(comm, file):
        _read_box(head, box, tile, default_threads(comm.size))
    return wanted.bring(from_local(tile, t, comm=comm), target)


def _chosen(store: StoreHead, name: str | None, kind: str) -> ArrayHead:
    """**Local.** The array that is meant, or an error that lists what is there."""
    if store.kind != kind:
        reader = {"zarr": "read_zarr", "hdf5": "read_hdf5", "npy": "read_npy"}[store.kind]
        what = {"zarr": "a Zarr store", "hdf5": "an HDF5 file", "npy": "a file of NumPy"}[
            store.kind
        ]
        raise ReadError(f"cannot read {store.path!r}: it is {what}; pgas.{reader} reads it")
    names = [one.name for one in store.arrays]
    wanted = (name or "").strip("/")
    if name is None and len(names) == 1:
        wanted = names[0]
    found = [one for one in store.arrays if one.name == wanted]
    if not found:
        what = "an array without a name" if not wanted else repr(wanted)
        have = "one array, which has no name" if names == [""] else ", ".join(names) or "no arrays"
        raise ReadError(f"cannot read {what} of {store.path!r}: it has {have}; give name=")
    check_elements(store.path, wanted, found[0].dtype)
    if file_kind(found[0].dtype) not in "biufc":
        raise ReadError(
            f"cannot read {wanted or 'the array'} of {store.path!r}: it holds {found[0].dtype}, and not "
            "numbers"
        )
    return found[0]._replace(attributes=None)


def _read_little(file: File, head: ArrayHead, wanted: Wanted, target: ArrayType) -> Array:
    """**Collective.** Read a single number, or nothing."""
    native = head.dtype.newbyteorder("=")
    if head.shape:
        return wanted.bring(empty_rows(head.shape, native, wanted.comm, file), target)
    value = np.empty((), native)
    with together(wanted.comm, file):
        _read_box(head, (), value, 1)
    return asarray(
        value, type=wanted.type, mesh=wanted.mesh, comm=wanted.comm, device=wanted.device
    )


def _shares(head: ArrayHead, ranks: int) -> tuple[int, list[int]]:
    """The dim along which chunks are dealt to ranks, and where each rank's share of it begins and ends.

    >>> head = ArrayHead("a", "", "zarr", (10, 90), np.dtype("f4"), (10, 20))
    >>> _shares(head, 2), _shares(head._replace(parts=None), 2)
    ((1, [0, 40, 90]), (0, [0, 5, 10]))
    """
    parts = head.parts or tuple(1 if i == 0 else n for i, n in enumerate(head.shape))
    counts = [ceil_div(n, p) for n, p in zip(head.shape, parts, strict=True)]
    dim = max(range(len(counts)), key=lambda i: (counts[i], -i))
    edges = [min(head.shape[dim], counts[dim] * r // ranks * parts[dim]) for r in range(ranks)]
    return dim, [*edges, head.shape[dim]]


def _read_box(head: ArrayHead, box: Box, out: Values, threads: int) -> None:
    """**Local.** Fill a buffer with a box of an array, chunk by chunk."""
    if box and not out.size:
        return
    reader = open_reader(head)
    boxes = [box] if head.parts is None else parts_in(box, head.parts)

    def read(one: Box) -> None:
        reader.read(one, part_at(out, box, one))

    try:
        with contextlib.ExitStack() as stack:
            if head.kind == "zarr":
                stack.enter_context(zarr_store().one_at_a_time())
            stack.enter_context(Workers(threads)).each(read, boxes)
    finally:
        reader.close()
