"""Can this action deliver what the next type needs? Ownership replayed, box by box."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from redist.check.segment_indices import held_elems, is_covered
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, coordinates, refined_parts
from redist.layout.cuts import cut_dim
from redist.layout.mesh import Mesh
from redist.layout.tiles import Ints
from redist.plan.steps import (
    Action,
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    Exchange,
    ReduceScatter,
    Slice,
)

# What every rank holds at one moment of a plan: a box, and which partial value of it.


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
    """What ranks hold under a type; tiles of one with segments are no boxes, and lo and hi are 0."""
    n = t.mesh.n_devices
    index = np.zeros((n, t.ndim), dtype=np.int64)
    lo, hi = np.zeros_like(index), np.zeros_like(index)
    for i, axes in enumerate(t.dims):
        index[:, i] = coordinates(t.mesh, axes)
    if t.segments:
        return Holding(t, t.cuts, index, lo, hi, held_elems(t))
    for i in range(t.ndim):
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


def fault(action: Action, before: Holding, after: Holding, pending: PendingChange) -> str | None:
    """Why the action does not lead from one holding to the other; None if it does."""
    for part in _parts(action):
        total = dict(before.type.mesh.axes).get(part.name)
        if total is None or part.pre < 1 or part.size < 1 or total % part.end:
            return f"the mesh has no axis {part.name}:({part.pre}){part.size}"
    one_mesh = isinstance(action, (Slice, AllGather, AllToAll, AllReduce))
    if one_mesh and before.type.mesh != after.type.mesh:
        return "it changes meshes"
    if before.type.segments or after.type.segments:
        return _segment_fault(action, before, after, pending)
    match action:
        case Slice():
            return _slice_fault(action, before, after, pending)
        case AllGather(moves):
            return _pending_fault(pending) or _gather_fault(moves, before, after)
        case AllToAll(moves):
            return _pending_fault(pending) or _all_to_all_fault(moves, before, after)
        case AllPermute():
            return _pending_fault(pending) or _permute_fault(before, after)
        case Exchange():
            if pending.resolved:
                return "it cannot resolve pending axes"
            return _supply_fault(before)
        case ReduceScatter():
            if not pending.resolved:
                return "it resolves no pending axis"
            return _supply_fault(before)
        case AllReduce(axes):
            return _all_reduce_fault(axes, before, after, pending)


def _segment_fault(
    action: Action, before: Holding, after: Holding, pending: PendingChange
) -> str | None:
    if not isinstance(action, (Exchange, ReduceScatter)):
        return "it cannot move parts of a dim with segments"
    if bool(pending.resolved) != isinstance(action, ReduceScatter):
        return "reduce_scatter resolves pending axes, and exchange does not"
    if not (is_covered(before.type) and is_covered(after.type)):
        return "some index is held by no rank"
    return None


def _parts(action: Action) -> list[SubAxis]:
    """The axes that an action names."""
    match action:
        case Slice(moves, _, pending):
            return [*(part for part, _ in moves), *pending]
        case AllGather(moves):
            return [part for part, _ in moves]
        case AllToAll(triples):
            return [part for block, _, _ in triples for part in block]
        case AllReduce(axes):
            return list(axes)
        case _:
            return []


def _pending_fault(pending: PendingChange) -> str | None:
    return "it changes pending axes" if pending.resolved or pending.added else None


def _supply_fault(before: Holding) -> str | None:
    """Every index of every partial value must be somewhere."""
    classes = coordinates(before.type.mesh, before.type.pending_axes)
    if is_complete(before, classes, size(before.type.pending_axes)):
        return None
    return f"some index is held by no rank under {before.type}"


def _place_axes(before: Holding, moves: Iterable[tuple[SubAxis, int]]) -> tuple[Ints, list[int]]:
    """Tile numbers and cuts when axes are appended to dims."""
    index, cuts = before.index.copy(), list(before.cuts)
    for part, dim in moves:
        index[:, dim] = index[:, dim] * part.size + coordinates(before.type.mesh, [part])
        cuts[dim] *= part.size
    return index, cuts


def _slice_fault(
    action: Slice, before: Holding, after: Holding, pending: PendingChange
) -> str | None:
    mesh, n_dims = before.type.mesh, before.type.ndim
    if any(not 0 <= dim < n_dims for _, dim in action.moves):
        return "it names a dim that is not there"
    if pending.resolved:
        return "it cannot resolve pending axes"
    if size(pending.added) != size(action.pending) or (
        group_numbers(before.type, pending.added).tolist()
        != group_numbers(before.type, action.pending).tolist()
    ):
        return "the axes that it makes pending are not those of the type after it"
    if any(_overlaps_any(part, [p for p, _ in action.moves]) for part in action.pending):
        return "it cuts along an axis that it makes pending"
    if pending.added and action.pending_op != after.type.pending_op:
        return f"it leaves a {action.pending_op} pending, the type says {after.type.pending_op}"
    index, cuts = _place_axes(before, action.moves)
    cut_by = [part for dim in before.type.dims for part in dim] + [p for p, _ in action.moves]
    waiting = [part for part in action.pending if _overlaps_any(part, cut_by)]
    while waiting:
        found = [
            (part, dim)
            for part in waiting
            for dim in range(n_dims)
            if _ends_with(index[:, dim], cuts[dim], mesh, part)
        ]
        if not found:
            return f"{waiting[0].text(mesh)} cuts a dim, but not at its minor end"
        part, dim = found[0]
        index[:, dim] //= part.size
        cuts[dim] //= part.size
        waiting.remove(part)
    if tuple(cuts) != after.cuts or not bool(np.all(index == after.index)):
        return "the axes that it names do not give the type after it"
    if not action.pending and not _inside(after, before):
        return "a device would need elements that it does not hold"
    if action.pending:
        fine_index, fine_cuts = _place_axes(before, action.moves)
        inner = _boxes(before, fine_index, fine_cuts)
        if not _box_inside(inner, (before.lo, before.hi)):
            return "a device would need elements that it does not hold"
        if not _box_inside(inner, (after.lo, after.hi)):
            return "a device would drop elements that nobody else brings"
    return None


def _overlaps_any(part: SubAxis, others: Iterable[SubAxis]) -> bool:
    return any(part.name == p.name and p.pre < part.end and part.pre < p.end for p in others)


def _ends_with(index: Ints, cuts: int, mesh: Mesh, part: SubAxis) -> bool:
    return cuts % part.size == 0 and bool(np.all(index % part.size == coordinates(mesh, [part])))


def _boxes(like: Holding, index: Ints, cuts: list[int]) -> tuple[Ints, Ints]:
    lo, hi = np.zeros_like(index), np.zeros_like(index)
    for i, n in enumerate(like.type.shape):
        lo[:, i], hi[:, i] = cut_dim(n, cuts[i]).ranges_of(index[:, i])
    return lo, hi


def _box_inside(inner: tuple[Ints, Ints], outer: tuple[Ints, Ints]) -> bool:
    empty = np.any(inner[0] >= inner[1], axis=1)
    return bool(np.all(empty | np.all((inner[0] >= outer[0]) & (inner[1] <= outer[1]), axis=1)))


def _inside(inner: Holding, outer: Holding) -> bool:
    return _box_inside((inner.lo, inner.hi), (outer.lo, outer.hi))


def _gather_fault(
    moves: tuple[tuple[SubAxis, int], ...], before: Holding, after: Holding
) -> str | None:
    n_dims = before.type.ndim
    if not moves or any(not 0 <= dim < n_dims for _, dim in moves):
        return "it names no axis, or a dim that is not there"
    for dim in range(n_dims):
        parts = [part for part, at in moves if at == dim]
        if not any(_undone(before, after, dim, list(order)) for order in permutations(parts)):
            return f"taking its axes off dim {dim} does not give the type after it"
    members = group_numbers(before.type, [part for part, _ in moves])
    return _group_fault(before, after, members, exact=True)


def _undone(before: Holding, after: Holding, dim: int, parts: list[SubAxis]) -> bool:
    """Whether appending the parts to the coarser dim gives the finer one."""
    index, cuts = _place_axes(after, [(part, dim) for part in parts])
    return cuts[dim] == before.cuts[dim] and bool(np.all(index[:, dim] == before.index[:, dim]))


def _all_to_all_fault(
    moves: tuple[tuple[tuple[SubAxis, ...], int, int], ...], before: Holding, after: Holding
) -> str | None:
    mesh, n_dims = before.type.mesh, before.type.ndim
    index, cuts = before.index.copy(), list(before.cuts)
    if not moves or not all(block for block, _, _ in moves):
        return "it names no axis"
    for block, old, new in moves:
        axes = ",".join(part.text(mesh) for part in block)
        if not (0 <= old < n_dims and 0 <= new < n_dims) or old == new:
            return f"it moves {axes} from dim {old} to dim {new}"
        digit, n_parts = coordinates(mesh, block), size(block)
        if cuts[old] % n_parts or not bool(np.all(index[:, old] % n_parts == digit)):
            return f"{axes} is not at the minor end of dim {old}"
        index[:, old] //= n_parts
        cuts[old] //= n_parts
        index[:, new] = index[:, new] * n_parts + digit
        cuts[new] *= n_parts
    if tuple(cuts) != after.cuts or not bool(np.all(index == after.index)):
        return "the moves that it names do not give the type after it"
    members = group_numbers(before.type, [part for block, _, _ in moves for part in block])
    return _group_fault(before, after, members, exact=False)


def _hulls(holding: Holding, members: Ints) -> tuple[Ints, Ints]:
    """The smallest box around the boxes of every group, one row per group."""
    n_groups = int(members.max()) + 1
    big = np.iinfo(np.int64).max
    lo = np.full((n_groups, holding.type.ndim), big, dtype=np.int64)
    hi = np.full((n_groups, holding.type.ndim), -1, dtype=np.int64)
    filled = holding.volumes > 0
    np.minimum.at(lo, members[filled], holding.lo[filled])
    np.maximum.at(hi, members[filled], holding.hi[filled])
    return lo, hi


def _group_fault(before: Holding, after: Holding, members: Ints, exact: bool) -> str | None:
    """Whether groups hold one full box each, and that has (or exactly is) what they need."""
    lo, hi = _hulls(before, members)
    filled = np.zeros(len(lo), dtype=np.int64)
    np.add.at(filled, members, before.volumes)
    hull = np.where(filled > 0, np.prod(np.maximum(hi - lo, 0), axis=1, dtype=np.int64), 0)
    # Boxes of one grid are disjoint unless equal, so equal volumes mean an exact cover.
    if not bool(np.all(filled == hull)):
        return "the tiles of a group do not fill one box"
    idle = after.volumes == 0
    lo, hi = lo[members], hi[members]
    if not bool(np.all(idle | np.all((after.lo >= lo) & (after.hi <= hi), axis=1))):
        return "a device needs elements that its group does not hold"
    if exact and not bool(np.all(idle | np.all((after.lo == lo) & (after.hi == hi), axis=1))):
        return "a device would drop elements that its group gathered"
    return None


def _permute_fault(before: Holding, after: Holding) -> str | None:
    """Every tile that is needed must be some rank's whole tile, of the same partial value."""
    if before.type.tile_shape != after.type.tile_shape:
        return "tile shapes differ"
    # Tiles have one size, so where a tile begins tells it from the others.
    seen: list[Ints] = []
    n_tiles = 1
    for holding in (before, after):
        key = coordinates(holding.type.mesh, holding.type.pending_axes)
        n_tiles = size(holding.type.pending_axes)
        for i, (n, tile) in enumerate(zip(holding.type.shape, before.type.tile_shape, strict=True)):
            count = -(-n // tile) if n else 1
            key = key * count + (holding.lo[:, i] // tile if n else 0)
            n_tiles *= count
        seen.append(key[holding.volumes > 0])
    held = np.zeros(n_tiles, dtype=np.bool_)
    held[seen[0]] = True
    return None if bool(np.all(held[seen[1]])) else "a device needs a tile that no rank holds whole"


def _all_reduce_fault(
    axes: tuple[SubAxis, ...], before: Holding, after: Holding, pending: PendingChange
) -> str | None:
    if pending.added or not axes:
        return "it adds pending axes, or names none"
    if group_numbers(before.type, axes).tolist() != (
        group_numbers(before.type, pending.resolved).tolist()
    ):
        return "the axes that it names are not those that stop pending"
    same = before.cuts == after.cuts and bool(np.all(before.index == after.index))
    return None if same else "it must leave every tile where it is"
