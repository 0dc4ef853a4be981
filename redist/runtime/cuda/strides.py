"""Where elements of arrays lie: steps from one to the next, and dims that lie as one in several arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def steps_in(array: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """From one element to the next along each dim of a shape that an array is stretched to, in elements."""
    missing = len(shape) - array.ndim
    own = zip(array.shape, array.strides, strict=True)
    return (0,) * missing + tuple(0 if n == 1 else step // array.itemsize for n, step in own)


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
