"""Find a plan for a request."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import islice, permutations

from redist.errors import NoPlanError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.lower_bound import lower_bound_bytes
from redist.layout.tiles import held_in_both, total, volumes
from redist.plan.plan import Alternative, Plan
from redist.plan.rates import FLAT
from redist.plan.request import Request
from redist.plan.rules import added_axes, kept_axes, resolved_axes
from redist.plan.steps import Slice
from redist.plan.topology import Topology
from redist.synth.collectives.search import CollectiveSearch
from redist.synth.named_steps import common_pieces
from redist.synth.normal_form import has_closed_limit, least_limit_bytes
from redist.synth.objective_costs import MESSAGE_BITS, MORE_THAN_ANY_COST, Prices, route_cost
from redist.synth.plan_figures import Path, Pricer
from redist.synth.routes import factors_of, standard_routes, within_ends
from redist.synth.two_step_search import MiddleSearch
from redist.synth.type_space import TypeSpace, n_types

MOST_FACTORS = {"auto": 5, "collectives": 6, "no_permute": 6}
"""Factors of a mesh that a search moves about."""
MOST_ORDERS = 6
"""Orders of added pending axes that are tried."""
BOUNDED_PRICES = 200
"""A bounded search prices this many steps one at a time."""
MAX_CELLS = {"auto": 4_000_000, "collectives": 8_000_000, "no_permute": 8_000_000}
"""Types times ranks that a search will look at, over prime factors."""
MANY_CELLS = 1_000_000
"""Above this many, a route over coarser factors is found before."""
COARSE_CELLS = 4_000_000
"""The same over coarser ones: three factors of 65,536 ranks, of which one step would be as many messages."""


def find_plan(request: Request) -> Plan:
    """The best plan for a request, without a certificate.

    **The space.** Nodes are the ordered layouts of the prime factors of the mesh axes (each axis
    split where source or target split it, then into primes, smallest first), on the source's mesh
    and on the target's; tiles no larger than the larger end's (strategy ``auto``), and full where
    those of both ends are. Strategy ``auto`` takes every route of one step from the source to any
    node, one step on to the target, or to the target with idle axes still cutting one dim (in mesh
    order), which are then gathered at once or one factor at a time; legs may be left out. A step is
    a slice, all_gather, all_to_all, all_permute or exchange, whichever it is; out of a source with
    pending axes it is a reduce_scatter or all_reduce. A target with added pending axes is entered
    by one local step from the type where they replicate, or cut one dim in any order.
    ``collectives`` has every sequence of the steps that a named collective does alone (an all_to_all
    being the net effect of any number of moves of a minor-most axis), ``no_permute`` not even
    all_permute; there axes are also split where blocks of the topology end, if source and target let
    them, a reduction may be preceded by one slice, and tiles are bounded only where all are even and
    permutes allowed.

    Normal form, gather and slice, routes that cut partial values before they are combined, and those that
    gather or reduce within the nearest level of the topology first are looked at besides, so a plan may be
    better than the best of the space; under ``auto`` no tile on the way is ever larger than those of both
    ends. Between types of which one has segments there is no search: what moves goes straight to its place,
    by one exchange at the lower bound or one reduce_scatter, or through the plain type of the same axes.

    The plan is optimal over that space (``search == "exact"``) for up to 5 prime factors on each
    mesh while types times ranks stay below four million (rank 4 and 5 factors: 12,341 types), and
    always where one exchange meets the lower bound under objective ``bytes``. ``collectives`` and
    ``no_permute`` take up to 6 factors while types times ranks stay below eight million, and are exact
    if the search ends within its budget of work. Beyond, factors are only as fine as source, target
    and topology need, or a few standard routes are compared, or the budget ends (``bounded``); the
    plan is never worse than direct exchange, normal form, or naive all-gather, as far as the strategy
    has them. ``search_bound`` is then what no plan of the space costs less than, where that is known:
    modelled time with a picosecond for every step, or bytes received.
    """
    source, target = request.source, request.target
    pricer = Pricer(source, target, request.topology, request.limit_bytes, request.donate)
    if source == target:
        return _plan(request, pricer, (), [], "exact")
    routes = standard_routes(request)
    best = min(
        (name for name in routes if pricer.fits(routes[name])),
        key=lambda name: (_cost(request, pricer, routes[name]), len(routes[name])),
        default=None,
    )
    bound: int | None = MORE_THAN_ANY_COST
    is_settled = request.strategy == "direct" or _is_settled(request, pricer, routes, best)
    if not (source.is_plain and target.is_plain):
        bound = bound if is_settled else None
    elif not is_settled:
        below = MORE_THAN_ANY_COST if best is None else _cost(request, pricer, routes[best])
        asked = _Asked(request, pricer, _is_capped(request, routes))
        found, bound = _search_space(asked, below)
        if found is not None:
            routes["search"] = found
            best = "search"
    if best is None:
        raise _no_plan(request, pricer, routes)
    if bound is not None and bound >= _cost(request, pricer, routes[best]):
        return _plan(request, pricer, routes[best], _alternatives(pricer, routes), "exact")
    if bound is None and request.strategy != "auto":
        bound = _floor(request)
    return _plan(request, pricer, routes[best], _alternatives(pricer, routes), "bounded", bound)


def _no_plan(request: Request, pricer: Pricer, routes: dict[str, Path]) -> NoPlanError:
    """The error that says the least limit known to do."""
    least = min(pricer.least_limit_bytes(route) for route in routes.values())
    if request.strategy == "collectives" and has_closed_limit(request.source, request.target):
        least = least_limit_bytes(request.source, request.target, request.donate)
    elif request.strategy != "direct" and request.source.is_plain and request.target.is_plain:
        least = _least_limit(request, least, _is_capped(request, routes))
    return NoPlanError(
        f"no plan fits the limit of {request.limit_bytes} bytes under strategy "
        f"{request.strategy!r}; the least that would do is {least} bytes",
        least,
    )


def _is_capped(request: Request, routes: dict[str, Path]) -> bool:
    """Whether no tile may be larger than both ends: under ``auto``, and where a standard route shows it."""
    if request.strategy != "collectives":
        return request.strategy == "auto"
    return all(within_ends(route, request.source, request.target) for route in routes.values())


def _least_limit(request: Request, high: int, capped: bool) -> int:
    """The least limit under which the search finds a route, by bisection; ``high`` is known to do."""
    low = request.limit_bytes or 0
    while low + 1 < high:
        middle = (low + high) // 2
        trial = replace(request, limit_bytes=middle, objective="bytes")
        pricer = Pricer(trial.source, trial.target, trial.topology, middle, trial.donate)
        asked = _Asked(trial, pricer, capped)
        found, _ = _search_space(asked, MORE_THAN_ANY_COST, prove=False)
        if found is None:
            low = middle
        else:
            high = min(middle, pricer.least_limit_bytes(found))
    return high


def _is_settled(
    request: Request, pricer: Pricer, routes: dict[str, Path], best: str | None
) -> bool:
    """Whether nothing can beat the best standard route: nothing moves, or the lower bound is met."""
    if best is None:
        return False
    if request.source.global_elems == 0:
        return True
    if request.objective != "bytes" or request.strategy != "auto":
        return False
    steps = pricer.steps(routes[best])
    bound = lower_bound_bytes(request.source, request.target)
    return sum(step.received_bytes for step in steps) == bound


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is searched for: a request, its prices, and whether no tile may be larger than both ends."""

    request: Request
    pricer: Pricer
    capped: bool


