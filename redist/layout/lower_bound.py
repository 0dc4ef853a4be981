"""The information lower bound: how many elements must be received, whatever the plan is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.axes import Ints, coordinates
from redist.layout.tiles import (
    Grid,
    SpanGrid,
    common,
    grid,
    grids,
    held_in_both,
    overlap_tables,
    overlaps,
    total,
    volumes,
)


def lower_bound_bytes(source: ArrayType, target: ArrayType) -> int:
    """Bytes that all ranks together must receive to turn ``source`` into ``target``.

    >>> from redist.layout.mesh import Mesh
    >>> m = Mesh(x=2, y=4)
    >>> a, b = ArrayType.parse("f32[4096{x}, 4096{y}]", m), ArrayType.parse("f32[4096{y}, 4096{x}]", m)
    >>> lower_bound_bytes(a, b) // 2**20
    48

    Without pending reductions, every rank must receive exactly what its target tile has and its source
    tile lacks. An element with g partial values and r holders in the target needs g + r - 1 receives, one
    less if a holder has a partial value of it. If a reduction stays pending in the target, partial values may
    stay where they are; the bound then counts the cheapest way to leave them.
    """
    if source.pending_op is None and target.pending_op is None:
        _, _, both = held_in_both(source, target)
        return (total(volumes(target)) - total(both)) * target.dtype.itemsize
    if source.is_plain and target.is_plain:
        a, b = grid(source), grid(target)
        ia, ib = common(a, b)
        both = overlaps(a, ia, b, ib)
        received = _pending_receives(source, target, a, b, both, source.global_elems)
        return received * target.dtype.itemsize
    received = 0
    for one in grids(source):
        for other in grids(target):
            tables = overlap_tables(one, other)
            ia, ib = common(one, other)
            both = np.ones(len(ia), dtype=np.int64)
            for i, table in enumerate(tables):
                both *= table[one.index[ia, i], other.index[ib, i]]
            n_elems = math.prod(int(np.sum(table)) for table in tables)
            received += _pending_receives(source, target, one, other, both, n_elems)
    return received * target.dtype.itemsize


def _pending_receives(
    source: ArrayType,
    target: ArrayType,
    a: Grid | SpanGrid,
    b: Grid | SpanGrid,
    both: Ints,
    n_elems: int,
) -> int:
    """The least receives for all elements of two grids; ``both`` counts those that a rank has in both."""
    ia, ib = common(a, b)
    partials = math.prod(part.size for part in source.pending_axes)
    places = math.prod(part.size for part in target.pending_axes)
    holders = target.mesh.n_devices // (math.prod(b.n_tiles) * places)
    stays = both > 0
    rows_a, rows_b = ia[stays], ib[stays]
    key = np.stack(
        [
            a.shards()[rows_a],
            b.shards()[rows_b],
            coordinates(source.mesh, source.pending_axes)[rows_a],
            coordinates(target.mesh, target.pending_axes)[rows_b],
        ]
    )
    cells = _cells(key, both[stays], partials, holders)
    may_stay = source.pending_op == target.pending_op or source.pending_op is None
    received = int(np.sum(_receives(cells, partials, places, holders, may_stay) * cells.volume))
    elsewhere = n_elems - int(np.sum(cells.volume))
    return received + elsewhere * (partials + holders - 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Elements in the same source tile and the same target tile are alike: the rows are such cells.

    Only cells count of which some rank holds a partial value before and the element after. Of a
    cell's partial values, ``present`` are so held; ``kept`` are held by all holders of one place of
    the target's pending axes, where they can stay for nothing; and if each stays alone at the place
    that suits it best, ``apart`` receives complete the holders of these places.
    """

    volume: Ints
    present: Ints
    kept: Ints
    apart: Ints


def _cells(key: Ints, volume: Ints, partials: int, holders: int) -> _Cells:
    """The cells of ranks, one column each: source tile, target tile, partial value before, place after."""
    if key.shape[1] == 0:
        none = np.zeros(0, dtype=np.int64)
        return _Cells(none, none, none, none)
    groups, first, own = np.unique(key, axis=1, return_index=True, return_counts=True)
    # Columns are sorted by cell, then partial value, then place: the best place of each value.
    values = _starts(groups[:3])
    best = np.maximum.reduceat(own, values)
    cells = _starts(groups[:2, values])
    present = np.diff(np.r_[cells, len(values)])
    kept = np.add.reduceat((best == holders).astype(np.int64), cells)
    apart = np.add.reduceat(holders - best, cells) + (partials - present) * holders
    return _Cells(volume[first][values][cells], present, kept, apart)


def _starts(columns: Ints) -> Ints:
    """Where columns differ from the one before."""
    return np.flatnonzero(np.r_[True, np.any(columns[:, 1:] != columns[:, :-1], axis=0)])


def _receives(cells: _Cells, partials: int, places: int, holders: int, may_stay: bool) -> Ints:
    """The least receives for an element of each cell.

    Theorem *pending* (proofs/theorems/pending.py): to combine g values for r holders takes g + r - 1
    receives, one less if a holder has one of them. A value that stays at its place is not combined;
    the others are combined at one place. If there are places enough, all may stay apart instead.
    """
    if places == 1 and partials > 1:
        return np.full_like(cells.volume, partials + holders - 2)
    kept = cells.kept if may_stay else np.zeros_like(cells.kept)
    combined = partials - kept + holders - 1 - (cells.present > kept)
    least = np.where(kept == partials, 0, combined)
    return np.minimum(least, cells.apart) if may_stay and partials <= places else least
