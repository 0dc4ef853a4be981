"""Lists of strided copies between buffers, prepared once and run many times."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.layout.tiles import Ints
from redist.runtime.copies.kernels import MAX_DIMS, kernels
from redist.runtime.copies.strided import Strided

Addresses = NDArray[np.uintp]

WIDE_BYTES = 128
"""Runs shorter than this are quicker for NumPy as one item each."""

_HEAD = 6


@dataclass(frozen=True, slots=True)
class BufferCopy:
    """A strided copy from buffer ``src`` at a byte offset to buffer ``dst``; numbers of a table."""

    dst: int
    dst_offset: int
    src: int
    src_offset: int
    form: Strided


@dataclass(frozen=True, slots=True, eq=False)
class CopyList:
    """Copies to be made in order, as the rows of integers that the compiled kernel reads.

    >>> from redist.runtime.copies.strided import canonical
    >>> a, b = np.arange(6.0).reshape(2, 3), np.zeros((2, 1))
    >>> moves = CopyList.of([BufferCopy(0, 0, 1, 16, canonical((2, 1), 8, b.strides, a.strides))])
    >>> moves.run(addresses([b, a]))
    >>> b.ravel()
    array([2., 5.])
    """

    rows: Ints
    n_bytes: int
    address: int
    streams: bool = False

    @staticmethod
    def of(moves: Iterable[BufferCopy], streams: bool = False) -> CopyList:
        """Prepare ``moves``; more dims than the kernel knows become several rows.

        ``streams`` says that what is written is not read again soon: it goes past the cache.
        """
        rows = [row for move in moves if move.form.n_bytes for row in _rows(move)]
        table = np.array(rows, dtype=np.int64).reshape(len(rows), _HEAD + 3 * MAX_DIMS)
        counts = np.where(
            np.arange(MAX_DIMS) < table[:, 5:6], table[:, _HEAD : _HEAD + MAX_DIMS], 1
        )
        n_bytes = int(np.sum(table[:, 4] * np.prod(counts, axis=1)))
        return CopyList(table, n_bytes, address_of(table), streams)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def pointer(self) -> tuple[int, int]:
        """Address and number of the rows."""
        return self.address, len(self.rows)

    def run(self, bases: Addresses) -> None:
        """Copy; ``bases`` has the address of every buffer."""
        if not len(self.rows):
            return
        compiled = kernels()
        if compiled is None:
            self._run_with_numpy(bases)
        else:
            compiled.copy(self.address, len(self.rows), address_of(bases), int(self.streams))

    def read(self, pid: int, bases: Addresses) -> None:
        """Copy where the sources are addresses of process ``pid``."""
        compiled = kernels()
        assert compiled is not None
        if len(self.rows) and compiled.read(pid, self.address, len(self.rows), address_of(bases)):
            raise TransferError(f"cannot read the memory of process {pid}: the kernel refuses")

    def _run_with_numpy(self, bases: Addresses) -> None:
        for block in np.unique(self.rows[:, 4]).tolist():
            # A short run is one wide item.
            dtype = np.dtype(np.uint8 if block >= WIDE_BYTES else (np.void, block))
            own = CopyList(np.ascontiguousarray(self.rows[self.rows[:, 4] == block]), 0, 0)
            for to, of in own.views(bases, dtype):
                np.copyto(to, of)

    def views(
        self, bases: Addresses, dtype: np.dtype[Any]
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Destination and source of every move, as arrays."""
        for dst, dst_offset, src, src_offset, block, n_dims, *rest in self.rows.tolist():
            items = block // dtype.itemsize
            tail, step = ([items], [dtype.itemsize]) if items > 1 else ([], [])
            counts = [*rest[:n_dims], *tail]
            to = [*rest[MAX_DIMS : MAX_DIMS + n_dims], *step]
            of = [*rest[2 * MAX_DIMS : 2 * MAX_DIMS + n_dims], *step]
            yield (
                array_at(int(bases[dst]) + dst_offset, counts, to, dtype),
                array_at(int(bases[src]) + src_offset, counts, of, dtype),
            )


def array_at(
    address: int, shape: Iterable[int], strides: Iterable[int], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """The memory at an address as an array. Whoever calls keeps the memory alive."""
    counts, steps = tuple(shape), tuple(strides)
    if 0 in counts:
        return np.empty(counts, dtype)
    low = sum((n - 1) * min(step, 0) for n, step in zip(counts, steps, strict=True))
    high = sum((n - 1) * max(step, 0) for n, step in zip(counts, steps, strict=True))
    memory: Any = (ctypes.c_char * (high - low + dtype.itemsize)).from_address(address + low)
    return np.ndarray(counts, dtype, memory, -low, steps)


def _asked_address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _read_address(array: NDArray[Any], at: int = object.__basicsize__) -> int:
    """The same in a fifth of the time: an array's pointer follows what every object begins with."""
    return ctypes.c_void_p.from_address(id(array) + at).value or 0


def _address_function() -> Callable[[NDArray[Any]], int]:
    """The quick way if it proves right here, else the documented one."""
    if sys.implementation.name == "cpython":
        samples = [np.zeros(3), np.zeros((2, 3))[1:, ::2], np.zeros(7, "u1")[::-1]]
        if all(_read_address(sample) == _asked_address(sample) for sample in samples):
            return _read_address
    return _asked_address


address_of = _address_function()
"""Address of the first element of an array."""


def addresses(arrays: Iterable[NDArray[Any]]) -> Addresses:
    """A table of base addresses."""
    return np.array([address_of(array) for array in arrays], dtype=np.uintp)


def _rows(move: BufferCopy) -> Iterator[list[int]]:
    outer, inner = move.form.dims[:-MAX_DIMS], move.form.dims[-MAX_DIMS:]
    pad = [0] * (MAX_DIMS - len(inner))
    columns = [[dim[k] for dim in inner] + pad for k in range(3)]
    tail = [*columns[0], *columns[1], *columns[2]]
    for place in itertools.product(*(range(count) for count, _, _ in outer)):
        dst = sum(i * d for i, (_, d, _) in zip(place, outer, strict=True))
        src = sum(i * s for i, (_, _, s) in zip(place, outer, strict=True))
        head = [move.dst, move.dst_offset + dst, move.src, move.src_offset + src]
        yield [*head, move.form.block, len(inner), *tail]
