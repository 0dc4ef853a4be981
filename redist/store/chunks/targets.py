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
from redist.runtime.lanes.spill_file import write_all
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
    plan: RechunkPlan, head: StoreHead, codecs: list[dict[str, Any]] | None, data: Path
) -> None:
    """**Local**, on rank 0. Make the store without elements: groups, arrays and attributes."""
    heads = {one.name: one for one in head.arrays}
    if plan.to_npy:
        (one,) = plan.arrays
        _create_npy(heads[one.name], data)
        return
    module = zarr_store("write", WriteError)
    store = module.CountedStore(data)
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


def open_target(plan: RechunkPlan, number: int, head: ArrayHead, data: Path, new: Path) -> Target:
    """**Local.** Open an array of the store to write units of it."""
    if plan.to_npy:
        return NpyTarget(head, data)
    return ZarrTarget(plan.arrays[number].name, data, new)


class ZarrTarget:
    """An array of Zarr 3. Chunks and shards appear whole, by a rename."""

    def __init__(self, name: str, data: Path, new: Path) -> None:
        self._module = zarr_store("write", WriteError)
        self._store = self._module.CountedStore(data, temporary=new)
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


def _create_npy(head: ArrayHead, data: Path) -> None:
    begin = npy_head(head.shape, head.dtype.newbyteorder("="))
    with data.open("wb") as file:
        file.write(begin)
        if head.n_bytes:
            os.posix_fallocate(file.fileno(), 0, len(begin) + head.n_bytes)


class NpyTarget:
    """A file of NumPy in C order; a unit is one run of it."""

    def __init__(self, head: ArrayHead, data: Path) -> None:
        self._head = head
        self._offset = len(npy_head(head.shape, head.dtype.newbyteorder("=")))
        self._file = os.open(data, os.O_WRONLY)
        self._lock = threading.Lock()
        self.written_bytes = 0

    def write(self, box: Box, values: Values) -> None:
        """**Local.** Write one unit, whole."""
        flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        first = place_in_order(box, self._head.shape)
        write_all(self._file, flat, self._offset + first * self._head.dtype.itemsize, None)
        with self._lock:
            self.written_bytes += flat.nbytes

    def close(self) -> None:
        """**Local.** Close the file."""
        os.close(self._file)