def _search_space(asked: _Asked, below: int, prove: bool = True) -> tuple[Path | None, int | None]:
    """The best route of the space if it beats ``below``, and what none of the whole space costs less than.

    The bound is None if none is known. Unless it is to ``prove`` that, the first route that comes up
    will do.
    """
    request, pricer = asked.request, asked.pricer
    source, target = request.source, request.target
    start = source.with_pending(source.pending_op, kept_axes(source, target))
    best: Path | None = None
    bounds: list[int | None] = []
    for goal, last in _goals(start, target):
        found, bound = _searched_to(asked, start, goal, below, prove)
        bounds.append(None if bound is None else bound + len(last))
        if found is not None and pricer.fits((*found, *last)):
            cost = _cost(request, pricer, (*found, *last))
            if cost < below:
                best, below = (*found, *last), cost
    known = [bound for bound in bounds if bound is not None]
    return best, min(known) if len(known) == len(bounds) else None


def _searched_to(
    asked: _Asked, start: ArrayType, goal: ArrayType, below: int, prove: bool
) -> tuple[Path | None, int | None]:
    """The best route to one goal, and the bound that is known for it."""
    request, pricer = asked.request, asked.pricer
    source, target = request.source, request.target
    resolved, kept = resolved_axes(source, target), kept_axes(source, target)
    if start == goal and not resolved:
        return (), MORE_THAN_ANY_COST
    if _overflows(request, resolved):
        return None, None
    for primes in (True, False):
        space = _space(asked, start, goal, primes)
        if space is None:
            continue
        prices = Prices(request, space, pricer, resolved, space.find(start), space.find(goal))
        if request.strategy == "auto":
            found = MiddleSearch(prices, None if primes else BOUNDED_PRICES).run(below)
            return found, MORE_THAN_ANY_COST if primes else None
        coarse = None
        if primes and space.n_cells > MANY_CELLS:
            coarse, below = _coarse_route(asked, start, goal, below)
        search = CollectiveSearch(prices, request.strategy == "collectives", kept)
        found, bound = search.run(below, prove)
        found = coarse if found is None else found
        return found, bound if primes else prices.floor()
    if request.strategy == "auto":
        return None, None
    return None, _floor(request) or 0


