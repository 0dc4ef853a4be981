"""Arrays in files that have chunks, and in raw ones: what they say of themselves, boxes read from them."""

from __future__ import annotations

import math
import os
import threading
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ReadError
from redist.layout.tiles import Box
from redist.pgas.files.hdf5_file import Hdf5Reader, hdf5_head
from redist.pgas.files.heads import ArrayHead, Reader, StoreHead, is_zarr, xarray_fill, zarr_store
from redist.pgas.files.npy import head_of, read_at

Values = NDArray[Any]
HDF5 = b"\x89HDF\r\n\x1a\n"
"""So files of HDF5 begin."""


def store_head(path: str | os.PathLike[str]) -> StoreHead:
    """**Local.** What lies at a path: a Zarr store, an HDF5 file or a file of NumPy."""
    at = Path(path)
    if not at.exists():
        raise ReadError(f"cannot read {str(at)!r}: there is no such file or folder")
    if at.is_dir():
        return _zarr_head(at)
    with at.open("rb") as file:
        begin = file.read(8)
    if begin == HDF5:
        return hdf5_head(at)
    if at.suffix == ".zip":
        raise ReadError(f"cannot read {str(at)!r}: it is an archive; unpack it to a folder first")
    head = head_of(at)
    dtype, offset = head.dtype, head.offset
    one = ArrayHead(
        str(at), "", "npy", head.shape, dtype, None, by_columns=head.by_columns, offset=offset
    )
    return StoreHead(str(at), "npy", (one,), {})


def open_reader(head: ArrayHead) -> Reader:
    """**Local.** Open an array to read boxes of it."""
    if head.kind == "zarr":
        return _ZarrReader(head)
    if head.kind == "hdf5":
        return Hdf5Reader(head)
    return _NpyReader(head)


def _zarr_head(path: Path) -> StoreHead:
    store = zarr_store()
    if not is_zarr(path):
        raise ReadError(
            f"cannot read {str(path)!r}: it is a folder, and not a Zarr store: it has no zarr.json, "
            ".zarray or .zgroup"
        )
    found, inside, consolidated = store.members(str(path))
    if store.is_array(found):
        return StoreHead(str(path), "zarr", (_zarr_array(path, "", found),), {})
    arrays = [
        _zarr_array(path, name, one) for name, one in sorted(inside.items()) if store.is_array(one)
    ]
    groups = {"": dict(found.attrs)}
    groups |= {
        name: dict(one.attrs) for name, one in sorted(inside.items()) if not store.is_array(one)
    }
    return StoreHead(str(path), "zarr", tuple(arrays), groups, consolidated)


def _zarr_array(path: Path, name: str, array: Any) -> ArrayHead:
    store = zarr_store()
    dtype = np.dtype(array.dtype)
    parts, shards = store.parts_of(array)
    codecs, filters = store.codecs_of(array)
    attributes, is_old = dict(array.attrs), array.metadata.zarr_format == 2
    dims = attributes.pop("_ARRAY_DIMENSIONS", None) if is_old else array.metadata.dimension_names
    fill = array.fill_value
    if is_old and dims is not None and fill is not None and "_FillValue" not in attributes:
        attributes["_FillValue"] = xarray_fill(fill, dtype)
    named = dims is not None and all(isinstance(one, str) for one in dims)
    return ArrayHead(
        str(path), name, "zarr", tuple(array.shape), dtype, parts, shards,
        dims=tuple(dims) if named else None, decodes=codecs != [] or bool(filters), codecs=codecs,
        filters=filters, fill=fill, attributes=attributes,
    )  # fmt: skip


class _ZarrReader:
    """An array of a Zarr store."""

    def __init__(self, head: ArrayHead) -> None:
        self._module = zarr_store()
        self._store = self._module.CountedStore(head.path)
        self._array = self._module.open_array(self._store, head.name)
        self._store.read_bytes = 0  # metadata do not count

    @property
    def read_bytes(self) -> int:
        return int(self._store.read_bytes)

    def read(self, box: Box, out: Values) -> None:
        self._module.read_box(self._array, box, out)

    def close(self) -> None:
        self._store.close()


class _NpyReader:
    """A file of NumPy: runs of bytes, in either order."""

    def __init__(self, head: ArrayHead) -> None:
        self._head = head
        self._file = os.open(head.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._lock = threading.Lock()
        self.read_bytes = 0

    def read(self, box: Box, out: Values) -> None:
        shape = self._head.shape
        if self._head.by_columns:
            shape, box, out = shape[::-1], box[::-1], out.T
        if out.flags.c_contiguous and out.dtype == self._head.dtype:
            self._runs(box, shape, out)
            return
        whole = np.empty([hi - lo for lo, hi in box], self._head.dtype)
        self._runs(box, shape, whole)
        np.copyto(out, whole)

    def _runs(self, box: Box, shape: tuple[int, ...], out: Values) -> None:
        """**Local.** Read every run of a box, in C order, into a buffer without gaps."""
        inner, itemsize = _inner(box, shape), self._head.dtype.itemsize
        steps = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
        start = sum(lo * step for (lo, _), step in zip(box[inner:], steps[inner:], strict=True))
        left = out.reshape(-1).view(np.uint8).data
        size = math.prod(hi - lo for lo, hi in box[inner:]) * itemsize
        for index in product(*(range(lo, hi) for lo, hi in box[:inner])):
            at = start + sum(map(int.__mul__, index, steps[:inner]))
            read_at(self._file, left[:size], self._head.offset + at * itemsize, self._head.path)
            left = left[size:]
        with self._lock:
            self.read_bytes += out.nbytes

    def close(self) -> None:
        os.close(self._file)


def _inner(box: Box, shape: tuple[int, ...]) -> int:
    """The dim from which on a box is one run in C order.

    >>> _inner(((0, 2), (3, 5), (0, 7)), (4, 9, 7)), _inner(((0, 2), (0, 9), (0, 7)), (4, 9, 7))
    (1, 0)
    """
    for dim in range(len(shape) - 1, -1, -1):
        if box[dim] != (0, shape[dim]):
            return dim
    return 0
