"""How good are the plans? Bytes received and memory, over the least possible, beside the rivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import redist
from bench.problems.judge import judge
from bench.report.figures import geomean, most
from bench.report.report import Report, Table, Value
from redist.plan.plan import Plan
from redist.plan.topology import FLAT
from redist.synth.plan_figures import Pricer
from redist.synth.routes import normal_form
from redist.text.progress import track
from tests.problems.problems import KINDS, Problem, problems

OURS = {
    "bytes": ("bytes", "auto"),
    "collectives": ("bytes", "collectives"),
    "time": ("time", "auto"),
}
"""Our plans by objective and strategy."""
RIVALS = ("normal form", "naive")


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """The figures of one problem, by way of planning it."""

    problem: Problem
    lower_bound_bytes: int
    ends_bytes: int
    exact: bool
    received_bytes: dict[str, int]
    peak_bytes: dict[str, int]

    def received(self, way: str) -> float:
        """Bytes received over the lower bound."""
        return self.received_bytes[way] / self.lower_bound_bytes

    def peak(self, way: str) -> float:
        """Peak over source and target."""
        return self.peak_bytes[way] / self.ends_bytes


def run(n: int = 2000, seed: int = 0) -> Report:
    """Plan ``n`` random problems in every way and compare."""
    cases = [measure_plans(problem) for problem in track(problems(n, seed), n, "quality")]
    moving = [case for case in cases if case.lower_bound_bytes > 0]
    tables = (_received_table(cases, moving), _memory_table(cases), _free_table(cases))
    return Report("quality", tables)


def measure_plans(problem: Problem) -> PlanFigures:
    """Plan a problem in every way and judge each plan."""
    source, target = problem.source, problem.target
    plans = {
        way: judge(redist.synthesize(source, target, objective=objective, strategy=strategy))
        for way, (objective, strategy) in OURS.items()
    }
    first = plans["bytes"]
    plans["normal form"] = judge(_normal_form(first))
    received = {way: plan.received_bytes for way, plan in plans.items()}
    peak = {way: plan.peak_bytes for way, plan in plans.items()}
    return PlanFigures(
        problem,
        first.lower_bound_bytes,
        source.tile_bytes + target.tile_bytes,
        all(plans[way].search == "exact" for way in OURS),
        {**received, "naive": first.naive_received_bytes},
        {**peak, "naive": first.naive_peak_bytes},
    )


def _normal_form(plan: Plan) -> Plan:
    """The pure normal form of the same request as a plan."""
    pricer = Pricer.of(plan.source, plan.target, FLAT, None, plan.donate)
    steps = pricer.steps(normal_form(plan.source, plan.target))
    return replace(plan, steps=steps, considered=(), certificate=None)


def _kinds(cases: Sequence[PlanFigures]) -> list[tuple[str, list[PlanFigures]]]:
    rows = [(kind, [case for case in cases if case.problem.kind == kind]) for kind in KINDS]
    return [*rows, ("all", list(cases))]


def _received_table(cases: Sequence[PlanFigures], moving: Sequence[PlanFigures]) -> Table:
    ways = (*OURS, *RIVALS)
    rows: list[tuple[Value, ...]] = []
    for kind, some in _kinds(moving):
        figures: list[Value] = []
        for way in ways:
            ratios = [case.received(way) for case in some]
            figures += [geomean(ratios), most(ratios)]
        rows.append((kind, len(some), *figures))
    exact = sum(case.exact for case in cases)
    return Table(
        "Received bytes over the lower bound (geomean, max)",
        ("kind", "cases", *(name for way in ways for name in (way, f"{way} max"))),
        tuple(rows),
        (
            "bytes, time: objective, strategy auto; collectives: objective bytes, no exchange",
            f"searched exactly in all three ways: {exact} of {len(cases)}",
        ),
        "received",
    )


def _memory_table(cases: Sequence[PlanFigures]) -> Table:
    ways = (*OURS, *RIVALS)
    rows: list[tuple[Value, ...]] = []
    for kind, some in _kinds([case for case in cases if case.ends_bytes > 0]):
        figures: list[Value] = []
        for way in ways:
            ratios = [case.peak(way) for case in some]
            figures += [geomean(ratios), most(ratios)]
        rows.append((kind, len(some), *figures))
    return Table(
        "Peak bytes over source + target, source kept (geomean, max)",
        ("kind", "cases", *(name for way in ways for name in (way, f"{way} max"))),
        tuple(rows),
        ("ours and normal form with staging, naive without: that favours naive",),
        "memory",
    )


def _free_table(cases: Sequence[PlanFigures]) -> Table:
    """Problems that need no traffic at all: whoever receives something there wastes it."""
    free = [case for case in cases if case.lower_bound_bytes == 0]
    ways = (*OURS, *RIVALS)
    rows: list[tuple[Value, ...]] = []
    for kind, some in _kinds(free):
        busy = [sum(case.received_bytes[way] > 0 for case in some) for way in ways]
        rows.append((kind, len(some), *busy))
    wasted = [case for case in free if any(case.received_bytes[way] for way in OURS)]
    return Table(
        "Lower bound 0: how many plans receive anything",
        ("kind", "cases", *ways),
        tuple(rows),
        tuple(f"not free: {case.problem}: {case.received_bytes}" for case in wasted),
        "free",
    )
