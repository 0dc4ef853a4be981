"""What every rank holds at one moment of a plan: a box, and which partial value of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, refined_parts
from redist.layout.tiles import Ints, coordinates

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """Boxes of all ranks of a mesh under a type, one row per device, one column per dim.

    ``index`` numbers the tiles, ``volumes`` counts the elements of the boxes.
    """

    type: ArrayType
    cuts: tuple[int, ...]
    index: Ints
    lo: Ints
    hi: Ints
    volumes: Ints


def holding(t: ArrayType) -> Holding:
    """What ranks hold under a type."""
    n = t.mesh.n_devices
    index = np.zeros((n, t.ndim), dtype=np.int64)
    lo, hi = np.zeros_like(index), np.zeros_like(index)
    for i, axes in enumerate(t.dims):
        index[:, i] = coordinates(t.mesh, axes)
        lo[:, i], hi[:, i] = t.cut(i).ranges_of(index[:, i])
    return Holding(t, t.cuts, index, lo, hi, np.prod(hi - lo, axis=1, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class PendingChange:
    """How the pending axes differ between two types: resolved, kept, added."""

    resolved: tuple[SubAxis, ...]
    kept: tuple[SubAxis, ...]
    added: tuple[SubAxis, ...]


def pending_change(before: ArrayType, after: ArrayType) -> PendingChange:
    """The change, in the smallest pieces that both types are made of."""
    if before.mesh != after.mesh or before.pending_op != after.pending_op:
        return PendingChange(before.pending_axes, (), after.pending_axes)
    pieces = refined_parts(before.mesh, (*before.pending_axes, *after.pending_axes))
    old = tuple(p for p in pieces if _is_covered(p, before.pending_axes))
    new = tuple(p for p in pieces if _is_covered(p, after.pending_axes))
    if size(old) != size(before.pending_axes) or size(new) != size(after.pending_axes):
        return PendingChange(before.pending_axes, (), after.pending_axes)
    return PendingChange(
        tuple(p for p in old if p not in new),
        tuple(p for p in old if p in new),
        tuple(p for p in new if p not in old),
    )


def size(parts: Iterable[SubAxis]) -> int:
    """Product of the sizes of some axes."""
    return math.prod(part.size for part in parts)


def _is_covered(piece: SubAxis, parts: Iterable[SubAxis]) -> bool:
    return any(piece.inside(part) for part in parts)


def group_numbers(t: ArrayType, moved: Iterable[SubAxis]) -> Ints:
    """A number for every rank; equal for ranks that differ on the moved axes only."""
    own = tuple(moved)
    pieces = refined_parts(t.mesh, own)
    return coordinates(t.mesh, [piece for piece in pieces if not _is_covered(piece, own)])


def rows_by_rank(a: ArrayType, b: ArrayType) -> Ints:
    """For every device of b the device of a that the same rank plays, or -1."""
    if a.mesh.ranks == b.mesh.ranks:
        return np.arange(b.mesh.n_devices, dtype=np.int64)
    ranks = a.mesh.rank_array()
    order = np.argsort(ranks)
    wanted = b.mesh.rank_array()
    at = np.minimum(np.searchsorted(ranks, wanted, sorter=order), len(ranks) - 1)
    found = order[at]
    return np.where(ranks[found] == wanted, found, -1)


def is_complete(holding: Holding, classes: Ints, n_classes: int) -> bool:
    """Whether, for every class of partial values, the boxes held together are the whole array."""
    keys = classes.copy()
    for i, k in enumerate(holding.cuts):
        keys = keys * k + holding.index[:, i]
    filled = holding.volumes > 0
    wanted = n_classes
    for n, k in zip(holding.type.shape, holding.cuts, strict=True):
        tile = -(-n // k)
        wanted *= -(-n // tile) if n else 0
    if n_classes * math.prod(holding.cuts) <= 4 * len(keys):
        seen = np.zeros(n_classes * math.prod(holding.cuts), dtype=np.bool_)
        seen[keys[filled]] = True
        return int(np.count_nonzero(seen)) == wanted
    return len(np.unique(keys[filled])) == wanted
