"""Routes that always exist: direct, normal form, gather and slice."""

from __future__ import annotations

from collections.abc import Iterable

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.plan.rules import added_axes, nested, resolved_axes
from redist.plan.steps import Action, AllPermute, AllReduce, Slice
from redist.synth.assemble import Route
from redist.synth.naming import (
    Dims,
    common_pieces,
    general_step,
    name_step,
    shared_prefix,
    split_dims,
)


def named_or_general(before: ArrayType, after: ArrayType) -> Action:
    """The named collective where one does it, else the general step."""
    return name_step(before, after) or general_step(before, after)


def direct(source: ArrayType, target: ArrayType) -> Route:
    """One step."""
    resolved = resolved_axes(source, target)
    if resolved and source.with_pending(source.pending_op, _kept(source, resolved)) == target:
        return ((AllReduce(resolved), target),)
    local = _to_pending(source, target)
    if local is not None:
        return ((local, target),)
    return ((named_or_general(source, target), target),)


def via(source: ArrayType, stops: Iterable[ArrayType]) -> Route:
    """One hop to each stop in turn, stops that change nothing left out."""
    hops = []
    here = source
    for stop in stops:
        if stop != here:
            hops.extend(direct(here, stop))
            here = stop
    return tuple(hops)


def normal_form(source: ArrayType, target: ArrayType) -> Route:
    """slice; all_to_all or all_permute; all_gather, with reductions scattered or done first.

    Where tiles do not nest or no dim has room for a slice: gather down to what both have in common,
    then slice.
    """
    resolved = resolved_axes(source, target)
    added = added_axes(source, target)
    start = source
    hops: Route = ()
    if resolved:
        start = source.with_pending(source.pending_op, _kept(source, resolved))
        hops = ((AllReduce(resolved), start),)
    goal = target
    tail: Route = ()
    if added:
        keep = tuple(part for part in start.pending_axes)
        goal = target.with_pending(start.pending_op, keep)
        tail = ((Slice((), target.pending_op, added), target),)
    middle = _sandwich(start, goal) or _gather_slice(start, goal)
    return (*hops, *middle, *tail)


def naive(source: ArrayType, target: ArrayType) -> tuple[ArrayType, ...]:
    """The types of the naive way: everything on every device, then slice."""
    return (target.with_dims(((),) * target.rank).with_pending(None, ()), target)


def _kept(source: ArrayType, resolved: tuple[SubAxis, ...]) -> tuple[SubAxis, ...]:
    from redist.plan.rules import difference

    return difference(source.pending_axes, resolved)


def _to_pending(source: ArrayType, target: ArrayType) -> Slice | None:
    """The local step to a target that differs by added pending axes only."""
    from redist.errors import StepError
    from redist.plan.rules import type_after

    added = added_axes(source, target)
    if not added or resolved_axes(source, target):
        return None
    action = Slice((), target.pending_op, added)
    try:
        return action if type_after(action, source) == target else None
    except StepError:
        return None


def _sandwich(source: ArrayType, target: ArrayType) -> Route | None:
    """slice; one all_to_all or all_permute between types with the same axes; all_gather."""
    if source == target:
        return ()
    pieces = common_pieces(source, target)
    if pieces is None:
        return None
    old, new = split_dims(source, pieces), split_dims(target, pieces)
    before = {piece for dim in old for piece in dim}
    after = {piece for dim in new for piece in dim}
    sliced = _extended(source, old, [p for p in pieces if p in after - before], new)
    ungathered = _extended(target, new, [p for p in pieces if p in before - after], old)
    if sliced is None or ungathered is None:
        return None
    here = source
    hops: list[tuple[Action, ArrayType]] = []
    for stop in (sliced, ungathered, target):
        if stop != here:
            action = name_step(here, stop, most_moves=8)
            if action is None:
                return None
            hops.append((action, stop))
            here = stop
    return tuple(hops)


def _extended(t: ArrayType, dims: Dims, extra: list[SubAxis], like: Dims) -> ArrayType | None:
    """t with extra axes appended, each to the dim where ``like`` has it if tiles nest, else any."""
    out = [list(dim) for dim in dims]
    for piece in extra:
        home = [i for i, dim in enumerate(like) if piece in dim]
        for i in [*home, *(j for j in range(t.rank) if j not in home)]:
            trial = t.with_dims([*out[:i], [*out[i], piece], *out[i + 1 :]])
            here = t.with_dims(out)
            if nested(t.shape[i], here.cuts[i], trial.cuts[i]) and _divides(t, trial, i):
                out[i].append(piece)
                break
        else:
            return None
    return t.with_dims(out)


def _divides(t: ArrayType, trial: ArrayType, dim: int) -> bool:
    return t.shape[dim] % trial.cuts[dim] == 0


def _gather_slice(source: ArrayType, target: ArrayType) -> Route:
    """Gather every dim down to what both have in common, then slice; cross meshes when whole."""
    if source == target:
        return ()
    none: tuple[tuple[SubAxis, ...], ...] = ((),) * source.rank
    stops: list[ArrayType] = []
    pieces = common_pieces(source, target)
    if source.mesh != target.mesh:
        stops = [source.with_dims(none), target.with_dims(none), target]
    elif pieces is None:
        stops = [source.with_dims(none), target]
    else:
        old, new = split_dims(source, pieces), split_dims(target, pieces)
        dims: Dims = []
        for i, n in enumerate(source.shape):
            prefix = old[i][: shared_prefix(old[i], new[i])]
            cuts = source.with_dims([prefix if j == i else [] for j in range(source.rank)]).cuts[i]
            fits = nested(n, cuts, source.cuts[i]) and nested(n, cuts, target.cuts[i])
            dims.append(prefix if fits else [])
        stops = [source.with_dims(dims), target]
    hops: list[tuple[Action, ArrayType]] = []
    here = source
    for stop in stops:
        if stop != here:
            action = AllPermute(stop) if stop.mesh != here.mesh else name_step(here, stop)
            assert action is not None, f"{here} -> {stop} is a gather or a slice"
            hops.append((action, stop))
            here = stop
    return tuple(hops)
