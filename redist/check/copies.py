"""A copy of a block of an array, between any strides, as runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

Blocks = tuple[int, int, int, int, int, int]
"""Source offset, target offset, bytes, count, source step, target step."""


def copied(
    shape: Sequence[int],
    itemsize: int,
    source: tuple[int, Sequence[int]],
    target: tuple[int, Sequence[int]],
) -> Iterator[Blocks]:
    """The runs of a copy between places that begin at an offset and have strides, all in bytes.

    >>> list(copied((4, 3), 2, (0, (6, 2)), (10, (12, 2))))
    [(0, 10, 6, 4, 6, 12)]
    """
    (begin, steps), (there, there_steps) = source, target
    dims = [d for d in zip(shape, steps, there_steps, strict=True) if d[0] != 1]
    if any(size == 0 for size, _, _ in dims):
        return
    n_bytes = itemsize
    while dims and dims[-1][1] == dims[-1][2] == n_bytes:
        n_bytes *= dims.pop()[0]
    count, step, there_step = dims.pop() if dims else (1, 0, 0)
    for place in itertools.product(*(range(size) for size, _, _ in dims)):
        at = begin + sum(k * one for k, (_, one, _) in zip(place, dims, strict=True))
        to = there + sum(k * one for k, (_, _, one) in zip(place, dims, strict=True))
        yield at, to, n_bytes, count, step, there_step
