"""Hierarchies by chains of nearest neighbours: distances of all pairs are cut over ranks.

A rank holds how far its points are from all: ``n`` rows of ``m`` columns. A step of a chain is an
all-gather of three numbers a rank; a merge works out a new row where its parts are, and one all-gather of it
brings the new column to the rank that holds it. Chains, merges and ties are those of SciPy. Steps on one
rank are done in C where it was built, else in NumPy. Distances of rows on a GPU lie there: one rank has a
kernel for the steps, several bring the rows that they look at to memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from redist.learn.kernels.cuda.near import all_squares, merge_on_gpu
from redist.learn.kernels.library import address, library
from redist.learn.near.spanning_tree import is_fused_by_scipy
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for
from redist.spmd import Rows, RowsOfAll, Visits
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


def distance_columns(rows: Rows, metric: str, said: Said = nothing) -> Values:
    """**Collective.** How far all rows are from each own row; infinitely from itself.

    On a GPU the metric is Euclidean, and distances have SciPy's bits.
    """
    xp, done = functions_for(rows.local), 0
    out: Values = xp.empty((rows.n, len(rows.local)))
    for first, tile in Visits(rows):
        if len(tile) and len(rows.local):
            into = out[first : first + len(tile)]
            if rows.on_gpu:
                all_squares(rows.local, tile, into, bool(is_fused_by_scipy()))
            else:
                cdist(tile, rows.local, metric, out=into)
            done += len(tile)
            said(done, rows.n)
    if rows.on_gpu:
        out = xp.sqrt(out)
    places = np.arange(len(rows.local))
    out[rows.beside(places + rows.first), rows.beside(places)] = np.inf
    return out


def merge_all(rows: Rows, far: Values, linkage: str, said: Said = nothing) -> Values:
    """**Collective.** The merges of all rows, the nearest first, as SciPy's ``linkage`` has them.

    ``far`` are :func:`distance_columns`, and are changed. Each merge has two clusters, their distance and the
    number of rows; row ``i`` of the result is cluster ``n + i``.
    """
    alone = None
    if rows.comm.size == 1 and rows.on_gpu:
        alone = merge_on_gpu(LINKAGES.index(linkage), far, said)
    elif rows.comm.size == 1:
        alone = merge_alone(linkage, far, said)
    merges = _merge_together(rows, far, linkage, said) if alone is None else alone
    return number_merges(merges[np.argsort(merges[:, 2], kind="stable")])


def _merge_together(rows: Rows, far: Values, linkage: str, said: Said) -> Values:
    """**Collective.** Two points, how far they are apart and how many are in both, in the order of chains."""
    n, own = rows.n, slice(rows.first, rows.first + len(rows.local))
    counts = np.diff(rows.firsts())
    tell, pieces = RowsOfAll(rows.comm, 3), RowsOfAll(rows.comm, int(counts.max()))
    size, merges, chain = np.ones(n), np.empty((n - 1, 4)), list[int]()
    for k in range(n - 1):
        if not chain:
            chain = [int(np.flatnonzero(size)[0])]
        while True:
            x, before = chain[-1], chain[-2] if len(chain) > 1 else -1
            y, least = _nearest(tell, to_host(far[x]), rows.first, before)
            if y == before:
                break
            chain.append(y)
        del chain[-2:]
        x, y = min(x, y), max(x, y)
        merges[k] = x, y, least, size[x] + size[y]
        new = to_host(far[y])  # in memory far[y] itself
        merge_rows(linkage, to_host(far[x]), new, least, size[x], size[y], size[own])
        size[y] += size[x]
        size[x] = 0
        if own.start <= y < own.stop:
            new[y - own.start] = np.inf
        if rows.on_gpu:
            far[y] = to_device(new)
        pieces.row[: len(new)] = new
        whole = np.concatenate([one[:n] for one, n in zip(pieces(), counts, strict=True)])
        if own.start <= y < own.stop:
            far[:, y - own.start] = rows.beside(whole)
        if own.start <= x < own.stop:
            far[:, x - own.start] = np.inf
        said(k + 1, n - 1)
    return merges


def _nearest(tell: RowsOfAll, row: Values, first: int, before: int) -> tuple[int, float]:
    """**Collective.** The nearest of all points to one, and how far; in a tie the one before it."""
    offer = tell.row
    offer[:] = np.inf
    if len(row):
        at = least_of(row)
        offer[:2] = row[at], at + first
        if first <= before < first + len(row):
            offer[2] = row[before - first]
    every = tell()
    best = every[every[:, 0] == every[:, 0].min()][0]  # ranks are in the order of rows
    back = float(every[:, 2].min())
    if before >= 0 and not best[0] < back:
        return before, back
    return int(best[1]), float(best[0])


def number_merges(merges: Values) -> Values:
    """**Local.** Name what is merged by clusters: rows, then earlier merges; the lower one first.

    >>> number_merges(np.array([[0, 1, 1.0, 2], [1, 2, 3.0, 3]]))[:, :2].tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    n = len(merges) + 1
    parent = list(range(2 * n - 1))
    size = [1] * n + [0] * (n - 1)

    def top(one: int) -> int:
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    for i, (x, y) in enumerate(merges[:, :2].astype(int).tolist()):
        low, high = sorted((top(x), top(y)))
        parent[low] = parent[high] = n + i
        size[n + i] = size[low] + size[high]
        merges[i, 0], merges[i, 1], merges[i, 3] = low, high, size[n + i]
    return merges
