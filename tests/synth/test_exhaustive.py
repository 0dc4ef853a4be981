"""The search against exhaustive search over the same space."""

from __future__ import annotations

import pytest

from redist import ArrayType, Mesh
from redist.plan.rates import FLAT
from redist.plan.request import Request
from redist.plan.topology import Level, Topology
from redist.synth.find import find_plan
from redist.synth.plan_figures import Pricer
from redist.synth.routes import standard_routes
from tests.problems.problems import problems
from tests.synth.exhaustive import all_types, best_bytes_of_collectives, best_time
from tests.tiers import sample

TWO_LEVELS = Topology((Level("node", 4, 10**6, 10**5), Level("net", None, 10**6, 10**6)))
BINARY = dict.fromkeys("abcde", 2)
FIVE_FACTORS = pytest.mark.slow("every type of five axes, half a minute each")


def best_standard_time(a: ArrayType, b: ArrayType, topology: Topology) -> int:
    """The standard routes are looked at too; on several levels one may leave the space."""
    request = Request(a, b, topology=topology)
    pricer = Pricer(a, b, topology, None, False)
    return min(
        sum(step.time_ps for step in pricer.steps(route))
        for route in standard_routes(request).values()
    )


def pair(mesh: Mesh, source: str, target: str) -> tuple[ArrayType, ArrayType]:
    return ArrayType.parse(source, mesh), ArrayType.parse(target, mesh)


@pytest.mark.parametrize("topology", [FLAT, TWO_LEVELS], ids=["flat", "two levels"])
@pytest.mark.parametrize(
    ("mesh", "source", "target"),
    [
        ({"x": 2, "y": 4}, "f32[8{x}, 8{y}]", "f32[8{y}, 8{x}]"),
        ({"x": 2, "y": 4}, "f32[64{x,y}, 8]", "f32[64, 8]"),
        ({"x": 2, "y": 4}, "f64[7{x}, 5{y}]", "f64[7{y}, 5]"),
        ({"x": 8}, "f32[96{x}]", "f32[96]"),
        ({"x": 8}, "f32[4096{x}, 64]", "f32[4096, 64{x}]"),
        ({"x": 2, "y": 3}, "f32[12{x}, 6{y}]", "f32[12, 6]"),
        ({"x": 2, "y": 2, "z": 3}, "f32[12{z}, 12{x,y}]", "f32[12{y,z}, 12]"),
        ({"x": 2, "y": 4}, "f32[16, 16{x}] sum{y}", "f32[16, 16]"),
        ({"x": 2, "y": 4}, "f32[64, 64{x}] sum{y}", "f32[64{x}, 64]"),
        ({"x": 4, "y": 3}, "f32[5{x}, 4] max{y}", "f32[5, 4{x}]"),
        pytest.param(
            BINARY, "f32[2{a}, 2{b}, 4{c,d}, 2{e}]", "f32[2{e}, 2{a}, 4{b}, 2]", marks=FIVE_FACTORS
        ),
        pytest.param(BINARY, "u8[2, 2{b}, 4{d}, 2{e}]", "u8[2{e}, 2, 4, 2]", marks=FIVE_FACTORS),
    ],
)
def test_time_plans_are_optimal(mesh, source, target, topology):
    a, b = pair(Mesh(mesh), source, target)
    plan = find_plan(Request(a, b, topology=topology))
    assert plan.search == "exact"
    assert plan.time_ps == min(best_time(a, b, topology), best_standard_time(a, b, topology))


def test_time_plans_are_optimal_on_random_problems():
    small = (
        p
        for p in problems(400, seed=5, kinds=("even", "uneven", "pending"), devices=(8, 12))
        if p.target.pending_op is None and len(all_types(p.source, p.target)) <= 60
    )
    checked = 0
    for problem in small:
        plan = find_plan(Request(problem.source, problem.target))
        assert plan.search == "exact"
        assert plan.time_ps == best_time(problem.source, problem.target), str(problem)
        checked += 1
        if checked == sample(6, of=25):
            break
    assert checked == sample(6, of=25)


def test_collectives_equal_the_exhaustive_optimum_up_to_8_devices():
    checked = 0
    for problem in problems(
        sample(20, of=90), seed=3, kinds=("even",), devices=(4, 6, 8), most_dims=3
    ):
        if problem.source.global_elems > 3000:
            continue
        request = Request(problem.source, problem.target, objective="bytes", strategy="collectives")
        plan = find_plan(request)
        assert plan.search == "exact"
        best = best_bytes_of_collectives(problem.source, problem.target)
        assert plan.received_bytes == best, str(problem)
        checked += 1
    assert checked >= sample(9, of=50)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param("u8[2{a}, 2{b}, 4{c,d}, 2{e}]", "u8[2{e}, 2{a}, 4{b}, 2]", marks=FIVE_FACTORS),
        pytest.param("u8[2, 2{b}, 4{d,e}, 2{a}]", "u8[2{e}, 2{c}, 4{a,b}, 2]", marks=FIVE_FACTORS),
    ],
)
def test_collectives_are_optimal_with_five_factors_and_four_dims(source, target):
    a, b = pair(Mesh(BINARY), source, target)
    plan = find_plan(Request(a, b, objective="bytes", strategy="collectives"))
    assert plan.search == "exact"
    assert plan.received_bytes == best_bytes_of_collectives(a, b)
