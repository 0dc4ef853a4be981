"""Routes that always exist: direct, normal form, gather and slice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from redist.errors import StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, prime_parts
from redist.layout.cuts import cut_dim
from redist.plan.rules import added_axes, difference, resolved_axes, type_after
from redist.plan.steps import Action, AllGather, AllPermute, AllReduce, AllToAll, Slice
from redist.synth.named_steps import (
    Dims,
    State,
    common_pieces,
    general_step,
    minor_end_moves,
    name_step,
    shared_prefix,
    split_dims,
)
from redist.synth.plan_figures import Hop, Path

MOST_STATES = 600
"""How many arrangements of axes are looked at for one with the right tile shape."""


def named_or_general(before: ArrayType, after: ArrayType) -> Action:
    """The named collective where one does it, else the general step."""
    return name_step(before, after) or general_step(before, after)


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


def normal_form(source: ArrayType, target: ArrayType) -> Path:
    """slice; all_to_all or all_permute; all_gather, with reductions scattered or done first.

    Where tiles do not nest or no dim has room for a slice: gather down to what both have in common,
    then slice.
    """
    start, goal, head, tail = _without_reductions(source, target)
    return (*head, *(_sandwich(start, goal) or _gather_slice(start, goal)), *tail)


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


def _sandwich(source: ArrayType, target: ArrayType) -> Path | None:
    """slice; all_to_all and all_permute between types with the same axes; all_gather.

    Whole axes first; where they get stuck, their prime factors.
    """
    if source == target:
        return ()
    whole = common_pieces(source, target)
    if whole is None:
        return None
    for pieces in dict.fromkeys((whole, prime_parts(source.mesh, (*source.used, *target.used)))):
        old, new = split_dims(source, pieces), split_dims(target, pieces)
        before = {piece for dim in old for piece in dim}
        after = {piece for dim in new for piece in dim}
        sliced = _append_axes(source, old, [p for p in pieces if p in after - before], new)
        ungathered = _append_axes(target, new, [p for p in pieces if p in before - after], old)
        if sliced is None or ungathered is None:
            continue
        for middle in _same_size_stops(sliced, ungathered, pieces):
            route = _named_route(source, [sliced, *middle, ungathered, target])
            if route is not None:
                return route
    return None


def axis_by_axis(source: ArrayType, route: Path) -> Path:
    """A route with every all_to_all and all_gather done one axis at a time: fewer messages."""
    here = source
    hops: list[Hop] = []
    for action, after in route:
        singles: list[Action] = [action]
        match action:
            case AllToAll(triples):
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


def _same_size_stops(
    a: ArrayType, b: ArrayType, pieces: tuple[SubAxis, ...]
) -> Iterator[list[ArrayType]]:
    """Ways between two types with the same axes: at once, or by way of the other's tile shape."""
    yield []
    for start, end in ((a, b), (b, a)):
        stop = _reshape_like(start, split_dims(start, pieces), end)
        if stop is not None:
            yield [stop]


def _reshape_like(t: ArrayType, dims: Dims, like: ArrayType) -> ArrayType | None:
    """A type with the tile shape of ``like`` that minor-end moves lead to, the nearest one found."""
    start = tuple(map(tuple, dims))
    seen, edge = {start}, [start]
    while edge and len(seen) < MOST_STATES:
        following = []
        for state in edge:
            here = t.with_dims(state)
            if here.same_tiles(like):
                return here
            for _, other in minor_end_moves(t, state):
                closer = _distance(other, like) < _distance(state, like)
                if other not in seen and (closer or len(start) * len(seen) < MOST_STATES):
                    seen.add(other)
                    following.append(other)
        following.sort(key=lambda state: _distance(state, like))
        edge = following[:64]
    return None


def _distance(state: State, like: ArrayType) -> int:
    """How many prime cuts stand on the wrong dim."""
    wrong = 0
    for dim, wanted in zip(state, like.cuts, strict=True):
        cuts = math.prod(part.size for part in dim)
        common = math.gcd(cuts, wanted)
        wrong += len(dim) if common == 1 else (cuts // common).bit_length()
        wrong += (wanted // common).bit_length() - 1
    return wrong


def _named_route(source: ArrayType, stops: Iterable[ArrayType]) -> Path | None:
    """One named collective to each stop in turn; None where one has no name."""
    here = source
    hops: list[Hop] = []
    for stop in stops:
        if stop != here:
            action = name_step(here, stop, most_moves=8)
            if action is None:
                return None
            hops.append((action, stop))
            here = stop
    return tuple(hops)


def _append_axes(t: ArrayType, dims: Dims, extra: list[SubAxis], like: Dims) -> ArrayType | None:
    """t with extra axes appended, each to the dim where ``like`` has it if tiles nest, else any."""
    out = [list(dim) for dim in dims]
    for piece in extra:
        home = [i for i, dim in enumerate(like) if piece in dim]
        for i in [*home, *(j for j in range(t.ndim) if j not in home)]:
            trial = t.with_dims([*out[:i], [*out[i], piece], *out[i + 1 :]])
            here = t.with_dims(out)
            if trial.cut(i).nests_in(here.cut(i)) and trial.cut(i).is_even:
                out[i].append(piece)
                break
        else:
            return None
    return t.with_dims(out)


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
