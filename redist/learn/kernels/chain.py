"""Steps of chains of nearest neighbours on one rank: in C where that was built, else in NumPy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.kernels.library import address, library
from redist.text.progress import Said, nothing

Values = NDArray[Any]
LINKAGES = ("ward", "average", "complete")
"""By their numbers in native/chain.c."""
AT_ONCE = 4096
"""More points than C merges in a moment."""


def least_of(row: Values) -> int:
    """**Local.** Where the least number of a row is, the first of several.

    >>> least_of(np.array([3.0, 1.0, 2.0, 1.0]))
    1
    """
    c = library()
    if c is None:
        return int(row.argmin())
    return int(c.redist_least(address(row), ctypes.c_int64(len(row))))


def merge_rows(
    linkage: str, to_x: Values, to_y: Values, apart: float, n_x: float, n_y: float, n: Values
) -> None:
    """**Local.** How far the cluster of x and y is from others, in place of ``to_y``.

    By the formulas of Lance and Williams; ``n`` are the sizes of the others, x is ``apart`` from y.
    """
    c = library()
    if c is None:
        to_y[:] = _merged(linkage, to_x, to_y, apart, n_x, n_y, n)
        return
    number = ctypes.c_double
    c.redist_merge(
        address(to_x), address(to_y), ctypes.c_int64(len(to_y)),
        ctypes.c_int64(LINKAGES.index(linkage)), number(apart), number(n_x), number(n_y),
        address(np.ascontiguousarray(n)),
    )  # fmt: skip


def merge_alone(linkage: str, far: Values, said: Said = nothing) -> Values | None:
    """**Local.** All merges of points whose distances are here, in the order of chains; None without C.

    ``far`` is changed.
    """
    c, n = library(), len(far)
    if c is None:
        return None
    size, chain, merges = np.ones(n), np.empty(n, np.int64), np.empty((n - 1, 4))
    if n > AT_ONCE:
        _merge_in_turns(linkage, far, size, merges, said)
        return merges
    c.redist_chain(
        address(far), ctypes.c_int64(n), ctypes.c_int64(LINKAGES.index(linkage)), address(size),
        address(chain), address(merges),
    )  # fmt: skip
    return merges


def _merge_in_turns(linkage: str, far: Values, size: Values, merges: Values, said: Said) -> None:
    """**Local.** As ``redist_chain``, a row at a time: Python sees Ctrl-C between the rows."""
    chain: list[int] = []
    for done, merge in enumerate(merges, start=1):
        if not chain:
            chain.append(int(np.flatnonzero(size)[0]))
        while True:
            x, before = chain[-1], chain[-2] if len(chain) > 1 else -1
            y = least_of(far[x])
            if before >= 0 and not far[x, y] < far[x, before]:
                y = before
            if y == before:
                break
            chain.append(y)
        del chain[-2:]
        least, (x, y) = float(far[x, y]), sorted((x, y))
        new = far[y]
        merge[:] = x, y, least, size[x] + size[y]
        merge_rows(linkage, far[x], new, least, float(size[x]), float(size[y]), size)
        size[y] += size[x]
        size[x] = 0
        new[y] = np.inf
        there = size != 0
        np.copyto(far[:, y], new, where=there)
        far[there, x] = np.inf
        said(done, len(merges))


def _merged(
    linkage: str, to_x: Values, to_y: Values, apart: float, n_x: float, n_y: float, n: Values
) -> Values:
    if linkage == "complete":
        return np.maximum(to_x, to_y)
    if linkage == "average":
        out: Values = (n_x * to_x + n_y * to_y) / (n_x + n_y)
        return out
    t = 1.0 / (n_x + n_y + n)
    squares = (n + n_x) * t * to_x * to_x + (n + n_y) * t * to_y * to_y - n * t * apart * apart
    return np.sqrt(squares)
