"""Where elements of arrays lie: steps from one to the next, and dims that lie as one in several arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from redist.runtime.copies.gpu_arrays import is_device

WORD_BYTES = 16
"""Kernels read so much at once where they can."""


class Lying(NamedTuple):
    """How an array lies: all that the choice of a kernel, and of its arguments, depends on."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    in_words: bool
    """Whether it begins with a whole word."""

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie in the order of rows, without gaps.

        >>> several = (12, 9, 4), (4, 4, 8)
        >>> [Lying(np.dtype("f4"), (2, 1, 3), strides, True).is_contiguous for strides in several]
        [True, False]
        """
        step = self.dtype.itemsize
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and stride != step:
                return False
            step *= n
        return True

    def steps_in(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """From one element to the next along each dim of a shape that it is stretched to, in elements."""
        missing, size = len(shape) - len(self.shape), self.dtype.itemsize
        own = zip(self.shape, self.strides, strict=True)
        return (0,) * missing + tuple(0 if n == 1 else step // size for n, step in own)


Lies = tuple[Lying | None, ...]
"""Of every operand of a kernel; None is a number."""


def lies_of(operands: Iterable[Any]) -> Lies | None:
    """How operands lie: arrays of a GPU, and real numbers; None if there are others, or no array."""
    found: list[Lying | None] = []
    for one in operands:
        if is_device(one):
            found.append(Lying(one.dtype, one.shape, one.strides, not one.data.ptr % WORD_BYTES))
        elif isinstance(one, complex) or np.ndim(one):
            return None
        else:
            found.append(None)
    return tuple(found) if any(found) else None


def stretched(lies: Lies) -> tuple[int, ...] | None:
    """The shape that operands are stretched to; None if they do not fit together."""
    try:
        return np.broadcast_shapes(*(one.shape for one in lies if one is not None))
    except ValueError:
        return None


def joined_dims(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Fewer dims, where neighbours lie as one in all arrays; dims of one element go.

    >>> joined_dims((2, 3, 4), [(12, 4, 1), (0, 0, 1)])
    ((6, 4), [(4, 1), (0, 1)])
    >>> joined_dims((5, 1), [(1, 0)])
    ((5,), [(1,)])
    """
    own = math.prod(shape)
    steps: list[list[int]] = []
    sizes: list[int] = []
    lines = [[own := own // n for n in shape], *map(list, strides)]
    for at, n in enumerate(shape):
        step = [one[at] for one in lines]
        if n == 1:
            continue
        if sizes and steps[-1] == [one * n for one in step]:
            sizes[-1] *= n
            steps[-1] = step
        else:
            sizes.append(n)
            steps.append(step)
    if not sizes:
        return (1,), [(1,) for _ in strides]
    turned = list(zip(*steps, strict=True))
    return tuple(sizes), turned[1:]
