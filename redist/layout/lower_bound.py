"""The information lower bound: how many elements must be received, whatever the plan."""

from __future__ import annotations

import math

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints, common, coordinates, grid, overlaps, total


def lower_bound_bytes(source: ArrayType, target: ArrayType) -> int:
    """Bytes that all ranks together must receive to turn ``source`` into ``target``.

    >>> from redist.layout.mesh import Mesh
    >>> m = Mesh(x=2, y=4)
    >>> a, b = ArrayType.parse("f32[4096{x}, 4096{y}]", m), ArrayType.parse("f32[4096{y}, 4096{x}]", m)
    >>> lower_bound_bytes(a, b) // 2**20
    48

    Without pending reductions every rank lacks target minus source, and that is all. An element
    with g partial values and r holders in the target needs g + r - 1 receives, one less if a holder
    has a partial value of it. Where the target leaves a reduction pending, partial values may stay
    where they are: then the cheapest way to leave them counts.
    """
    a, b = grid(source), grid(target)
    ia, ib = common(a, b)
    both = overlaps(a, ia, b, ib)
    if source.pending_op is None and target.pending_op is None:
        return (total(b.volumes()) - total(both)) * target.dtype.itemsize
    return _pending_bound(source, target, a.shards()[ia], b.shards()[ib], ia, ib, both) * (
        target.dtype.itemsize
    )


def _pending_bound(
    source: ArrayType,
    target: ArrayType,
    from_shard: Ints,
    to_shard: Ints,
    ia: Ints,
    ib: Ints,
    both: Ints,
) -> int:
    """Elements to receive, summed over cells (source tile x target tile); a cell is all alike.

    In a cell, own(q, p) counts the ranks that hold partial value p before and stand at coordinate q
    of the target's pending axes after. A coordinate q whose holders all have p can keep it for
    nothing; every other partial value has to reach a collector, which costs one receive each, and
    the collector's r holders need the sum: r - 1 more, one less if one of them takes part already.
    """
    keeps = source.pending_op == target.pending_op or source.pending_op is None
    g = math.prod(part.size for part in source.pending_axes)
    h = math.prod(part.size for part in target.pending_axes)
    holders = target.mesh.n_devices // (math.prod(target.cuts) * h)
    cells_without = g + holders - 1
    held = both > 0
    key = np.stack(
        [
            from_shard[held],
            to_shard[held],
            coordinates(source.mesh, source.pending_axes)[ia][held],
            coordinates(target.mesh, target.pending_axes)[ib][held],
        ]
    )
    if key.shape[1] == 0:
        return source.global_elems * cells_without
    groups, first, own = np.unique(key, axis=1, return_index=True, return_counts=True)
    volume = both[held][first]
    # Per (cell, p): the best q; rows of `groups` are sorted by cell, then p.
    starts = np.flatnonzero(np.r_[True, np.any(groups[:3, 1:] != groups[:3, :-1], axis=0)])
    best = np.maximum.reduceat(own, starts)
    cell_key, cell_volume = groups[:2, starts], volume[starts]
    cells = np.flatnonzero(np.r_[True, np.any(cell_key[:, 1:] != cell_key[:, :-1], axis=0)])
    present = np.diff(np.r_[cells, len(starts)])
    kept = np.add.reduceat((best == holders).astype(np.int64), cells)
    singles = np.add.reduceat(holders - best, cells) + (g - present) * holders
    if not keeps:
        kept = np.zeros_like(kept)
    collected = g - kept + holders - 1 - (present > kept)
    cost = np.where(kept == g, 0, collected)
    if keeps and (h > 1 or g == 1):
        cost = np.minimum(cost, np.where(g <= h, singles, cost))
    if h == 1 and g > 1:
        cost = np.full_like(cost, g + holders - 2)
    volumes = cell_volume[cells]
    return int(np.sum(cost * volumes)) + cells_without * (
        source.global_elems - int(np.sum(volumes))
    )
