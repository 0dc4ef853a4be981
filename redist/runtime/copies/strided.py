"""The canonical form of a strided copy: one contiguous block, repeated over as few dims as can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from redist.text.units import ceil_div


@dataclass(frozen=True, slots=True)
class Strided:
    """``block`` bytes, repeated over dims of (count, stride in the destination, in the source).

    Dims are ordered by the destination's stride, so that writing goes forward.
    """

    block: int
    dims: tuple[tuple[int, int, int], ...]

    @property
    def n_bytes(self) -> int:
        """Bytes that move."""
        total = self.block
        for count, _, _ in self.dims:
            total *= count
        return total

    def swapped(self) -> Strided:
        """The copy back, walked in the same order."""
        return Strided(self.block, tuple((n, src, dst) for n, dst, src in self.dims))

    def between(self, lo: int, hi: int) -> Iterator[tuple[int, Strided]]:
        """The bytes from ``lo`` to ``hi`` in the order of the walk: where they are in the destination.

        >>> list(Strided(4, ((5, 10, 0),)).between(6, 16))
        [(12, Strided(block=2, dims=())), (20, Strided(block=4, dims=((2, 10, 0),)))]
        """
        if not self.dims:
            yield lo, Strided(hi - lo, ())
            return
        (_, dst, src), *rest = self.dims
        row = Strided(self.block, tuple(rest))
        size = row.n_bytes
        first, last = ceil_div(lo, size), hi // size
        if first > last:  # within one row
            yield from _moved(row.between(lo % size, hi % size), last * dst)
            return
        if lo % size:
            yield from _moved(row.between(lo % size, size), (first - 1) * dst)
        if last - first == 1:
            yield first * dst, row
        elif last > first:
            yield first * dst, Strided(self.block, ((last - first, dst, src), *rest))
        if hi % size:
            yield from _moved(row.between(0, hi % size), last * dst)


def _moved(parts: Iterator[tuple[int, Strided]], by: int) -> Iterator[tuple[int, Strided]]:
    return ((at + by, part) for at, part in parts)


def canonical(
    shape: Sequence[int], itemsize: int, dst: Sequence[int], src: Sequence[int]
) -> Strided:
    """Merge what is contiguous on both sides; strides are in bytes.

    A quarter of the columns of a 4 x 8 matrix of 4-byte elements, into a matrix of its own:

    >>> canonical((4, 2), 4, (8, 4), (32, 4))
    Strided(block=8, dims=((4, 8, 32),))
    >>> canonical((4, 8), 4, (32, 4), (32, 4))
    Strided(block=128, dims=())
    """
    real = [(n, d, s) for n, d, s in zip(shape, dst, src, strict=True) if n != 1]
    real.sort(key=lambda dim: (-abs(dim[1]), -abs(dim[2])))
    block = itemsize
    dims: list[tuple[int, int, int]] = []
    for n, d, s in reversed(real):
        if not dims and d == s == block:
            block *= n
        elif dims and d == dims[0][0] * dims[0][1] and s == dims[0][0] * dims[0][2]:
            dims[0] = (dims[0][0] * n, dims[0][1], dims[0][2])
        else:
            dims.insert(0, (n, d, s))
    return Strided(block, tuple(dims))


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of a C-contiguous array.

    >>> c_strides((2, 3, 4), 8)
    (96, 32, 8)
    """
    strides: list[int] = []
    step = itemsize
    for n in reversed(shape):
        strides.insert(0, step)
        step *= max(1, n)
    return tuple(strides)
