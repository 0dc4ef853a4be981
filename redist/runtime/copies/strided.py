"""The canonical form of a strided copy: one contiguous block, repeated over as few dims as can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
