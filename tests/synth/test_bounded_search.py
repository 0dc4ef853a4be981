"""The search over named collectives: prices, lower bounds, budgets, and what is said beyond them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from redist import ArrayType, Mesh, NoPlanError, Plan, synthesize
from redist.layout.axes import SubAxis
from redist.layout.tiles import Ints
from redist.plan.rates import FLAT
from redist.plan.request import Request
from redist.plan.rules import kept_axes, resolved_axes
from redist.plan.topology import Level, Topology
from redist.synth import find
from redist.synth.chains import Bools
from redist.synth.collectives import narrowing
from redist.synth.collectives import search as collective_search
from redist.synth.collectives.graph import Budget
from redist.synth.collectives.search import CollectiveSearch
from redist.synth.find import find_plan
from redist.synth.named_steps import common_pieces
from redist.synth.normal_form import normal_form
from redist.synth.objective_costs import MORE_THAN_ANY_COST, Prices, route_cost
from redist.synth.plan_figures import Pricer
from redist.synth.routes import factors_of
from redist.synth.type_space import TypeSpace
from tests.problems.problems import Problem, problems
from tests.synth.exhaustive import all_types, best_time_of_collectives
from tests.tiers import sample

TWO_LEVELS = Topology((Level("node", 4, 10**6, 10**5), Level("net", None, 10**7, 10**6)))
SHARED_LINK = Topology(
    (Level("node", 4, 10**6, 10**5), Level("net", None, 10**7, 10**6, 7 * 10**5)), step_ps=5000
)
THREE_LEVELS = Topology(
    (
        Level("socket", 2, 10**6, 10**5),
        Level("node", 6, 3 * 10**6, 3 * 10**5),
        Level("net", None, 10**7, 10**6),
    ),
    step_ps=7777,
)
TOPOLOGIES = (FLAT, TWO_LEVELS, SHARED_LINK, THREE_LEVELS)
STRATEGIES = ("collectives", "no_permute")


def search_of(request: Request) -> CollectiveSearch | None:
    """A search over all types of a small request, None if it is not small or has no other end."""
    a, b = request.source, request.target
    kept = kept_axes(a, b)
    start = a.with_pending(a.pending_op, kept)
    if b.pending_op is not None or start == b or a.global_elems == 0:
        return None
    one = common_pieces(a, b) is not None
    ends = (start,) if one else (start, b)
    used = ((*a.used, *b.used),) if one else (a.used, b.used)
    factors = tuple(
        factors_of(t.mesh, parts, kept, request.topology, True)
        for t, parts in zip(ends, used, strict=True)
    )
    if max(map(len, factors)) > 4:
        return None
    pricer = Pricer(a, b, request.topology, request.limit_bytes, request.donate)
    space = TypeSpace.over(ends, factors, None, False, False, (start, b))
    prices = Prices(request, space, pricer, resolved_axes(a, b), space.find(start), space.find(b))
    return CollectiveSearch(prices, request.strategy == "collectives", kept)


def searches(n: int, seed: int) -> Iterator[tuple[Problem, CollectiveSearch]]:
    """Searches of random problems under all topologies, some of them with a limit."""
    rng = random.Random(seed)
    for problem in problems(n, seed, devices=(4, 6, 8, 12)):
        whole = problem.source.global_elems * problem.source.dtype.itemsize
        for topology in TOPOLOGIES:
            request = Request(
                problem.source,
                problem.target,
                topology=topology,
                limit_bytes=rng.choice((None, None, 3 * problem.source.tile_bytes + whole)),
                objective=rng.choice(("time", "time", "time", "bytes")),
                strategy=rng.choice(STRATEGIES),
            )
            search = search_of(request)
            if search is not None:
                search.edges.work = Budget(MORE_THAN_ANY_COST)
                search.edges.narrow(MORE_THAN_ANY_COST)
                yield problem, search


def edges_of(search: CollectiveSearch, u: int) -> tuple[Ints, Ints, Bools]:
    """All neighbours of a type, the prices of the steps to them, and which of these are the costs."""
    room = np.full(len(search.prices.space) + 1, MORE_THAN_ANY_COST)
    ids, _ = search.edges.bounds(u, room, MORE_THAN_ANY_COST)
    return ids, *search.edges.prices(u, ids)


def test_bounds_of_edges_are_never_above_their_prices_and_often_are_the_prices():
    rng = random.Random(2)
    n_edges = n_tight = 0
    for problem, search in searches(sample(5, of=100), seed=13):
        n = len(search.prices.space)
        room = np.full(n + 1, MORE_THAN_ANY_COST)
        for u in rng.sample(range(n), min(3, n)):
            ids, floors = search.edges.bounds(u, room, MORE_THAN_ANY_COST)
            low, known = search.edges.prices(u, ids)
            assert np.all(floors[known] <= low[known]), f"{problem}: {search.prices.type(u)}"
            n_edges += int(known.sum())
            n_tight += int((floors[known] == low[known]).sum())
    assert n_edges > sample(45, of=1000)
    assert n_tight > n_edges // 4


def test_edges_that_may_be_left_out_cost_too_much():
    rng = random.Random(3)
    left_out = 0
    for problem, search in searches(sample(5, of=100), seed=14):
        n = len(search.prices.space)
        u = rng.randrange(n)
        ids, low, known = edges_of(search, u)
        if not known.any():
            continue
        left = int(np.median(low[known])) + 1
        room = np.full(n + 1, left)
        few, _ = search.edges.bounds(u, room, left)
        gone = known & ~np.isin(ids, few)
        assert np.all((low + search.edges.to_goal[ids])[gone] >= left), str(problem)
        left_out += int(gone.sum())
    assert left_out > sample(9, of=200)


def test_batches_have_the_prices_of_single_edges():
    rng = random.Random(4)
    for problem, search in searches(sample(3, of=60), seed=15):
        u = rng.randrange(len(search.prices.space))
        ids, low, known = edges_of(search, u)
        for k in rng.sample(range(len(ids)), min(8, len(ids))):
            one, sure = search.edges.prices(u, ids[k : k + 1])
            assert (one[0], sure[0]) == (low[k], known[k]), str(problem)


def test_prices_in_bulk_are_those_of_the_listed_pieces():
    rng = random.Random(0)
    known_ones = 0
    for problem, search in searches(sample(5, of=100), seed=11):
        n = len(search.prices.space)
        for u in rng.sample(range(n), min(3, n)):
            ids, low, known = edges_of(search, u)
            for k in rng.sample(range(len(ids)), min(8, len(ids))):
                listed = search.edges.exact(u, int(ids[k]))
                assert low[k] <= listed, f"{problem}: {search.prices.type(u)}"
                assert not known[k] or low[k] == listed, f"{problem}: {search.prices.type(u)}"
                known_ones += bool(known[k])
    assert known_ones > sample(45, of=1000)


def test_what_is_still_to_come_obeys_the_triangle_inequality():
    rng = random.Random(1)
    for problem, search in searches(sample(5, of=100), seed=12):
        n = len(search.prices.space)
        rest = search.edges.to_goal
        if not len(search.edges.alive):
            with pytest.raises(NoPlanError):  # no route keeps the limit
                find_plan(search.prices.request)
            continue
        assert rest[search.prices.goal] == 0
        for u in rng.sample(range(n), min(3, n)):
            ids, low, known = edges_of(search, u)
            bad = known & (rest[u] > low + rest[ids])
            assert not bad.any(), f"{problem}: {search.prices.type(u)}"


def ways(costs: Ints, node: int) -> Ints:
    """The cheapest ways from a node to all, given the cost of every edge [from, to]."""
    out = np.full(len(costs), MORE_THAN_ANY_COST, dtype=np.int64)
    out[node] = 0
    while True:
        shorter = np.minimum(out, (out[:, None] + costs).min(axis=0))
        if np.array_equal(shorter, out):
            return out
        out = shorter


def test_no_type_is_left_out_that_a_cheaper_route_passes(monkeypatch):
    monkeypatch.setattr(narrowing, "FEW_TYPES", 0)
    monkeypatch.setattr(narrowing, "MANY_TYPES", 0)
    left_out = passed = 0
    for problem, search in searches(sample(12, of=120), seed=16):
        edges, n = search.edges, len(search.prices.space)
        if n > 90 or search.prices.resolved:
            continue
        costs = np.full((n, n), MORE_THAN_ANY_COST // 4)
        for u in range(n):
            ids, low, known = edges_of(search, u)
            for k in np.flatnonzero(~known):
                low[k] = edges.exact(u, int(ids[k]))
            costs[u, ids] = low
        there = ways(costs, search.prices.start)
        back = ways(costs.T, search.prices.goal)
        best = int(there[search.prices.goal])
        for below in (best, best + 1, best + best // 4 + 2):
            edges.work = Budget(MORE_THAN_ANY_COST)
            edges.narrow(below)
            edges.refine(below)
            on_the_way = np.flatnonzero(there + back < below)
            assert np.isin(on_the_way, edges.alive).all(), str(problem)
            assert np.all(edges.to_goal[on_the_way] <= back[on_the_way]), str(problem)
            assert np.all(edges.narrowing.from_start[on_the_way] <= there[on_the_way]), str(problem)
            left_out += n - len(edges.alive)
            passed += len(on_the_way)
    assert passed > sample(20, of=200)
    assert left_out > sample(1000, of=10_000)


@pytest.mark.parametrize("topology", TOPOLOGIES[:2], ids=["flat", "two levels"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_plans_equal_exhaustive_search_up_to_8_devices(strategy, topology):
    checked = 0
    for problem in problems(400, seed=21, kinds=("even", "uneven"), devices=(4, 6, 8), most_dims=3):
        a, b = problem.source, problem.target
        if len(all_types(a, b, cap=False)) > sample(30, of=130) or a.global_elems == 0:
            continue
        plan = find_plan(Request(a, b, strategy=strategy, topology=topology))
        assert plan.search == "exact"
        best = best_time_of_collectives(a, b, topology, strategy == "collectives")
        assert plan.time_ps + len(plan.steps) <= best, str(problem)
        if all(alt.time_ps > plan.time_ps for alt in plan.considered if alt.name != "search"):
            assert plan.time_ps + len(plan.steps) == best, str(problem)
        checked += 1
        if checked == sample(3, of=60):
            break
    assert checked == sample(3, of=60)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("target", ["f32[12, 24{x}]", "f32[12, 24]"])
def test_plans_equal_exhaustive_search_where_nodes_split_an_axis(strategy, target):
    a, b = (ArrayType.parse(text, Mesh(x=12)) for text in ("f32[12{x}, 24]", target))
    plan = find_plan(Request(a, b, strategy=strategy, topology=TWO_LEVELS))
    nodes = (SubAxis("x", 1, 3),)
    best = best_time_of_collectives(a, b, TWO_LEVELS, strategy == "collectives", nodes)
    assert plan.search == "exact"
    assert plan.time_ps + len(plan.steps) <= best


BUDGETS = ("EXACT_WORK", "LEAST_WORK", "FEW_WORK", "BEAM_WORK", "DIVE_WORK", "LATE_DIVE_WORK")


def hurried(monkeypatch: pytest.MonkeyPatch, request: Request, work: int) -> Plan:
    """The plan of a search that may look at little."""
    with monkeypatch.context() as patch:
        for name in (*BUDGETS, "FOLLOW_WORK"):
            patch.setattr(collective_search, name, work)
        return find_plan(request)


@pytest.mark.parametrize("objective", ["time", "bytes"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_beyond_its_budget_a_search_is_bounded_and_its_bound_is_true(
    strategy, objective, monkeypatch
):
    n_bounded = 0
    drawn = problems(sample(12, of=160), seed=31, kinds=("even", "uneven"), devices=(12, 16, 24))
    for number, problem in enumerate(drawn):
        topology, work = TOPOLOGIES[number % 2], (3_000, 200_000)[number // 2 % 2]
        a, b = problem.source, problem.target
        request = Request(a, b, strategy=strategy, objective=objective, topology=topology)
        best, plan = find_plan(request), hurried(monkeypatch, request, work)
        pricer = Pricer(a, b, topology, None, False)
        costs = [
            route_cost(request, pricer, a, tuple((s.action, s.after) for s in p.steps))
            for p in (best, plan)
        ]
        normal = normal_form(a, b)
        if any(alt.name == "normal form" for alt in plan.considered):
            assert normal is not None
            assert costs[1] <= route_cost(request, pricer, a, normal), str(problem)
        if plan.search == "exact":
            assert plan.search_bound is None
            assert costs[1] <= costs[0], str(problem)
            continue
        assert plan.search_bound is not None
        cost = best.time_ps + len(best.steps) if objective == "time" else best.received_bytes
        assert best.search == "bounded" or plan.search_bound <= cost, str(problem)
        assert Plan.from_json(plan.to_json()) == plan
        assert hurried(monkeypatch, request, work).to_json() == plan.to_json()
        n_bounded += 1
    assert n_bounded >= sample(2, of=20)


def test_a_bound_is_shown_beside_the_plan(monkeypatch):
    mesh = Mesh(x=3, y=2, z=4)
    a, b = "f32[48{y}, 8{x}, 48{z}]", "f32[48{x}, 8, 48{y}]"
    for name in ("EXACT_WORK", "LEAST_WORK"):
        monkeypatch.setattr(collective_search, name, 1)
    plan = synthesize(a, b, mesh=mesh, strategy="no_permute")
    assert plan.search == "bounded"
    assert plan.search_bound is not None
    assert "bounded search: none in less than" in str(plan)
    assert "bounded search: none in less than" in plan.explain()


def test_a_plan_is_found_under_a_limit_however_little_may_be_looked_at(monkeypatch):
    mesh = Mesh(x=2, y=2, z=3)
    a, b = "f32[12{x}, 24{y,z}]", "f32[12{z,y}, 24{x}]"
    wanted = synthesize(a, b, mesh=mesh, strategy="collectives")
    limit = wanted.peak_bytes - 1
    for name in ("EXACT_WORK", "LEAST_WORK", "BEAM_WORK"):
        monkeypatch.setattr(collective_search, name, 1)
    plan = synthesize(a, b, mesh=mesh, strategy="collectives", limit_bytes=limit)
    assert plan.peak_bytes <= limit


def test_the_problem_that_took_minutes():
    mesh = Mesh(a=8, b=4)
    a, b = "f32[66, 13{a}, 57, 87]", "f32[66{a,b}, 13, 57, 87]"
    plan = synthesize(a, b, mesh=mesh, strategy="collectives")
    assert plan.search == "exact"
    assert plan.time_ps == 90_360_400


def test_a_large_space_is_never_worse_than_coarser_factors(monkeypatch):
    mesh = Mesh(x=4, y=8, z=2)
    a, b = "i32[2{z}, 64, 64{y,x}, 4]", "i32[2, 64{z,y}, 64, 4{x}]"
    ends = ArrayType.parse(a, mesh), ArrayType.parse(b, mesh)
    fine = find_plan(Request(*ends, strategy="collectives"))
    monkeypatch.setitem(find.MAX_CELLS, "collectives", 0)
    coarse = find_plan(Request(*ends, strategy="collectives"))
    assert coarse.search == "bounded"
    assert fine.time_ps + len(fine.steps) <= coarse.time_ps + len(coarse.steps)
    assert (fine.search_bound or fine.time_ps) >= (coarse.search_bound or 0)


def test_beams_end_where_every_way_is_too_dear():
    search = next(s for _, s in searches(5, seed=41))
    found, bound = search.run(1)
    assert found is None
    assert bound == 1
    assert np.all(search.edges.to_goal >= 0)
