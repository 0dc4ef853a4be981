"""Blocks of columns whose rows are cut over ranks: products, inner products, orthonormal columns.

A block has the same bits for every number of ranks: a row's products are added up in one order that does not
depend on the rows beside it, and inner products are exact sums. In C where it was built, else in NumPy, which
rounds products before it adds them.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels.library import address, in_turns, library
from redist.runtime.ranks.world import Comm
from redist.spmd import ExactGrid, all_rows, total_of

Values = NDArray[Any]
SIDE = 4
"""C works on multiples of this many columns."""
PART_BYTES = 2**22
"""What NumPy works on at a time."""
ROUGH = 1e-13
"""Directions that are shorter than this much of the longest, squared, are made of rounding."""


def times(rows: Values, small: Values) -> Values:
    """**Local.** Rows times a matrix; every row's answer is the same whatever rows are beside it.

    >>> times(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0], [10.0]])).tolist()
    [[21.0], [43.0]]
    """
    (n, m), k = rows.shape, small.shape[1]
    padded = -(-k // SIDE) * SIDE
    out = np.zeros((n, padded))
    c = library()
    if c is None:
        for j in range(m):
            out[:, :k] += rows[:, j, None] * small[j]
        return np.ascontiguousarray(out[:, :k])
    right = np.zeros((m, padded))
    right[:, :k] = small
    count = ctypes.c_int64
    for part in in_turns(n, m * padded):
        here = rows[part]
        c.redist_times(
            _place(here), count(len(here)), count(m), count(_stride(rows)), address(right),
            count(padded), address(out[part]), count(padded),
        )  # fmt: skip
    return out if k == padded else np.ascontiguousarray(out[:, :k])


def inner(comm: Comm, n: int, one: Values, other: Values) -> Values:
    """**Collective.** The inner products of the columns of two blocks of ``n`` rows, over all ranks' rows."""
    most = np.array([np.abs(part).max(initial=0.0) for part in (one, other)])
    bounds = total_of(comm, most, "max")
    grid = ExactGrid.for_sum(float(bounds[0] * bounds[1]), n)
    total: Values = total_of(comm, _inner_sums(one, other, grid)).sum(axis=0)
    return total


def orthonormal(comm: Comm, n: int, block: Values, drop: bool = True) -> tuple[Values, Values]:
    """**Collective.** Orthonormal columns, and what they are multiplied with to give the block.

    Columns that the others already span, but for rounding, are dropped; with ``drop=False`` they become
    directions that rounding decides.
    """
    length = np.sqrt(np.diag(products := inner(comm, n, block, block)))
    length[length == 0] = 1
    squares, turned = alike(comm, *np.linalg.eigh(products / length / length[:, None]))
    most = squares[-1] if len(squares) else 0.0
    squares = np.maximum(squares, most * 1e-16)
    kept = squares > (ROUGH * most if drop else 0)
    squares, turned = np.sqrt(squares[kept]), turned[:, kept]
    made = times(block, turned / length[:, None] / squares)
    return made, squares[:, None] * turned.T * length


def alike(comm: Comm, *values: Values) -> list[Values]:
    """**Collective.** Small arrays that every rank worked out, as the first rank has them.

    So ranks go the same way, though their processors may round differently.
    """
    if comm.size == 1:
        return list(values)
    flat = np.concatenate([np.ravel(one) for one in values])
    ends = np.cumsum([one.size for one in values])[:-1]
    parts = np.split(all_rows(comm, flat)[0], ends)
    return [part.reshape(one.shape) for part, one in zip(parts, values, strict=True)]


def with_signs(comm: Comm, block: Values) -> tuple[Values, Values]:
    """**Collective.** The block with every column's largest number above 0, and the signs that it took."""
    k = block.shape[1]
    most = np.zeros(k)
    if len(block):
        most = block[np.abs(block).argmax(axis=0), np.arange(k)]
    every = all_rows(comm, most)
    signs = np.sign(every[np.abs(every).argmax(axis=0), np.arange(k)])
    signs[signs == 0] = 1
    return block * signs, signs


def _inner_sums(one: Values, other: Values, grid: ExactGrid) -> Values:
    """**Local.** The same of this rank's rows: coarse and fine parts."""
    n, a, b = len(one), one.shape[1], other.shape[1]
    sums = np.zeros((2, a, b))
    c = library()
    if c is None:
        step = max(1, PART_BYTES // max(1, 8 * a * b))
        for lo in range(0, n, step):
            sums += grid.sum_rows(one[lo : lo + step, :, None] * other[lo : lo + step, None, :])
        return sums
    count = ctypes.c_int64
    for part in in_turns(n, a * b):
        left, right = one[part], other[part]
        c.redist_inner(
            _place(left), count(a), count(_stride(one)), _place(right), count(b),
            count(_stride(other)), count(len(left)), *map(ctypes.c_double, grid.steps), address(sums),
        )  # fmt: skip
    return sums


def _place(block: Values) -> ctypes.c_void_p:
    """**Local.** Where a block lies for C: numbers of a row are beside each other."""
    assert block.dtype == np.float64
    assert block.shape[1] < 2 or not len(block) or block.strides[1] == block.itemsize
    return ctypes.c_void_p(block.ctypes.data)


def _stride(block: Values) -> int:
    """**Local.** How many numbers the rows of a block are apart."""
    return int(block.strides[0] // block.itemsize)