def _coarse_route(
    asked: _Asked, start: ArrayType, goal: ArrayType, below: int
) -> tuple[Path | None, int]:
    """A route over coarser factors that costs less than ``below`` and its cost, if one is found soon."""
    request, pricer = asked.request, asked.pricer
    space = _space(asked, start, goal, False)
    if space is None:
        return None, below
    resolved = resolved_axes(request.source, request.target)
    prices = Prices(request, space, pricer, resolved, space.find(start), space.find(goal))
    kept = kept_axes(request.source, request.target)
    found, _ = CollectiveSearch(prices, request.strategy == "collectives", kept, True).run(below)
    return found, below if found is None else _cost(request, pricer, found)


def _space(asked: _Asked, start: ArrayType, goal: ArrayType, primes: bool) -> TypeSpace | None:
    """The types over prime factors, or over coarser ones; None if there are too many."""
    request = asked.request
    source, target = request.source, request.target
    one_chain = common_pieces(source, target) is not None
    ends = (start,) if one_chain else (start, goal)
    used = {0: (*source.used, *target.used)} if one_chain else {0: source.used, 1: target.used}
    kept = kept_axes(source, target)
    factors = tuple(
        factors_of(end.mesh, used[i], kept, _topology(request, primes), primes)
        for i, end in enumerate(ends)
    )
    ranks = max(source.mesh.n_devices, target.mesh.n_devices)
    size = sum(n_types(len(f), source.ndim) for f in factors)
    most = MOST_FACTORS[request.strategy]
    most_cells = MAX_CELLS[request.strategy] if primes else COARSE_CELLS
    if max(map(len, factors)) > most or size * ranks > most_cells:
        return None
    auto = request.strategy == "auto"
    even = start.is_even and goal.is_even
    larger = max(math.prod(t.tile_shape) for t in (start, goal))
    cap = larger if asked.capped else None
    return TypeSpace.over(ends, factors, cap, even, not even and auto, (start, goal))


def _topology(request: Request, primes: bool) -> Topology:
    """Where blocks of it end, axes are split; prime factors of strategy ``auto`` know none."""
    return FLAT if primes and request.strategy == "auto" else request.topology


def _overflows(request: Request, resolved: tuple[SubAxis, ...]) -> bool:
    """Whether costs in bulk would not fit into 64 bits."""
    source, target = request.source, request.target
    elems = source.global_elems * math.prod(part.size for part in resolved)
    ranks = max(source.mesh.n_devices, target.mesh.n_devices)
    if request.objective == "bytes":
        return elems * ranks >= MORE_THAN_ANY_COST >> MESSAGE_BITS
    slowest = max(max(level.byte_fs, level.link_fs) for level in request.topology.levels)
    return elems * source.dtype.itemsize * slowest >= MORE_THAN_ANY_COST


