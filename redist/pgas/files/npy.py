"""NumPy's files on all ranks: each rank reads or writes its rows."""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from redist.errors import ArgumentTypeError, ReadError
from redist.layout.mesh import Mesh
from redist.pgas.conversion import asarray
from redist.pgas.creation import Type
from redist.pgas.files.blocks import must_be_written, own_parts, within
from redist.pgas.files.same_call import same_call
from redist.pgas.files.shares import (
    NPY,
    File,
    Wanted,
    empty_rows,
    look,
    must_have_data,
    other_reader,
    teller,
    together,
)  # fmt: skip
from redist.pgas.global_array import Array
from redist.pgas.kinds import file_kind
from redist.pgas.tiles.tiled import own_box
from redist.runtime.files.new_file import new_file
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.text.units import ceil_div, format_bytes

Values = NDArray[Any]


class NpyHead(NamedTuple):
    """What the first bytes of a file say."""

    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype[Any]
    offset: int


@same_call
def read_npy(
    file: File, *, type: Type | None = None, mesh: Mesh | None = None, comm: Comm | None = None,
    device: Any = None,
) -> Array:  # fmt: skip
    """**Collective.** Read a file written by ``numpy.save`` into a global array; each rank reads some rows.

    ``x = pgas.read_npy("points.npy", type="{x}, {}")``. All ranks must see the file. Both C order and
    Fortran order are read. Rows cut over all ranks are read in place; for any other type, they are then moved
    by a plan. Objects and records are refused.
    """
    must_have_data(file)
    comm = comm_or_world(comm)
    wanted = Wanted(comm, type, mesh, device)
    head = look(comm, file, lambda: head_of(Path(file)))
    native = head.dtype.newbyteorder("=")
    target = wanted.check(head.shape, native)
    if not head.shape:
        with together(comm, file):
            (value,) = _mapped(file, head._replace(shape=(1,)))
        return asarray(value.astype(native), type=type, mesh=mesh, comm=comm, device=device)
    made = empty_rows(head.shape, native, comm, file)
    with together(comm, file):
        tile = made.tile
        if tile is not None and tile.size:
            lo, hi = own_box(made)[0]
            if head.by_columns and len(head.shape) > 1:
                np.copyto(tile, _mapped(file, head)[lo:hi])
            else:
                row = head.dtype.itemsize * math.prod(head.shape[1:])
                _read_into(tile, file, head.offset + lo * row)
                if head.dtype != native:
                    tile.byteswap(inplace=True)
    return wanted.bring(made, target)


def head_of(path: Path) -> NpyHead:
    """**Local.** Read what a file says of itself; an error if its data are not such, or not there."""
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise ReadError(
                f"cannot read {str(path)!r}: this is an .npz, an archive of several arrays; write "
                f"pgas.asarray(numpy.load({str(path)!r})['name']), which every rank reads whole"
            )
        file.seek(0)
        begin = file.read(6)
        if begin != NPY:
            raise ReadError(f"cannot read {str(path)!r}: {_other_kind(path, begin)}")
        file.seek(0)
        try:
            version = npy_format.read_magic(file)
            reads = {
                (1, 0): npy_format.read_array_header_1_0,
                (2, 0): npy_format.read_array_header_2_0,
            }
            if version not in reads:
                raise ReadError(f"version {version} is for records with odd names")
            shape, by_columns, dtype = reads[version](file)
        except (ValueError, ReadError) as problem:
            raise ReadError(f"cannot read {str(path)!r} as a file of NumPy: {problem}") from None
        if dtype.hasobject or dtype.names is not None or file_kind(dtype) not in "biufc":
            raise ReadError(f"cannot read {str(path)!r}: it holds {dtype}, and not numbers")
        offset = file.tell()
        have = os.fstat(file.fileno()).st_size - offset
    need = dtype.itemsize * math.prod(shape)
    if have < need:
        raise ReadError(
            f"cannot read {str(path)!r}: it ends after {format_bytes(have)} of {format_bytes(need)}"
        )
    return NpyHead(shape, by_columns, dtype, offset)


def _other_kind(path: Path, begin: bytes) -> str:
    """What a file is that does not begin as one of NumPy does, and who reads it.

    >>> _other_kind(Path("a.csv"), b"1,2,3")
    'it is not a file of NumPy; pgas.read_csv reads text'
    """
    if not begin:
        return "it is empty"
    if (other := other_reader(begin)) is not None:
        return other
    if begin.isascii() and begin.decode().replace("\n", " ").replace("\r", " ").isprintable():
        return "it is not a file of NumPy; pgas.read_csv reads text"
    return "it is not a file of NumPy, as numpy.save or pgas.write_npy makes one"


def _mapped(file: File, head: NpyHead) -> Values:
    """**Local.** The array where it lies in the file: pages are read when they are looked at."""
    order = "F" if head.by_columns else "C"
    shape, offset = head.shape, head.offset
    return np.memmap(file, head.dtype, mode="r", offset=offset, shape=shape, order=order)  # type: ignore[call-overload]


def _read_into(tile: Values, file: File, offset: int) -> None:
    """**Local.** Fill a tile with the bytes from an offset on."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        read_at(descriptor, tile.reshape(-1).view(np.uint8).data, offset, file)
    finally:
        os.close(descriptor)


def read_at(descriptor: int, left: memoryview, offset: int, file: File) -> None:
    """**Local.** Fill a buffer with the bytes of an open file from an offset on."""
    while left:
        n = os.preadv(descriptor, [left[: 2**30]], offset)
        if not n:
            raise ReadError(f"cannot read {os.fspath(file)!r}: it became shorter")
        left, offset = left[n:], offset + n


@same_call
def write_npy(
    file: File, a: Array, *, limit_bytes: int | str | None = None, progress: bool | None = None
) -> None:
    """**Collective.** Write a global array to a NumPy file, for ``numpy.load`` and :func:`read_npy`.

    ``pgas.write_npy("points.npy", a)``. Each rank writes its share of the elements, in C order. An
    array that is cut by rows stays where it is; any other array is moved to rows a block at a time, after
    its pending reduction, if any, is completed. In addition to the array, a rank uses at most
    ``limit_bytes``, by default 64 MiB. The file appears under its name once it is complete and on the disk.
    If a rank fails, all raise the same :class:`~redist.WriteError`, and an existing file is unchanged.
    """
    a = must_be_written(file, a)
    if file_kind(a.dtype) not in "biufc":
        raise ArgumentTypeError(
            f"cannot write {a.type} as a file of NumPy: NumPy has no name for {a.type.dtype}; "
            "pgas.astype(a, pgas.float32) has one"
        )
    limit = within(a, limit_bytes)
    head = npy_head(a.shape, a.dtype)
    tell = teller(a.comm, "write", file, progress, ceil_div(a.nbytes, a.comm.size))
    with new_file(a.comm, file, len(head) + a.nbytes) as out:
        if a.comm.rank == 0:
            out.write(head, 0)
        for part in own_parts(a, limit):
            out.write(part.values, len(head) + part.first * a.dtype.itemsize)
            tell(part.values.nbytes)


def npy_head(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The first bytes of a file of NumPy for an array in C order.

    >>> npy_head((2, 3), np.dtype("f4"))[:6], len(npy_head((2, 3), np.dtype("f4"))) % 64
    (b'\\x93NUMPY', 0)
    """
    head = io.BytesIO()
    descr = npy_format.dtype_to_descr(dtype)
    npy_format.write_array_header_1_0(
        head, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return head.getvalue()
