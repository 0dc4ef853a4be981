"""How good are the plans? Bytes received and memory, over the least possible, beside the rivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import redist
from bench.problems.judge import judge
from bench.report.figures import geomean, most
from bench.report.report import Row, Table, Tables, Value
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.synth.normal_form import crossing, normal_form
from redist.synth.plan_figures import Pricer
from redist.synth.routes import gather_and_slice
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


def run(n: int = 2000, seed: int = 0) -> Tables:
    """Plan ``n`` random problems in every way and compare."""
    cases = [measure_plans(problem) for problem in track(problems(n, seed), n, "quality")]
    moving = [case for case in cases if case.lower_bound_bytes > 0]
    held = [case for case in cases if case.ends_bytes > 0]
    exact = sum(case.exact for case in cases)
    received = Table.of(
        "received",
        "Received bytes over the lower bound (geomean, max)",
        _ratios(moving, PlanFigures.received),
        "bytes, time: objective, strategy auto; collectives: objective bytes, no exchange",
        f"searched exactly in all three ways: {exact} of {len(cases)}",
    )
    memory = Table.of(
        "memory",
        "Peak bytes over source + target, source kept (geomean, max)",
        _ratios(held, PlanFigures.peak),
        "ours and normal form with staging, naive without: that favours naive",
    )
    return received, memory


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
    """The pure normal form of the same request as a plan; what has none gathers and slices."""
    pricer = Pricer(plan.source, plan.target, FLAT, None, plan.donate)
    ends = plan.source, plan.target
    steps = pricer.steps(normal_form(*ends) or crossing(*ends) or gather_and_slice(*ends))
    return replace(plan, steps=steps, considered=(), certificate=None)


def _ratios(cases: Sequence[PlanFigures], ratio: Callable[[PlanFigures, str], float]) -> list[Row]:
    rows: list[Row] = []
    for kind in (*KINDS, "all"):
        some = [case for case in cases if kind in ("all", case.problem.kind)]
        row: dict[str, Value] = {"kind": kind, "cases": len(some)}
        for way in (*OURS, *RIVALS):
            ratios = [ratio(case, way) for case in some]
            row |= {way: geomean(ratios), f"{way} max": most(ratios)}
        rows.append(row)
    return rows
