"""Routes that every search looks at first, those that always exist among them, and ways to take one apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

from redist.errors import RequestError, StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, prime_parts, refined_parts
from redist.layout.cuts import cut_dim
from redist.layout.mesh import Mesh
from redist.plan.memory import fixed_live_bytes
from redist.plan.request import Request
from redist.plan.rules import added_axes, difference, kept_axes, resolved_axes, type_after
from redist.plan.steps import (
    Action,
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    Exchange,
    ReduceScatter,
    Slice,
)  # fmt: skip
from redist.plan.topology import Topology
from redist.plan.traffic import group_level, is_plain_reduce_scatter
from redist.synth.named_steps import (
    Dims,
    common_pieces,
    general_step,
    name_step,
    shared_prefix,
    split_dims,
)  # fmt: skip
from redist.synth.normal_form import by_whole_dims, crossing, normal_form
from redist.synth.plan_figures import Hop, Path

MANY_DEVICES = 16_384
"""Above this many devices only one scattered route is looked at, and only short ones otherwise."""
FEW_STEPS = 4


def standard_routes(request: Request) -> dict[str, Path]:
    """Simple routes by name; no plan is worse than the best of them."""
    source, target = request.source, request.target
    if not (source.is_plain and target.is_plain):
        return _segment_routes(request)
    one = direct(source, target)
    if request.strategy == "direct":
        return {"direct": one}
    if request.strategy == "auto":
        routes = {"direct": one, **_normal_forms(request)}
        few = len(routes.get("axis by axis", ())) <= FEW_STEPS
        if not few and source.mesh.n_devices > MANY_DEVICES:
            del routes["axis by axis"]
        general: Path = ((ReduceScatter(target), target),)
        if resolved_axes(source, target) and one != general:
            routes["reduce_scatter"] = general
        first = (*_cut_first(request), *_scattered_first(request), *_near_first(request))
        for name, stops in first:
            routes[name] = via(source, stops)
        return {name: r for name, r in routes.items() if within_ends(r, source, target)}
    routes = {
        **_normal_forms(request), "gather and slice": gather_and_slice(source, target), "direct": one
    }  # fmt: skip
    routes = {name: r for name, r in routes.items() if _is_allowed(r, request, source)}
    within = {name: r for name, r in routes.items() if within_ends(r, source, target)}
    # Without permutes there may be no other way than by larger tiles.
    return within if within and request.strategy == "collectives" else routes


def _segment_routes(request: Request) -> dict[str, Path]:
    """Routes between types of which one has segments: straight there, or through a plain type.

    Where one reduction is resolved and another is left pending, that takes a local step more. A sum is
    better resolved where every element has one holder, if segments of the target are replicated.
    """
    source, target = request.source, request.target
    if request.strategy in ("collectives", "no_permute"):
        raise RequestError(
            f"cannot turn {source} into {target} with strategy {request.strategy!r}: named collectives move "
            "even ranges, and a dim with segments is cut differently; use strategy 'auto'"
        )
    resolved = resolved_axes(source, target)
    stops = [target]
    if resolved and added_axes(source, target):
        stops = [target.with_pending(None, ()), target]
    routes = {"direct": _general(source, stops)}
    plain = stops[0].with_dims(target.dims)
    if resolved and request.strategy == "auto" and plain not in (source, stops[0]):
        routes["through even ranges"] = _general(source, [plain, *stops])
    return routes


def _general(source: ArrayType, stops: Iterable[ArrayType]) -> Path:
    """An exchange or a reduce_scatter to each stop in turn."""
    hops, here = [], source
    for stop in stops:
        hops.append((general_step(here, stop), stop))
        here = stop
    return tuple(hops)


def _normal_forms(request: Request) -> dict[str, Path]:
    """The normal form, and the same one axis at a time; with smaller tiles if a limit asks for them."""
    source, target = request.source, request.target
    route = normal_form(source, target) or crossing(source, target)
    if route is None:
        route = by_whole_dims(source, target)
        return {} if route is None else {"gather what does not nest": route}
    routes = {"normal form": route}
    apart = axis_by_axis(source, route)
    if apart != route:
        routes["axis by axis"] = apart
    limit, types = request.limit_bytes, [source, *(after for _, after in route)]
    if limit is not None and max(fixed_live_bytes(types, request.donate)) > limit:
        ends = source.tile_bytes, target.tile_bytes
        beside = limit - (max(ends) if request.donate else sum(ends))
        small = normal_form(source, target, max(beside, 0))
        if small is not None:
            routes["normal form, smaller tiles"] = small
    return routes


def within_ends(route: Path, source: ArrayType, target: ArrayType) -> bool:
    """Whether no tile on the way is larger than those of both ends."""
    larger = max(source.tile_bytes, target.tile_bytes)
    return all(after.tile_bytes <= larger for _, after in route)


def _is_allowed(route: Path, request: Request, source: ArrayType) -> bool:
    """Whether a route keeps to named collectives."""
    before = source
    for action, after in route:
        match action:
            case Exchange():
                return False
            case ReduceScatter(to) if not is_plain_reduce_scatter(before, to):
                return False
            case AllPermute() if request.strategy == "no_permute" and before.mesh == after.mesh:
                return False
            case _:
                before = after
    return True


def _scattered_first(request: Request) -> Iterator[tuple[str, tuple[ArrayType, ...]]]:
    """Routes through a target whose replicas each hold a share first, gathered near at the end."""
    source, target = request.source, request.target
    if target.pending_op is not None:
        return
    pieces = factors_of(target.mesh, target.used, (), request.topology, primes=False)
    spare = [p for p in pieces if not any(p.inside(q) for q in target.used)]
    if len(request.topology.levels) > 1:
        # Far axes first, so that what is gathered last lies near, however ranks are numbered.
        spare.sort(key=lambda p: -group_level(target.mesh, [p], request.topology))
    starts = range(len(spare))
    if target.mesh.n_devices > MANY_DEVICES:
        near = [level.size for level in request.topology.levels if level.size is not None]
        sizes = [math.prod(p.size for p in spare[first:]) for first in starts]
        inside = [first for first in starts if near and sizes[first] <= near[-1]]
        starts = range(*((inside[0], inside[0] + 1) if inside else (len(spare) // 2, len(spare))))[
            :1
        ]
    for first in starts:
        chosen = spare[first:]
        for dim, n in enumerate(target.shape):
            dims = [list(axes) for axes in target.dims]
            dims[dim] += chosen
            scattered = target.with_dims(dims)
            if scattered == source:
                continue
            if scattered.cut(dim).nests_in(target.cut(dim)) and n >= scattered.cuts[dim]:
                yield f"scatter over {chosen[0].text(target.mesh)}...", (scattered, target)
                break


def _cut_first(request: Request) -> Iterator[tuple[str, tuple[ArrayType, ...]]]:
    """Routes that cut partial values where the target is cut by idle axes, before they are combined."""
    source, target = request.source, request.target
    resolved = resolved_axes(source, target)
    if not resolved or source.mesh != target.mesh:
        return
    busy = source.used
    dims = []
    for own, wanted in zip(source.dims, target.dims, strict=True):
        rest = wanted[len(own) :] if wanted[: len(own)] == own else ()
        idle = itertools.takewhile(lambda p: not any(_meet(p, q) for q in busy), rest)
        dims.append((*own, *idle))
    if tuple(dims) == source.dims:
        return
    cut = source.with_dims(dims)
    if all(cut.cut(i).nests_in(source.cut(i)) for i in range(source.ndim)):
        yield "cut first", (cut, target)


def _meet(p: SubAxis, q: SubAxis) -> bool:
    """Whether two parts have a piece of an axis in common."""
    return p.name == q.name and p.pre < q.end and q.pre < p.end


def _near_first(request: Request) -> Iterator[tuple[str, tuple[ArrayType, ...]]]:
    """Routes that reduce within the nearest blocks of the topology first, then across them."""
    source, target = request.source, request.target
    resolved, kept = resolved_axes(source, target), kept_axes(source, target)
    pieces = factors_of(source.mesh, source.used, kept, request.topology, primes=False)
    pieces = tuple(p for p in pieces if any(p.inside(q) for q in resolved))
    near = [p for p in pieces if group_level(source.mesh, [p], request.topology) == 0]
    far = [p for p in pieces if p not in near]
    if len(request.topology.levels) == 1 or not near or not far:
        return
    for dim, n in enumerate(source.shape):
        dims = [list(axes) for axes in source.dims]
        dims[dim] += near
        first = source.with_pending(source.pending_op, (*kept, *far)).with_dims(dims)
        dims[dim] += far
        second = first.with_pending(source.pending_op, kept).with_dims(dims)
        if second.cut(dim).nests_in(source.cut(dim)) and n >= second.cuts[dim]:
            yield "reduce near first", (first, second, target)
            yield "reduce near, then far into place", (first, target)
            for name, stops in _scattered_first(request):
                yield f"reduce near first, {name}", (first, second, *stops)
                yield f"reduce near, then far into place, {name}", (first, *stops)
            return


def factors_of(
    mesh: Mesh, used: Iterable[SubAxis], kept: Iterable[SubAxis], topology: Topology, primes: bool
) -> tuple[SubAxis, ...]:
    """Pieces of the axes that the search moves about: primes, or as coarse as the request allows."""
    fixed = tuple(kept)
    edges = [*used, *fixed]
    edges += _level_cuts(mesh, edges, topology)
    pieces = prime_parts(mesh, edges) if primes else refined_parts(mesh, edges)
    return tuple(p for p in pieces if not any(p.inside(q) for q in fixed))


def _level_cuts(mesh: Mesh, edges: list[SubAxis], topology: Topology) -> list[SubAxis]:
    """Where a block of the topology ends inside an axis, if that fits its other cuts."""
    cuts = []
    stride = 1
    for name, size in reversed(mesh.axes):
        for level in topology.levels:
            if level.size is None or not stride < level.size < stride * size:
                continue
            if level.size % stride or size % (level.size // stride):
                continue
            pre = size // (level.size // stride)
            points = [p for e in edges if e.name == name for p in (e.pre, e.end)]
            if all(p % pre == 0 or pre % p == 0 for p in points):
                cuts.append(SubAxis(name, 1, pre))
        stride *= size
    return cuts


# Routes that always exist, and routes taken apart


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
