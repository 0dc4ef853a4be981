"""What readers share: rows cut over all ranks, one error on all of them, the way to the type asked for."""

from __future__ import annotations

import lzma
import math
import os
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from redist.errors import MemoryLimitError, ReadError, RedistError
from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.layout.mesh import Mesh
from redist.layout.tiles import box_of, same_layout
from redist.pgas.creation import Type, make
from redist.pgas.global_array import Array
from redist.pgas.tiles.devices import is_gpu
from redist.pgas.tiles.layouts import dtype_of, line_mesh, mesh_of, parse_dims
from redist.pgas.tiles.move import tile_shape
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.ranks.agreement import from_first
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm
from redist.text.progress import Progress
from redist.text.units import format_bytes, ranks_in_words

Values = NDArray[Any]
File = str | os.PathLike[str]
T = TypeVar("T")
NPY = b"\x93NUMPY"
"""So files of NumPy begin."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where an array that is read shall lie."""

    comm: Comm
    type: Type | None
    mesh: Mesh | None
    device: Any

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> ArrayType:
        """**Local.** The type asked for, or an error that says why an array of the file has none such."""
        mesh = self.type.mesh if isinstance(self.type, ArrayType) else self.mesh
        return parse_dims(self.type, mesh_of(mesh, self.comm.size), dtype_of(dtype), shape)

    def bring(self, made: Array, target: ArrayType) -> Array:
        """**Collective.** Move what was read by rows to the type asked for, where it is another."""
        if 0 not in target.shape and same_layout(made.type, target):
            shape = tile_shape(
                target, made.comm.rank
            )  # of tiles without elements it may be another
            tile = None if made.tile is None or shape is None else made.tile.reshape(shape)
            moved = Array(target, made.comm, tile)
        else:
            moved = made.to(target)
        return moved.to_device(self.device) if is_gpu(self.device) else moved


def empty_rows(
    shape: tuple[int, ...], dtype: np.dtype[Any], comm: Comm, file: File | None = None
) -> Array:
    """**Local.** An array whose dim 0 is cut over all ranks, in order, for a reader to fill.

    ``file`` is what is read whole, if it is one file: an error names it and its size.
    """
    mesh = line_mesh(comm.size)
    dims = ((whole(mesh, "x"),), *((),) * (len(shape) - 1))
    t = ArrayType(mesh, dtype_of(dtype), shape, dims)
    try:
        return make(shape, dtype, None, t, None, comm)
    except MemoryLimitError as error:
        fact = str(error).partition("; ")[0].removeprefix("cannot allocate ")
        size = format_bytes(math.prod(shape) * dtype.itemsize)
        what = f"{t}" if file is None else f"{os.fspath(file)!r}, {t} of {size},"
        raise MemoryLimitError(
            f"cannot read {what} within the limit: no room for {fact}; read it outside the limit and "
            "give it to a @pgas.program(limit=..., spill=...), which puts it away and works in blocks, "
            "use more ranks, or raise the limit"
        ) from error


Tell = Callable[[int], None]
"""Called with the bytes that this rank has done since the last call; by several threads, too."""
SOON_S = 1.0
UNIT_BYTES = 2**20


