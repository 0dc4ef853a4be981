"""Typing rules: the type after a step, or a precise error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from redist.errors import LayoutError, StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, format_axes, merge_parts, refined_parts
from redist.layout.mesh import Mesh
from redist.plan.steps import (
    OP_NAMES,
    Action,
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    Exchange,
    ReduceScatter,
    Slice,
)
from redist.text.units import count_of


def type_after(action: Action, before: ArrayType) -> ArrayType:
    """The type after ``action`` on an array of type ``before``.

    >>> from redist.layout.mesh import Mesh
    >>> t = ArrayType.parse("f32[8{x}, 8]", Mesh(x=2, y=2))
    >>> print(type_after(AllToAll((((SubAxis("x", 1, 2),), 0, 1),)), t))
    f32[8, 8{x}]
    >>> type_after(AllGather(((SubAxis("y", 1, 2), 0),)), t)
    Traceback (most recent call last):
    ...
    redist.errors.StepError: cannot all_gather f32[8{x}, 8]: y is not at the minor end of dim 0 (x)
    """
    try:
        match action:
            case Slice():
                return _slice(action, before)
            case AllGather(moves):
                coarse = _take_axes(action, before, before, moves)
                _check_nested(action, before, coarse, before)
                return coarse
            case AllToAll():
                return _all_to_all(action, before)
            case AllPermute(to):
                return _all_permute(action, before, to)
            case Exchange(to):
                _check_same_array(action, before, to)
                if before.mesh != to.mesh and before.pending_op is not None:
                    _refuse(action, before, "a pending reduction cannot change meshes; resolve it")
                if resolved_axes(before, to):
                    _refuse(action, before, f"{to} resolves pending axes; use reduce_scatter")
                return to
            case ReduceScatter(to):
                _check_same_array(action, before, to)
                if before.pending_op is None or not resolved_axes(before, to):
                    _refuse(action, before, f"nothing pending is resolved by {to}; use exchange")
                return to
            case AllReduce(axes):
                return _all_reduce(action, before, axes)
    except LayoutError as error:
        raise StepError(f"cannot {OP_NAMES[type(action)]} {before}: {error}") from None


def without(parts: Sequence[SubAxis], removed: SubAxis) -> tuple[SubAxis, ...] | None:
    """``parts`` without ``removed`` at their minor end; the last part is split if necessary.

    >>> without([SubAxis("x", 1, 6)], SubAxis("x", 2, 3))
    (SubAxis(name='x', pre=1, size=2),)
    """
    if not parts:
        return None
    last = parts[-1]
    if last.name != removed.name or last.end != removed.end or last.size % removed.size != 0:
        return None
    left = SubAxis(last.name, last.pre, last.size // removed.size)
    return (*parts[:-1], left) if left.size > 1 else tuple(parts[:-1])


def difference(parts: Iterable[SubAxis], removed: Iterable[SubAxis]) -> tuple[SubAxis, ...]:
    """What is left of a set of parts when others are removed, wherever they are.

    >>> difference([SubAxis("x", 1, 12)], [SubAxis("x", 2, 3)])
    (SubAxis(name='x', pre=1, size=2), SubAxis(name='x', pre=6, size=2))
    """
    left = list(parts)
    for gone in removed:
        pieces: list[SubAxis] = []
        for part in left:
            lo, hi = max(part.pre, gone.pre), min(part.end, gone.end)
            if part.name != gone.name or lo >= hi:
                pieces.append(part)
                continue
            pieces.append(SubAxis(part.name, part.pre, lo // part.pre))
            pieces.append(SubAxis(part.name, hi, part.end // hi))
        left = [piece for piece in pieces if piece.size > 1]
    return merge_parts(sorted(left))


def union(mesh: Mesh, parts: Iterable[SubAxis]) -> tuple[SubAxis, ...]:
    """The parts as a set: overlaps counted once, in mesh order.

    >>> union(Mesh(x=8), [SubAxis("x", 2, 4), SubAxis("x", 4, 2)])
    (SubAxis(name='x', pre=2, size=4),)
    """
    given = tuple(parts)
    pieces = refined_parts(mesh, given)
    return merge_parts(p for p in pieces if any(p.inside(q) for q in given))


def resolved_axes(before: ArrayType, after: ArrayType) -> tuple[SubAxis, ...]:
    """Axes whose pending reduction happens between the two types."""
    if not _share_pending(before, after):
        return before.pending_axes
    return difference(before.pending_axes, after.pending_axes)


def added_axes(before: ArrayType, after: ArrayType) -> tuple[SubAxis, ...]:
    """Axes that are pending after the step but not before."""
    if not _share_pending(before, after):
        return after.pending_axes
    return difference(after.pending_axes, before.pending_axes)


def kept_axes(before: ArrayType, after: ArrayType) -> tuple[SubAxis, ...]:
    """Axes that are pending before and after the step; their partial values never mix."""
    if not _share_pending(before, after):
        return ()
    return difference(before.pending_axes, resolved_axes(before, after))


def _share_pending(before: ArrayType, after: ArrayType) -> bool:
    """Whether a pending axis can stay pending: same mesh, same reduction, same cuts of the axes."""
    if before.mesh != after.mesh or before.pending_op != after.pending_op:
        return False
    pairs = [(p, q) for p in before.pending_axes for q in after.pending_axes if p.name == q.name]
    return all(
        hi <= lo or (hi % lo == 0 and lo % p.pre == lo % q.pre == 0 == p.end % hi == q.end % hi)
        for p, q in pairs
        for lo, hi in [(max(p.pre, q.pre), min(p.end, q.end))]
    )


def _refuse(action: Action, before: ArrayType, reason: str) -> NoReturn:
    raise StepError(f"cannot {OP_NAMES[type(action)]} {before}: {reason}")


def _check_dims(action: Action, before: ArrayType, dims: Iterable[int]) -> None:
    for dim in dims:
        if not 0 <= dim < before.ndim:
            _refuse(
                action,
                before,
                f"there is no dim {dim}; the array has {count_of(before.ndim, 'dim')}",
            )


def _check_same_array(action: Action, before: ArrayType, after: ArrayType) -> None:
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        _refuse(action, before, f"{after} is another array; shape and dtype must agree")


def _check_nested(action: Action, before: ArrayType, coarse: ArrayType, fine: ArrayType) -> None:
    for i, n in enumerate(before.shape):
        if not fine.cut(i).nests_in(coarse.cut(i)):
            _refuse(
                action,
                before,
                f"dim {i} of size {n}: tiles of {fine.tile_shape[i]} do not nest in tiles of "
                f"{coarse.tile_shape[i]}; use exchange",
            )


def _take_axes(
    action: Action, before: ArrayType, here: ArrayType, moves: Iterable[tuple[SubAxis, int]]
) -> ArrayType:
    """``here`` with the moved axes taken off the minor ends of their dims, in any order."""
    items = list(moves)
    _check_dims(action, before, (dim for _, dim in items))
    if not items:
        _refuse(action, before, "no axis is named")
    dims = [tuple(dim) for dim in here.dims]
    while items:
        for part, dim in items:
            left = without(dims[dim], part)
            if left is not None:
                dims[dim] = left
                items.remove((part, dim))
                break
        else:
            part, dim = items[0]
            there = ",".join(p.text(before.mesh) for p in dims[dim]) or "not cut"
            _refuse(
                action,
                before,
                f"{part.text(before.mesh)} is not at the minor end of dim {dim} ({there})",
            )
    return before.with_dims(dims)


def _slice(action: Slice, before: ArrayType) -> ArrayType:
    _check_dims(action, before, (dim for _, dim in action.moves))
    if not action.moves and not action.pending:
        _refuse(action, before, "no axis is named")
    dims: list[tuple[SubAxis, ...]] = [tuple(dim) for dim in before.dims]
    for part, dim in action.moves:
        dims[dim] = (*dims[dim], part)
    fine = before.with_dims(dims)
    _check_nested(action, before, before, fine)
    if not action.pending:
        return fine
    if before.pending_op not in (None, action.pending_op):
        _refuse(action, before, f"a {before.pending_op} is pending already; resolve it first")
    for part in action.pending:
        if _cuts_a_dim(part, [tuple(moved for moved, _ in action.moves)]):
            _refuse(action, before, f"{part.text(before.mesh)} cannot both cut and be pending")
    dims = [tuple(dim) for dim in fine.dims]
    waiting = [part for part in action.pending if _cuts_a_dim(part, dims)]
    while waiting:
        for part in waiting:
            left = [without(dim, part) for dim in dims]
            if any(rest is not None for rest in left):
                dims = [dim if rest is None else rest for dim, rest in zip(dims, left, strict=True)]
                waiting.remove(part)
                break
        else:
            part = waiting[0]
            _refuse(action, before, f"{part.text(before.mesh)} is not at the minor end of its dim")
    coarse = fine.with_dims(dims)
    _check_nested(action, before, coarse, fine)
    return coarse.with_pending(action.pending_op, (*before.pending_axes, *action.pending))


def _cuts_a_dim(part: SubAxis, dims: Iterable[tuple[SubAxis, ...]]) -> bool:
    return any(
        part.name == p.name and p.pre < part.end and part.pre < p.end for dim in dims for p in dim
    )


def _all_to_all(action: AllToAll, before: ArrayType) -> ArrayType:
    _check_dims(action, before, (to for _, _, to in action.moves))
    here = before
    for block, old, new in action.moves:
        if old == new:
            axes = format_axes(before.mesh, block)
            _refuse(action, before, f"{axes} moves from dim {old} to itself")
        coarse = here
        for part in reversed(block):
            coarse = _take_axes(action, before, coarse, [(part, old)])
        _check_nested(action, before, coarse, here)
        dims = [(*dim, *block) if i == new else dim for i, dim in enumerate(coarse.dims)]
        here = before.with_dims(dims)
        _check_nested(action, before, coarse, here)
    if not all(block for block, _, _ in action.moves) or not action.moves:
        _refuse(action, before, "no axis is named")
    return here


def _all_permute(action: AllPermute, before: ArrayType, after: ArrayType) -> ArrayType:
    _check_same_array(action, before, after)
    if not before.same_tiles(after):
        _refuse(action, before, f"{after} has tiles {after.tile_shape}, not {before.tile_shape}")
    if before.pending_op is not None and before.mesh != after.mesh:
        _refuse(action, before, "a pending reduction cannot change meshes; resolve it")
    if (before.pending_op, before.pending_axes) != (after.pending_op, after.pending_axes):
        _refuse(action, before, f"{after} has other pending axes")
    return after


def _all_reduce(action: AllReduce, before: ArrayType, axes: Sequence[SubAxis]) -> ArrayType:
    if before.pending_op is None or not axes:
        _refuse(action, before, "nothing is pending")
    left = difference(before.pending_axes, axes)
    if merge_parts(sorted((*left, *axes))) != before.pending_axes:
        _refuse(action, before, f"{','.join(p.text(before.mesh) for p in axes)} is not pending")
    return before.with_pending(before.pending_op, left)
