"""Routes that always exist: one step, or gather and slice; and ways to take a route apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from redist.errors import StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.cuts import cut_dim
from redist.plan.rules import added_axes, difference, resolved_axes, type_after
from redist.plan.steps import Action, AllGather, AllPermute, AllReduce, AllToAll, Slice
from redist.synth.named_steps import (
    Dims,
    common_pieces,
    general_step,
    name_step,
    shared_prefix,
    split_dims,
)
from redist.synth.plan_figures import Hop, Path


def named_or_general(before: ArrayType, after: ArrayType) -> Action:
    """The named collective where one does it, else the general step.

    Where axes have to move twice, as for dims that change their cuts, an all_to_all would have no messages
    of one size: that is an exchange.
    """
    action = name_step(before, after)
    if isinstance(action, AllToAll) and _moves_twice(action):
        action = None
    return action or general_step(before, after)


def _moves_twice(action: AllToAll) -> bool:
    parts = sorted(part for block, _, _ in action.moves for part in block)
    return any(a.name == b.name and b.pre < a.end for a, b in itertools.pairwise(parts))


def direct(source: ArrayType, target: ArrayType) -> Path:
    """One step."""
    resolved = resolved_axes(source, target)
    if resolved and source.with_pending(source.pending_op, _kept(source, resolved)) == target:
        return ((AllReduce(resolved), target),)
    local = _to_pending(source, target)
    if local is not None:
        return ((local, target),)
    return ((named_or_general(source, target), target),)


def via(source: ArrayType, stops: Iterable[ArrayType]) -> Path:
    """One hop to each stop in turn, stops that change nothing left out."""
    hops: list[Hop] = []
    here = source
    for stop in stops:
        if stop != here:
            hops.extend(direct(here, stop))
            here = stop
    return tuple(hops)


def gather_and_slice(source: ArrayType, target: ArrayType) -> Path:
    """all_gather down to what both ends have in common, then slice; reductions done first."""
    start, goal, head, tail = _without_reductions(source, target)
    return (*head, *_gather_slice(start, goal), *tail)


def _without_reductions(
    source: ArrayType, target: ArrayType
) -> tuple[ArrayType, ArrayType, Path, Path]:
    """The ends between which nothing pending changes, and the routes to and from them."""
    resolved = resolved_axes(source, target)
    added = added_axes(source, target)
    start, goal = source, target
    head: Path = ()
    tail: Path = ()
    if resolved:
        start = source.with_pending(source.pending_op, _kept(source, resolved))
        head = ((AllReduce(resolved), start),)
    if added:
        goal = target.with_pending(start.pending_op, start.pending_axes)
        tail = ((Slice((), target.pending_op, added), target),)
    return start, goal, head, tail


def _kept(source: ArrayType, resolved: tuple[SubAxis, ...]) -> tuple[SubAxis, ...]:
    return difference(source.pending_axes, resolved)


def _to_pending(source: ArrayType, target: ArrayType) -> Slice | None:
    """The local step to a target that differs by added pending axes only."""
    added = added_axes(source, target)
    if not added or resolved_axes(source, target):
        return None
    action = Slice((), target.pending_op, added)
    try:
        return action if type_after(action, source) == target else None
    except StepError:
        return None


def axis_by_axis(source: ArrayType, route: Path) -> Path:
    """A route with every all_to_all and all_gather done one move at a time: fewer messages.

    Moves of which one takes an axis back stay together: apart they would carry it there and back.
    """
    here = source
    hops: list[Hop] = []
    for action, after in route:
        singles: list[Action] = [action]
        match action:
            case AllToAll(triples) if not _moves_twice(action):
                singles = [AllToAll((move,)) for move in triples]
            case AllGather(moves):
                singles = [AllGather((move,)) for move in reversed(moves)]
            case _:
                pass
        try:
            for single in singles:
                here = type_after(single, here)
                hops.append((single, here))
        except StepError:
            return route
        assert here == after, f"{action} taken apart leads to {here}, not {after}"
    return tuple(hops)


def _gather_slice(source: ArrayType, target: ArrayType) -> Path:
    """Gather every dim down to what both have in common, then slice; cross meshes when whole."""
    if source == target:
        return ()
    none: tuple[tuple[SubAxis, ...], ...] = ((),) * source.ndim
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
            cut = cut_dim(n, math.prod(part.size for part in prefix))
            fits = source.cut(i).nests_in(cut) and target.cut(i).nests_in(cut)
            dims.append(prefix if fits else [])
        stops = [source.with_dims(dims), target]
    hops: list[Hop] = []
    here = source
    for stop in stops:
        if stop != here:
            action = AllPermute(stop) if stop.mesh != here.mesh else name_step(here, stop)
            assert action is not None, f"{here} -> {stop} is a gather or a slice"
            hops.append((action, stop))
            here = stop
    return tuple(hops)
