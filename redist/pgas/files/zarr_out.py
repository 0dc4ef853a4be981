"""Global arrays into Zarr stores: elements come to the rank that encodes their chunk, a block at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError, ArgumentTypeError, WriteError
from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.layout.mesh import Mesh
from redist.layout.tiles import Box, box_of
from redist.pgas.files.blocks import LEAST_BYTES, must_be_written, take_block, within
from redist.pgas.files.heads import kind_in_the_way, part_at, parts_in, zarr_store
from redist.pgas.files.same_call import same_call
from redist.pgas.files.shares import File, teller
from redist.pgas.files.workers import Workers
from redist.pgas.global_array import Array
from redist.pgas.kinds import file_kind
from redist.pgas.tiles.move import as_plain, resolve_pending
from redist.runtime.files.disk import make_folders
from redist.runtime.files.new_file import new_tree
from redist.text.units import ceil_div, format_bytes

Values = NDArray[Any]
CHUNK_BYTES = 4 * 2**20
"""Chunks have at most so many bytes if nobody says how long they are."""
STAGES = 4
"""Copies of a chunk while it is encoded, with that in the own tile."""


@same_call
def write_zarr(
    file: File, a: Array, *, chunks: Sequence[int] | None = None, shards: Sequence[int] | None = None,
    codecs: Sequence[dict[str, Any]] | None = None, dims: Sequence[str] | None = None,
    attributes: dict[str, Any] | None = None, limit_bytes: int | str | None = None,
    progress: bool | None = None,
) -> None:  # fmt: skip
    """**Collective.** Write a global array to a Zarr 3 store, for zarr, xarray and ``pgas.read_zarr``.

    ``pgas.write_zarr("points.zarr", a, chunks=(1000, 3))``. Needs zarr, the extra ``store``. Each chunk, or
    each shard, is written once, as a whole, by one rank; elements move to that rank a block at a time. In
    addition to the array, a rank uses at most ``limit_bytes``, by default 64 MiB or what one chunk or shard
    needs. ``codecs`` are compressors as Zarr 3 names them (by default zstd; ``[]`` for none); ``dims``
    names the dims. The store appears under its name when it is complete, and replaces an older one. If a rank
    fails, all raise the same :class:`~redist.WriteError`, and an existing store is unchanged.
    """
    a = must_be_written(file, a)
    if file_kind(a.dtype) not in "biufc":
        raise ArgumentTypeError(
            f"cannot write {a.type} to a Zarr store: NumPy has no name for {a.type.dtype}; "
            "pgas.astype(a, pgas.float32) has one"
        )
    inner, units = _units(a, chunks, shards)
    if dims is not None and len(dims) != a.ndim:
        raise ArgumentError(f"cannot name {a.ndim} dims {list(dims)}: give one name for each dim")
    a = as_plain(resolve_pending(a.to_device("cpu") if a.memory.on_device else a))
    room, each = _room(a, units, limit_bytes)
    comm = a.comm
    tell = teller(comm, "write", file, progress, ceil_div(a.nbytes, comm.size))
    n_bytes = a.nbytes if codecs == [] else 0  # of codecs nobody knows what they leave
    with new_tree(comm, file, kind_in_the_way, lambda: n_bytes) as out, Workers(1) as workers:
        with out.part_of_all():
            module = zarr_store("write", WriteError)
            if comm.rank == 0:
                make_folders(out.data)
                module.create_array(
                    module.CountedStore(out.data, new=out.new), "", shape=a.shape, dtype=a.dtype,
                    chunks=inner, shards=None if shards is None else units, codecs=codecs,
                    attributes=attributes, dims=dims,
                )  # fmt: skip
        with out.own_part():
            array = module.open_array(module.CountedStore(out.data, new=out.new), "", "r+")
        with module.one_at_a_time():
            for box, n_ranks in _waves(a.shape, units, each, comm.size):
                t = _cut(a, box, units, n_ranks)
                tile = take_block(a, box, t, room)
                if tile is not None and tile.size and not out.failed:
                    with out.own_part():
                        own = _own_box(box, t, comm.rank)
                        _write(module, array, workers, own, np.asarray(tile), units)
                    tell(tile.nbytes)


def _units(
    a: Array, chunks: Sequence[int] | None, shards: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """**Local.** The chunks, and what is written at once: shards, or chunks if there are none."""
    inner = _default_chunks(a.shape, a.dtype.itemsize) if chunks is None else tuple(chunks)
    outer = inner if shards is None else tuple(shards)
    for name, sizes in (("chunks", inner), ("shards", outer)):
        right = all(isinstance(n, (int, np.integer)) and n > 0 for n in sizes)
        if len(sizes) != a.ndim or not right:
            raise ArgumentError(
                f"cannot use {name}={sizes!r} for {a.type}: need {a.ndim} whole numbers of at least "
                "1, one for each dim"
            )
    for dim, (n, size) in enumerate(zip(inner, outer, strict=True)):
        if size % n:
            raise ArgumentError(
                f"cannot use shards of {size} along dim {dim}: chunks of {n} do not fill them; give "
                f"{ceil_div(size, n) * n}"
            )
    return inner, outer


def _default_chunks(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Chunks of at most 4 MiB, about as long along every dim.

    >>> _default_chunks((4096, 4096), 8), _default_chunks((10, 0), 8)
    ((512, 1024), (10, 1))
    """
    found = [max(1, n) for n in shape]
    while math.prod(found) * itemsize > CHUNK_BYTES:
        dim = max(range(len(found)), key=lambda i: found[i])
        found[dim] = ceil_div(found[dim], 2)
    return tuple(found)


