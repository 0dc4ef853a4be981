"""Exhaustive searches in plain Python: every type of the space, every route, no pruning."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

from redist.errors import StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, prime_parts
from redist.plan.rates import FLAT
from redist.plan.rules import type_after
from redist.plan.steps import Action, AllGather, AllReduce, Exchange, ReduceScatter
from redist.plan.topology import Topology
from redist.plan.traffic import traffic_of
from redist.synth.named_steps import name_step
from tests.problems import oracle

Dims = tuple[tuple[SubAxis, ...], ...]


def layouts(factors: tuple[SubAxis, ...], n_dims: int) -> Iterator[Dims]:
    """Every ordered layout: each factor unused or at some place of some dim."""
    seen: set[Dims] = set()
    for order in itertools.permutations(factors):
        for used in range(len(order) + 1):
            for homes in itertools.product(range(n_dims), repeat=used):
                dims: list[list[SubAxis]] = [[] for _ in range(n_dims)]
                for part, home in zip(order[:used], homes, strict=True):
                    dims[home].append(part)
                key = tuple(map(tuple, dims))
                if key not in seen:
                    seen.add(key)
                    yield key


def all_types(
    source: ArrayType, target: ArrayType, cap: bool = True, split: tuple[SubAxis, ...] = ()
) -> list[ArrayType]:
    """The types of the space that ``find_plan`` names, one mesh, one chain of cuts.

    Axes are also ``split`` where blocks of the topology end.
    """
    factors = prime_parts(source.mesh, (*source.used, *target.used, *split))
    even = source.is_even and target.is_even
    plain = source.with_pending(None, ())
    larger = max(math.prod(t.tile_shape) for t in (source, target))
    out = []
    for dims in layouts(factors, source.ndim):
        t = plain.with_dims(dims)
        if (even and not t.is_even) or (cap and math.prod(t.tile_shape) > larger):
            continue
        out.append(t)
    return out


def hop_time(
    action: Action,
    before: ArrayType,
    after: ArrayType,
    topology: Topology = FLAT,
) -> int:
    """Modelled time of one step, by the definitions alone."""
    traffic = traffic_of(action, before, after, topology)
    return traffic.time_ps(topology, before.dtype.itemsize)


def best_time(source: ArrayType, target: ArrayType, topology: Topology = FLAT) -> int:
    """The least modelled time over every route that the docstring of ``find_plan`` names."""
    types = all_types(source, target)
    plain = source.with_pending(None, ())

    def leg(before: ArrayType, after: ArrayType) -> int:
        if before == after:
            return 0
        if before.pending_op is None:
            return hop_time(Exchange(after), before, after, topology)
        if after == plain:
            return hop_time(AllReduce(before.pending_axes), before, after, topology)
        return hop_time(ReduceScatter(after), before, after, topology)

    tails = dict(_tails(source, target, types, topology))
    first = {t: leg(source, t) for t in types}
    return min(
        first[middle] + leg(middle, end) + tail for end, tail in tails.items() for middle in types
    )


def _tails(
    source: ArrayType,
    target: ArrayType,
    types: list[ArrayType],
    topology: Topology,
) -> Iterator[tuple[ArrayType, int]]:
    """Types from which idle axes of one dim, in mesh order, are gathered, and the cheapest way."""
    yield target, 0
    factors = prime_parts(target.mesh, (*source.used, *target.used))
    used = {p for t in (target,) for dim in t.dims for q in dim for p in factors if _in(p, q)}
    idle = [p for p in factors if p not in used]
    for n in range(1, len(idle) + 1):
        for extra in itertools.combinations(idle, n):
            for dim in range(target.ndim):
                dims = [list(axes) for axes in target.dims]
                dims[dim] += extra
                end = target.with_dims(dims)
                if end not in types or not end.cut(dim).nests_in(target.cut(dim)):
                    continue
                at_once = AllGather(tuple((part, dim) for part in extra))
                ways = [hop_time(at_once, end, target, topology)]
                try:
                    here, cost = end, 0
                    for part in reversed(extra):
                        step = AllGather(((part, dim),))
                        cost += hop_time(step, here, type_after(step, here), topology)
                        here = type_after(step, here)
                    ways.append(cost)
                except StepError:
                    pass
                yield end, min(ways)


def _in(part: SubAxis, whole: SubAxis) -> bool:
    return part.name == whole.name and whole.pre <= part.pre and part.end <= whole.end


def best_bytes_of_collectives(source: ArrayType, target: ArrayType) -> int:
    """The least bytes received over every sequence of named collectives, by Dijkstra."""
    types = all_types(source, target)
    number = {t: i for i, t in enumerate(types)}
    held = [oracle.holdings(t) for t in types]
    factors = prime_parts(source.mesh, (*source.used, *target.used))
    fine = [_split(t, factors) for t in types]
    classes = _move_classes(source, fine, list(layouts(factors, source.ndim)))
    start, goal = number[source], number[target]
    best = {start: 0}
    queue = [(0, start)]
    while queue:
        cost, u = heapq.heappop(queue)
        if u == goal:
            return cost * source.dtype.itemsize
        if cost > best[u]:
            continue
        for v, other in enumerate(types):
            if v == u or not _named(types[u], other, fine[u], fine[v], classes[u] == classes[v]):
                continue
            lack = sum(len(held[v][rank] - held[u][rank]) for rank in held[v])
            if cost + lack < best.get(v, 1 << 60):
                best[v] = cost + lack
                heapq.heappush(queue, (cost + lack, v))
    raise AssertionError("gathering everything always leads on")


def best_time_of_collectives(
    source: ArrayType,
    target: ArrayType,
    topology: Topology,
    permute: bool,
    split: tuple[SubAxis, ...] = (),
) -> int:
    """The least modelled time over every sequence of named collectives, by Dijkstra; a step costs 1 more."""
    types = all_types(source, target, permute and source.is_even and target.is_even, split)
    best = {source: 0}
    turn = itertools.count()
    queue = [(0, next(turn), source)]
    done: set[ArrayType] = set()
    while queue:
        cost, _, here = heapq.heappop(queue)
        if here == target:
            return cost
        if here in done:
            continue
        done.add(here)
        for other in types:
            action = None if other in done else name_step(here, other, 64, permute)
            if action is not None:
                whole = cost + hop_time(action, here, other, topology) + 1
                if whole < best.get(other, 1 << 62):
                    best[other] = whole
                    heapq.heappush(queue, (whole, next(turn), other))
    raise AssertionError("gathering everything always leads on")


def _split(t: ArrayType, factors: tuple[SubAxis, ...]) -> Dims:
    return tuple(tuple(p for part in dim for p in factors if _in(p, part)) for dim in t.dims)


def _named(a: ArrayType, b: ArrayType, fa: Dims, fb: Dims, moves: bool) -> bool:
    """slice, all_gather, all_to_all or all_permute, all tiles being even."""
    slices = all(new[: len(old)] == old for old, new in zip(fa, fb, strict=True))
    gathers = all(old[: len(new)] == new for old, new in zip(fa, fb, strict=True))
    return slices or gathers or moves or a.tile_shape == b.tile_shape


def _move_classes(t: ArrayType, fine: list[Dims], every: list[Dims]) -> list[int]:
    """Types joined by moves of a block of minor-most factors to another dim's minor end.

    Tiles must nest at every move; what is passed on the way need not be even.
    """
    number = {dims: i for i, dims in enumerate(every)}
    label = list(range(len(every)))

    def root(i: int) -> int:
        while label[i] != i:
            i = label[i]
        return i

    for i, dims in enumerate(every):
        for a, b in itertools.permutations(range(len(dims)), 2):
            for k in range(len(dims[a])):
                run = dims[a][k:]
                moved = list(dims)
                moved[a], moved[b] = dims[a][:k], (*dims[b], *run)
                before, after = t.with_dims(dims), t.with_dims(moved)
                leaves, arrives = before.cut(a), after.cut(b)
                if leaves.nests_in(after.cut(a)) and arrives.nests_in(before.cut(b)):
                    label[root(number[tuple(moved)])] = root(i)
    return [root(number[dims]) for dims in fine]