def teller(
    comm: Comm, verb: str, file: File, progress: bool | None, total_bytes: int | None
) -> Tell:
    """**Local.** Say on rank 0 how far work on a file has come: on a terminal by a bar, if it takes long.

    ``progress=True`` says it elsewhere too, in a line now and then, and False nowhere. ``total_bytes`` is
    what this rank has to do, None if nobody knows.
    """
    if comm.rank or progress is False or not (progress or sys.stderr.isatty()):
        return lambda n_bytes: None
    said = Progress(f"{verb} {Path(file).name}", after_s=SOON_S)
    lock, done = threading.Lock(), 0

    def tell(n_bytes: int) -> None:
        nonlocal done
        with lock:
            done += n_bytes
            units = done // UNIT_BYTES
            total = units if total_bytes is None else max(1, total_bytes // UNIT_BYTES)
            said(min(units, total), total, "MiB")

    return tell


def must_have_data(file: File) -> None:
    """**Local.** Refuse to read where nothing is real, as while a program is captured."""
    traffic().require_data(
        f"the file {os.fspath(file)}",
        "what it holds is not known before it is read",
        "read it before the call, outside any limit that it exceeds, and give the array as an argument",
    )


def other_reader(begin: bytes) -> str | None:
    """**Local.** What a file is by its first bytes, and who reads it; None of other text.

    >>> other_reader(b"PAR1"), other_reader(b"1,2,3")
    ('it is a Parquet file; pgas.read_parquet reads it', None)
    """
    if begin.startswith(NPY):
        return "it is a file of NumPy; pgas.read_npy reads it"
    if begin[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "it is in UTF-16; need UTF-8"
    return "it is a Parquet file; pgas.read_parquet reads it" if begin[:4] == b"PAR1" else None


def look(comm: Comm, file: File, find: Callable[[], T]) -> T:
    """**Collective.** What rank 0 finds in a file on every rank; its error on every rank."""

    def found() -> T:
        with readable(file):
            return find()

    return from_first(comm, found, TIMEOUT_S)


@contextmanager
def readable(file: File) -> Iterator[None]:
    """**Local.** Say which file it was that could not be read, and why."""
    try:
        yield
    except RedistError:
        raise
    except OSError as problem:
        why = problem.strerror or str(problem)
        raise ReadError(f"cannot read {os.fspath(file)!r}: {why}") from problem
    except (EOFError, zlib.error, lzma.LZMAError) as problem:
        raise ReadError(
            f"cannot read {os.fspath(file)!r}: what is compressed in it is cut off or damaged ({problem})"
        ) from problem


@contextmanager
def together(comm: Comm, file: File) -> Iterator[None]:
    """**Collective** at the end. Raise on all ranks if a block could not read a file on one."""
    error: Exception | None = None
    try:
        with readable(file):
            yield
    except Exception as problem:
        error = problem
    said = gather(comm, None if error is None else str(error), TIMEOUT_S)
    who = [rank for rank, text in enumerate(said) if text is not None]
    if who:
        text = said[who[0]]
        same = [rank for rank in who if said[rank] == text]
        where = "" if len(same) == comm.size else f" ({ranks_in_words(same, comm.size)})"
        raise ReadError(f"{text}{where}") from error


def in_order(local: Values, runs: Sequence[tuple[int, int]], comm: Comm) -> Array:
    """**Collective.** Rows of which each run, in order, is some rank's next ones, cut evenly over ranks.

    ``runs`` has the rank and the number of rows of each, the same on all ranks.
    """
    who = [rank for rank, _ in runs]
    if who == [*range(comm.size)]:
        return even_out(local, [n for _, n in runs], comm)
    counts = np.bincount(who, [n for _, n in runs], comm.size).astype(np.int64).tolist()
    gathered = even_out(local, counts, comm)
    if comm.size == 1:
        return gathered
    starts = np.cumsum(counts) - counts  # of each rank's rows, among those of all ranks
    place = empty_rows((sum(counts),), np.dtype(np.int64), comm)  # where each row is now
    box = box_of(place.type, comm.rank)
    (lo, hi), at, used = box[0] if box is not None else (0, 0), 0, [0] * comm.size
    for rank, n in runs:
        first, last = max(lo, at), min(hi, at + n)
        if first < last and place.tile is not None:
            here = starts[rank] + used[rank] + first - at
            place.tile[first - lo : last - lo] = np.arange(here, here + last - first)
        at, used[rank] = at + n, used[rank] + n
    return gathered[place]


def even_out(local: Values, counts: Sequence[int], comm: Comm) -> Array:
    """**Collective.** Rows that each rank has this many of, as an array with rows cut evenly over ranks."""
    n, row = sum(counts), local.shape[1:]
    made = empty_rows((n, *row), local.dtype, comm)
    assert made.tile is not None
    boxes = [box_of(made.type, rank) for rank in range(comm.size)]
    wanted = [box[0] if box is not None else (0, 0) for box in boxes]
    ends = np.cumsum(counts).tolist()
    had = [(end - count, end) for end, count in zip(ends, counts, strict=True)]
    if had == wanted:
        np.copyto(made.tile, local)
        return made
    width = math.prod(row)
    sent = _overlaps(had[comm.rank], wanted, width)
    received = _overlaps(wanted[comm.rank], had, width)

    def exchange(tile: Values) -> tuple[None, int]:
        flat = np.ascontiguousarray(local).reshape(-1)
        return None, traffic().exchange(comm, flat, sent, tile.reshape(-1), received)

    what = ElementExchange("even out", made.type, made.type)
    traffic().perform(what, exchange, (made.tile,))
    return made


def _overlaps(
    own: tuple[int, int], others: Sequence[tuple[int, int]], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Elements that own rows share with those of each rank, and where they start among the own.

    >>> [part.tolist() for part in _overlaps((2, 6), [(0, 3), (3, 8)], 10)]
    [[10, 30], [0, 10]]
    """
    shared = [(max(own[0], lo), min(own[1], hi)) for lo, hi in others]
    counts = [max(0, hi - lo) for lo, hi in shared]
    starts = [lo - own[0] if n else 0 for (lo, _), n in zip(shared, counts, strict=True)]
    return np.array(counts, np.int64) * width, np.array(starts, np.int64) * width
