"""HDF5 files: heads of datasets, as netCDF writes them too, and boxes read from them."""

from __future__ import annotations

import math
import threading
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ReadError
from redist.layout.tiles import Box
from redist.pgas.files.heads import KINDS, ArrayHead, StoreHead, need, xarray_fill
from redist.pgas.kinds import file_kind

Values = NDArray[Any]
OWN = {
    "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates",
    "_nc3_strict", "_NCProperties", "DIMENSION_LABELS",
}  # fmt: skip
"""Attributes by which HDF5 and netCDF say what Zarr says elsewhere."""
ONLY_A_DIM = b"This is a netCDF dimension but not a netCDF variable"


def hdf5_head(path: Path) -> StoreHead:
    """**Local.** The arrays and groups of an HDF5 file."""
    h5py = need("h5py", "HDF5")
    arrays: list[ArrayHead] = []
    groups: dict[str, dict[str, Any]] = {}
    with h5py.File(path, "r") as file:
        groups[""] = _attributes(file, None)

        def visit(name: str, one: Any) -> None:
            if isinstance(one, h5py.Group):
                groups[name] = _attributes(one, None)
            elif isinstance(one, h5py.Dataset) and not _is_only_a_dim(one):
                arrays.append(_array_head(path, name, one))

        file.visititems(visit)
    return StoreHead(str(path), "hdf5", tuple(arrays), groups)


def _is_only_a_dim(one: Any) -> bool:
    name = one.attrs.get("NAME", b"")
    return (name.encode() if isinstance(name, str) else bytes(name)).startswith(ONLY_A_DIM)


def _array_head(path: Path, name: str, one: Any) -> ArrayHead:
    if one.shape is None:
        raise ReadError(f"cannot read {name!r} of {str(path)!r}: it has no elements and no shape")
    dims = []
    for number, dim in enumerate(one.dims):
        label = Path(dim[0].name).name if len(dim) else dim.label
        dims.append(label or (Path(one.name).name if one.is_scale and number == 0 else ""))
    raw = one.chunks is None
    return ArrayHead(
        str(path), name, "hdf5", tuple(one.shape), one.dtype, None if raw else tuple(one.chunks),
        dims=tuple(dims) if dims and all(dims) else None if one.shape else (),
        decodes=bool(one.compression or one.shuffle or one.fletcher32 or one.scaleoffset),
        fill=None if one.fillvalue is None else one.fillvalue, attributes=_attributes(one, one.dtype),
    )  # fmt: skip


def _attributes(one: Any, dtype: np.dtype[Any] | None) -> dict[str, Any]:
    """**Local.** Attributes as JSON has them; without those that Zarr says elsewhere."""
    found: dict[str, Any] = {}
    for name, value in one.attrs.items():
        if name in OWN:
            continue
        if name == "_FillValue" and dtype is not None:
            found[name] = xarray_fill(np.asarray(value).reshape(-1)[0], dtype)
        else:
            plain = _plain(value)
            if plain is not None:
                found[name] = plain
    return found


def _plain(value: Any) -> Any:
    """A value of an attribute as JSON has it; None for what JSON does not have, as references.

    >>> _plain(np.float32(1.5)), _plain(np.array([1, 2])), _plain(b"m")
    (1.5, [1, 2], 'm')
    """
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    if file_kind(array.dtype) in "SU":
        return _texts(array.tolist())
    if file_kind(array.dtype) == "O":
        listed = array.tolist()
        every = listed if isinstance(listed, list) else [listed]
        return _texts(listed) if all(isinstance(one, (str, bytes)) for one in every) else None
    return array.tolist() if file_kind(array.dtype) in KINDS[:4] else None


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(one) for one in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


class Hdf5Reader:
    """A dataset of an HDF5 file. The library reads one box at a time."""

    def __init__(self, head: ArrayHead) -> None:
        h5py = need("h5py", "HDF5")
        self._head, self._file = head, h5py.File(head.path, "r")
        self._data = self._file[head.name]
        self._lock = threading.Lock()
        self.read_bytes = 0

    def read(self, box: Box, out: Values) -> None:
        """**Local.** Read a box into a buffer of its shape."""
        where = tuple(slice(lo, hi) for lo, hi in box)
        with self._lock:
            if out.flags.c_contiguous:
                self._data.read_direct(out, where)
            else:
                np.copyto(out, self._data[where])
            self.read_bytes += self._stored_bytes(box)

    def _stored_bytes(self, box: Box) -> int:
        """Bytes of the chunks that a box meets, as they are stored."""
        parts = self._head.parts
        if parts is None:
            return math.prod(hi - lo for lo, hi in box) * self._head.dtype.itemsize
        starts = (range(lo // p * p, hi, p) for (lo, hi), p in zip(box, parts, strict=True))
        coords = product(*starts)
        return sum(self._data.id.get_chunk_info_by_coord(at).size for at in coords)

    def close(self) -> None:
        """**Local.** Close the file."""
        self._file.close()
