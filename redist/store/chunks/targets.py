"""What a rechunk writes to: an array of a Zarr store, or a file of NumPy."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from redist.errors import WriteError
from redist.layout.tiles import Box
from redist.pgas.files.heads import ArrayHead, StoreHead, zarr_store
from redist.pgas.files.npy import npy_head
from redist.runtime.files.disk import make_folders, write_bytes
from redist.runtime.files.new_file import NewTree
from redist.runtime.files.place import make_file
from redist.store.chunks.grids import place_in_order
from redist.store.chunks.plan import RechunkPlan

Values = NDArray[Any]


class Target(Protocol):
    """An array that is written unit by unit."""

    @property
    def written_bytes(self) -> int:
        """What was written so far."""

    def write(self, box: Box, values: Values) -> None:
        """**Local.** Write one unit, whole."""

    def close(self) -> None:
        """**Local.** Close the file."""


def create(
    plan: RechunkPlan, head: StoreHead, codecs: list[dict[str, Any]] | None, out: NewTree, data: Path
) -> None:  # fmt: skip
    """**Local**, on rank 0. Make the store without elements: groups, arrays and attributes."""
    heads = {one.name: one for one in head.arrays}
    if plan.to_npy:
        only = heads[plan.arrays[0].name]
        begin = npy_head(only.shape, only.dtype.newbyteorder("="))
        make_file(out.path, data, len(begin) + only.n_bytes, 0, again=True)
        file = os.open(data, os.O_WRONLY)
        try:
            write_bytes(file, begin, 0)
        finally:
            os.close(file)
        return
    module = zarr_store("write", WriteError)
    make_folders(data)
    store = module.CountedStore(data, new=out.new)
    for name, attributes in head.groups.items():
        module.create_group(store, name, attributes)
    for one in plan.arrays:
        source = heads[one.name]
        assert one.new_chunks is not None
        module.create_array(
            store, one.name, shape=source.shape, dtype=source.dtype.newbyteorder("="),
            chunks=one.new_chunks, shards=one.new_shards,
            codecs=source.codecs if codecs is None else codecs,
            filters=(source.filters or ()) if codecs is None else (), fill=source.fill,
            attributes=source.attributes, dims=source.dims,
        )  # fmt: skip
    if head.consolidated:
        module.consolidate(store)


def open_target(plan: RechunkPlan, number: int, head: ArrayHead, out: NewTree) -> Target:
    """**Local.** Open an array of the store to write units of it."""
    return NpyTarget(head, out) if plan.to_npy else ZarrTarget(plan.arrays[number].name, out)


class ZarrTarget:
    """An array of Zarr 3. Chunks and shards appear whole, by a rename."""

    def __init__(self, name: str, out: NewTree) -> None:
        self._module = zarr_store("write", WriteError)
        self._store = self._module.CountedStore(out.data, new=out.new)
        self._array = self._module.open_array(self._store, name, "r+")

    @property
    def written_bytes(self) -> int:
        """What was written so far."""
        return int(self._store.written_bytes)

    def write(self, box: Box, values: Values) -> None:
        """**Local.** Write one unit, whole."""
        self._module.write_box(self._array, box, values)

    def close(self) -> None:
        """**Local.** Close the store."""
        self._store.close()


class NpyTarget:
    """A file of NumPy in C order; a unit is one run of it."""

    def __init__(self, head: ArrayHead, out: NewTree) -> None:
        self._head = head
        self._offset = len(npy_head(head.shape, head.dtype.newbyteorder("=")))
        self._file = os.open(out.data, os.O_WRONLY)
        self._lock = threading.Lock()
        self.written_bytes = 0

    def write(self, box: Box, values: Values) -> None:
        """**Local.** Write one unit, whole."""
        own = np.ascontiguousarray(values)
        first = place_in_order(box, self._head.shape)
        write_bytes(self._file, own, self._offset + first * self._head.dtype.itemsize)
        with self._lock:
            self.written_bytes += own.nbytes

    def close(self) -> None:
        """**Local.** Close the file."""
        os.close(self._file)