def _room(a: Array, units: tuple[int, ...], limit_bytes: int | str | None) -> tuple[int, int]:
    """**Collective.** What messages may take, and how many units a rank may hold at a time."""
    unit = math.prod(units) * a.dtype.itemsize
    least = STAGES * unit + LEAST_BYTES
    limit = within(a, limit_bytes)
    if limit < least:
        if limit_bytes is not None:
            raise ArgumentError(
                f"cannot write within {format_bytes(limit)} a rank: chunks or shards of {format_bytes(unit)} "
                f"need {format_bytes(least, round_up=True)} (limit_bytes={least}); give that, or smaller ones"
            )
        limit = least
    room = max(LEAST_BYTES, limit // 8)
    return room, max(1, (limit - room) // max(1, unit) - STAGES + 1)


def _waves(
    shape: tuple[int, ...], units: tuple[int, ...], each: int, ranks: int
) -> Iterator[tuple[Box, int]]:
    """Boxes that are brought to ranks one after another, and among how many: each gets whole units of it.

    >>> [*_waves((10, 3), (2, 3), 1, 2)]
    [(((0, 4), (0, 3)), 2), (((4, 8), (0, 3)), 2), (((8, 10), (0, 3)), 1)]
    >>> [*_waves((9,), (2,), 3, 2)]
    [(((0, 8),), 2), (((8, 9),), 1)]
    """
    if 0 in shape:
        return
    if not shape:
        yield (), 1
        return
    counts = [ceil_div(n, u) for n, u in zip(shape, units, strict=True)]
    dim = _long_dim(shape, units)
    others = [range(n) if i != dim else range(1) for i, n in enumerate(counts)]
    for index in product(*others):
        box = [(i * u, min(n, (i + 1) * u)) for i, u, n in zip(index, units, shape, strict=True)]
        at, full = 0, shape[dim] // units[dim]
        while at < full:
            used = min(ranks, full - at)
            n = min(each, (full - at) // used) * used
            box[dim] = (at * units[dim], (at + n) * units[dim])
            yield tuple(box), used
            at += n
        if full * units[dim] < shape[dim]:
            box[dim] = (full * units[dim], shape[dim])
            yield tuple(box), 1


def _long_dim(shape: tuple[int, ...], units: tuple[int, ...]) -> int:
    counts = [ceil_div(n, u) for n, u in zip(shape, units, strict=True)]
    return max(range(len(counts)), key=lambda i: (counts[i], -i))


def _cut(a: Array, box: Box, units: tuple[int, ...], ranks: int) -> ArrayType:
    """The type of a box whose whole units the first ranks hold."""
    mesh, shape = Mesh(x=ranks), tuple(hi - lo for lo, hi in box)
    dim = _long_dim(a.shape, units) if box else -1
    dims = tuple((whole(mesh, "x"),) if i == dim and ranks > 1 else () for i in range(len(box)))
    return ArrayType(mesh, a.type.dtype, shape, dims)


def _own_box(box: Box, t: ArrayType, rank: int) -> Box:
    """Where the tile of a rank that has one lies in the whole array."""
    own = box_of(t, rank)
    assert own is not None
    return tuple((lo + at, lo + end) for (lo, _), (at, end) in zip(box, own, strict=True))


def _write(
    module: Any, array: Any, workers: Workers, box: Box, values: Values, units: tuple[int, ...]
) -> None:
    """**Local.** Write the units of a box."""
    workers.each(
        lambda unit: module.write_box(array, unit, part_at(values, box, unit)), parts_in(box, units)
    )
