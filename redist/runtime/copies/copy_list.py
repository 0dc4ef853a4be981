"""Lists of strided copies between buffers, prepared once and run many times."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import TransferError
from redist.layout.tiles import Ints
from redist.runtime.copies.addresses import Addresses, address_of, array_at
from redist.runtime.copies.kernels import MAX_DIMS, kernels
from redist.runtime.copies.strided import Strided

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

    >>> from redist.runtime.copies.addresses import addresses
    >>> from redist.runtime.copies.strided import canonical
    >>> a, b = np.arange(6.0).reshape(2, 3), np.zeros((2, 1))
    >>> moves = CopyList.of([BufferCopy(0, 0, 1, 16, canonical((2, 1), 8, b.strides, a.strides))])
    >>> moves.run(addresses([b, a]))
    >>> b.ravel()
    array([2., 5.])
    """

    rows: Ints
    address: int
    streams: bool = False

    @staticmethod
    def of(moves: Iterable[BufferCopy], streams: bool = False) -> CopyList:
        """Prepare ``moves``; more dims than the kernel knows become several rows.

        ``streams`` says that what is written is not read again soon: it goes past the cache.
        """
        rows = [row for move in moves if move.form.n_bytes for row in _rows(move)]
        table = np.array(rows, dtype=np.int64).reshape(len(rows), _HEAD + 3 * MAX_DIMS)
        return CopyList(table, address_of(table), streams)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def pointer(self) -> tuple[int, int]:
        """Address and number of the rows."""
        return self.address, len(self.rows)

    def moves(self) -> Iterator[BufferCopy]:
        """The moves that the rows were made of.

        >>> moves = [BufferCopy(0, 8, 1, 16, Strided(8, ((2, 8, 24),)))]
        >>> list(CopyList.of(moves).moves()) == moves
        True
        """
        for dst, dst_offset, src, src_offset, block, n_dims, *rest in self.rows.tolist():
            counts, to, of = (rest[k * MAX_DIMS : k * MAX_DIMS + n_dims] for k in range(3))
            form = Strided(block, tuple(zip(counts, to, of, strict=True)))
            yield BufferCopy(dst, dst_offset, src, src_offset, form)

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
            own = CopyList(np.ascontiguousarray(self.rows[self.rows[:, 4] == block]), 0)
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
