"""Move named tensors between a file and tiles: directly if runs are long, else through a buffer.

A piece whose bytes have the same order in the tile and in the file is read or written in place. A buffer of
:data:`BUFFER_BYTES` is used if the piece is cast, is on a GPU or is transposed, or if the runs in the file
are so short that it is faster to read the gaps between them as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.casts import cast
from redist.layout.dtype import DType
from redist.names.part import Part
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.files.kernels import CHECK, READ, Checked, carry_runs, runs_of
from redist.runtime.files.new_file import NewFile
from redist.store.header import Entry
from redist.store.pieces import Spans, pieces_of

BUFFER_BYTES = 2**20
SHORT_BYTES = 4096
"""Runs from here on are worth a call of the system each."""
SPARSE = 8
"""What lies between short runs is read as well if there is at most this many times as much of it."""


def boxes_below(
    shape: Sequence[int], itemsize: int, most_bytes: int
) -> Iterator[tuple[slice, ...]]:
    """Slices of an array that are ranges of it in C order, ``most_bytes`` at most each.

    >>> [*boxes_below((3, 2), 8, 16)] == [(slice(i, i + 1), slice(0, 2)) for i in range(3)]
    True
    """
    split, inner = len(shape), itemsize
    while split and inner * shape[split - 1] <= most_bytes:
        split -= 1
        inner *= shape[split]
    rest = tuple(slice(0, n) for n in shape[split:])
    if not split:
        yield rest
        return
    n = max(1, most_bytes // max(1, inner))
    for index in itertools.product(*map(range, shape[: split - 1])):
        before = tuple(slice(i, i + 1) for i in index)
        for lo in range(0, shape[split - 1], n):
            yield (*before, slice(lo, min(shape[split - 1], lo + n)), *rest)


def write_part(
    out: NewFile, part: Part, entry: Entry, dtype: DType, spans: Spans, tile: Any,
    checked: Checked | None,
) -> None:  # fmt: skip
    """**Local.** Write the part of a named tensor that a tile with these ranges has."""
    size = entry.dtype.itemsize
    for piece in pieces_of(part, spans):
        view, steps = piece.view(tile), [step * size for step in piece.steps]
        offset = entry.begin + piece.start * size
        if isinstance(view, np.ndarray) and dtype == entry.dtype and _is_straight(view, steps):
            out.carry(view, offset, steps, entry.file, checked)
            continue
        for box in boxes_below(piece.counts, max(size, dtype.itemsize), BUFFER_BYTES):
            at = offset + sum(one.start * step for one, step in zip(box, steps, strict=True))
            part_of = _host(view[(*box, ...)])
            values = np.require(cast(part_of, dtype, entry.dtype), requirements="C")
            values = values.reshape(part_of.shape)  # of no dims NumPy makes one
            out.carry(values, at, steps, entry.file, checked)


def read_part(
    file: int, part: Part, entry: Entry, dtype: DType, spans: Spans, tile: Any,
    checked: Checked | None,
) -> int:  # fmt: skip
    """**Local.** Read the part of a named tensor that a tile with these ranges has; return the bytes read."""
    size, done = entry.dtype.itemsize, 0
    for piece in pieces_of(part, spans):
        view, steps = piece.view(tile), [step * size for step in piece.steps]
        offset = entry.begin + piece.start * size
        host = isinstance(view, np.ndarray)
        run = file_run(piece.counts, steps, size)
        if host and dtype == entry.dtype and _is_straight(view, steps) and run >= SHORT_BYTES:
            carry_runs(READ, file, view, offset, steps, checked)
            done += view.nbytes
            continue
        for box in boxes_below(piece.counts, max(size, dtype.itemsize), BUFFER_BYTES):
            counts = [one.stop - one.start for one in box]
            at = offset + sum(one.start * step for one, step in zip(box, steps, strict=True))
            values, n = _read_box(file, counts, at, steps, entry.dtype, checked)
            done += n
            made = cast(values, entry.dtype, dtype)
            if host:
                np.copyto(view[(*box, ...)], made)
            else:
                view[(*box, ...)] = to_device(np.ascontiguousarray(made))
    return done


def _read_box(
    file: int, counts: Sequence[int], offset: int, steps: Sequence[int], dtype: DType,
    checked: Checked | None,
) -> tuple[NDArray[Any], int]:  # fmt: skip
    """**Local.** Some elements in a buffer, and the bytes that were read for them."""
    size, kind = dtype.itemsize, dtype.to_numpy()
    n_bytes = int(np.prod(counts, dtype=np.int64)) * size
    extent = sum((n - 1) * step for n, step in zip(counts, steps, strict=True)) + size
    is_long = file_run(counts, steps, size) >= SHORT_BYTES
    if is_long or extent == n_bytes or extent > SPARSE * n_bytes:
        values = np.empty(counts, kind)
        carry_runs(READ, file, values, offset, steps, checked)
        return values, n_bytes
    between = np.empty(extent, np.uint8)
    carry_runs(READ, file, between, offset, (1,))
    found: NDArray[Any] = np.ndarray(tuple(counts), kind, between, 0, tuple(steps))
    if checked is not None:
        carry_runs(CHECK, -1, found, offset, steps, checked)
    return found, extent


def file_run(counts: Sequence[int], steps: Sequence[int], size: int) -> int:
    """The length in bytes of a contiguous run in the file.

    >>> file_run((4, 3), (40, 4), 4), file_run((4, 3), (12, 4), 4)
    (12, 48)
    """
    for n, step in zip(reversed(counts), reversed(steps), strict=True):
        if n != 1 and step != size:
            break
        size *= n
    return size


def _is_straight(view: NDArray[Any], steps: Sequence[int]) -> bool:
    """Whether runs that are one piece in the file are long ones in memory too."""
    *_, run = runs_of(view, steps)
    return run >= min(SHORT_BYTES, file_run(view.shape, steps, view.dtype.itemsize))


def _host(view: Any) -> NDArray[Any]:
    return view if isinstance(view, np.ndarray) else to_host(view)