def _goals(start: ArrayType, target: ArrayType) -> list[tuple[ArrayType, Path]]:
    """Types to reach, each with the local step from there to a target with added pending axes.

    Added axes may replicate before that step, or cut one dim, in any order.
    """
    added = added_axes(start, target)
    if not added:
        return [(target, ())]
    same = start.mesh == target.mesh and start.pending_op is not None
    plain = target.with_pending(target.pending_op, start.pending_axes if same else ())
    goals = [plain]
    for dim in range(target.ndim):
        for order in islice(permutations(added), MOST_ORDERS):
            dims = [list(axes) for axes in target.dims]
            dims[dim] += order
            fine = plain.with_dims(dims)
            if fine not in goals and fine.cut(dim).nests_in(target.cut(dim)):
                goals.append(fine)
    last = ((Slice((), target.pending_op, added), target),)
    return [(goal, last) for goal in goals]


def _cost(request: Request, pricer: Pricer, route: Path) -> int:
    return route_cost(request, pricer, request.source, route)


def _naive(source: ArrayType, target: ArrayType) -> tuple[int, int]:
    """Bytes received and peak of gathering everything everywhere, then slicing."""
    itemsize = source.dtype.itemsize
    g = math.prod(part.size for part in source.pending_axes)
    whole = target.with_pending(None, ()).with_dims(((),) * target.ndim)
    _, _, both = held_in_both(source, whole)
    lacking = total(volumes(whole)) - total(both)
    reducing = 2 * (g - 1) * total(volumes(source)) // g if g > 1 else 0
    peak = source.tile_bytes + whole.tile_bytes + target.tile_bytes
    return (lacking + reducing) * itemsize, peak


def _alternatives(pricer: Pricer, routes: dict[str, Path]) -> list[Alternative]:
    out = []
    for name, route in routes.items():
        steps = pricer.steps(route)
        out.append(
            Alternative(
                name,
                "; ".join(step.op for step in steps),
                sum(step.time_ps for step in steps),
                sum(step.received_bytes for step in steps),
                sum(step.messages_range[1] for step in steps),
                max(step.peak_bytes for step in steps),
                "" if pricer.fits(route) else "over the limit",
            )
        )
    return out


def _floor(request: Request) -> int | None:
    """No sequence of steps costs less, through whatever types: ranks receive what they lack."""
    source, target = request.source, request.target
    if added_axes(source, target):
        return None
    _, rows, both = held_in_both(source, target)
    lack = volumes(target)
    lack[rows] -= both
    if request.objective == "bytes":
        return total(lack) << MESSAGE_BITS
    worst_bytes = int(lack.max()) * source.dtype.itemsize
    return request.topology.cheapest.time_ps(int(worst_bytes > 0), worst_bytes)


def _in_units(request: Request, bound: int | None) -> int | None:
    """A bound of costs as bytes or picoseconds, as the objective counts."""
    if bound is None or request.objective == "time":
        return bound
    return (bound >> MESSAGE_BITS) * request.source.dtype.itemsize


def _plan(
    request: Request,
    pricer: Pricer,
    route: Path,
    considered: list[Alternative],
    exactness: str,
    bound: int | None = None,
) -> Plan:
    naive_bytes, naive_peak = _naive(request.source, request.target)
    plan = Plan(
        source=request.source,
        target=request.target,
        steps=pricer.steps(route),
        lower_bound_bytes=lower_bound_bytes(request.source, request.target),
        naive_received_bytes=naive_bytes,
        naive_peak_bytes=naive_peak,
        limit_bytes=request.limit_bytes,
        objective=request.objective,
        strategy=request.strategy,
        donate=request.donate,
        search=exactness,
        search_bound=_in_units(request, bound),
        considered=tuple(considered),
    )
    if request.limit_bytes is not None and plan.peak_bytes > request.limit_bytes:
        raise NoPlanError(
            f"no plan fits the limit of {request.limit_bytes} bytes: source and target alone need "
            f"{plan.peak_bytes} bytes",
            plan.peak_bytes,
        )
    return plan
