"""Weights and plans in the words of the judge: buffers, boxes of named tensors in them, and all runs.

This is the border to :mod:`redist.check.runs`, which knows nothing of types, rules and plans.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from redist.check.boxes import Boxes, box_dtype
from redist.check.run_rows import RUN
from redist.layout.tiles import tile_shapes
from redist.refits.held import Held
from redist.refits.ranges import Tile
from redist.refits.weights import Weights

if TYPE_CHECKING:
    from redist.refits.plan import RefitPlan


def buffers_of(weights: Weights) -> list[tuple[int, str, int]]:
    """Rank, stored tensor and bytes of every tile, tensor by tensor."""
    found = []
    for name, t in weights.types.items():
        for rank, shape in tile_shapes(t).items():
            found.append((rank, name, math.prod(shape) * t.dtype.itemsize))
    return found


def boxes_of(weights: Weights) -> Boxes:
    """All buffers of one side, and the boxes in them.

    >>> print(boxes_of(Weights({"qk": "f32[8{x}+2, 3]"}, "x=2", names="qk[8|2, :] = q, k")))
    4 boxes of 2 tensors in 2 buffers on 2 ranks, 144 B
    """
    held = Held(weights)
    buffers = buffers_of(weights)
    number = {(rank, name): k for k, (rank, name, _) in enumerate(buffers)}
    tensors = {name: held.shapes[name] for name in sorted(held.shapes)}
    of_tensor = {name: k for k, name in enumerate(tensors)}
    n_dims = max([1, *map(len, tensors.values())])
    placed: dict[
        int, list[tuple[int, int, int, int]]
    ] = {}  # by tile: buffer, tensor, base, itemsize
    for name, entries in held.named.items():
        tensor = of_tensor[name]
        for seat, stored in entries:
            one = held.seats[seat]
            text, itemsize = weights.stored[stored], one.dtype.itemsize
            columns = held.ranks[one.ranks], held.bases[one.bases], held.patterns[one.pattern]
            for rank, base, tile in zip(*(column.tolist() for column in columns), strict=True):
                placed.setdefault(tile, []).append((number[rank, text], tensor, base, itemsize))
    parts = []
    for tile, where in placed.items():
        own = _rows(held.tiles[tile], n_dims)
        rows = np.tile(own, len(where))
        table = np.repeat(np.array(where, dtype=np.int64), len(own), axis=0).T
        rows["buffer"], rows["tensor"], rows["itemsize"] = table[0], table[1], table[3]
        rows["offset"] += table[2]
        parts.append(rows)
    rows = np.concatenate(parts) if parts else np.zeros(0, box_dtype(n_dims))
    return Boxes(
        tensors, [name for _, name, _ in buffers], np.array([rank for rank, _, _ in buffers], dtype=np.int64),
        np.array([size for _, _, size in buffers], dtype=np.int64), rows,
    )  # fmt: skip


def _rows(tile: Tile, n_dims: int) -> NDArray[np.void]:
    """The boxes of a tile: one for each combination of ranges."""
    parts = []
    for box in tile:
        counts = [len(ranges.lo) for ranges in box]
        n = math.prod(counts)
        rows = np.zeros(n, box_dtype(n_dims))
        rows["shape"] = 1
        front = n_dims - len(box)
        index = np.unravel_index(np.arange(n), counts) if box else ()
        for d, (ranges, which) in enumerate(zip(box, index, strict=True)):
            rows["lo"][:, front + d] = ranges.lo[which]
            rows["shape"][:, front + d] = ranges.n[which]
            rows["strides"][:, front + d] = ranges.step
            rows["offset"] += ranges.at[which]
        parts.append(rows)
    return np.concatenate(parts)


def rows_of(plan: RefitPlan) -> NDArray[np.void]:
    """Every run of a plan, as its receivers list them."""
    source = {(rank, name): k for k, (rank, name, _) in enumerate(buffers_of(plan.source))}
    target = {(rank, name): k for k, (rank, name, _) in enumerate(buffers_of(plan.target))}
    parts = []
    for rank in plan.target.ranks:
        runs = plan.runs(rank)
        rows = np.empty(len(runs), RUN)
        pairs = np.stack([runs["peer"], runs["there"]], axis=1)
        different, which = np.unique(pairs, axis=0, return_inverse=True)
        numbers = [source[peer, plan.source.stored[there]] for peer, there in different.tolist()]
        rows["source"] = np.array(numbers, dtype=np.int64)[which.reshape(-1)] if len(runs) else 0
        mine, which = np.unique(runs["tensor"], return_inverse=True)
        numbers = [target[rank, plan.target.stored[tensor]] for tensor in mine.tolist()]
        rows["target"] = np.array(numbers, dtype=np.int64)[which.reshape(-1)] if len(runs) else 0
        rows["round"], rows["bytes"], rows["count"] = runs["round"], runs["bytes"], runs["count"]
        rows["source_offset"], rows["target_offset"] = runs["there_offset"], runs["offset"]
        rows["source_step"], rows["target_step"] = runs["there_step"], runs["step"]
        parts.append(rows)
    return np.concatenate(parts) if parts else np.zeros(0, RUN)
