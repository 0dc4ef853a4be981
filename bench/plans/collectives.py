"""How long does planning take with named collectives alone, and is the plan proved to be the best?"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import redist
from bench.plans import planning
from bench.plans.planning import MESHES, in_fresh_process, pattern, warm_up
from bench.problems.judge import judge
from bench.report.figures import geomean, met, most, quantile, timed
from bench.report.report import Row, Table, Tables
from redist.text.progress import track
from tests.problems.problems import TOPOLOGIES, Problem, problems

STRATEGIES = ("collectives", "no_permute")
DEVICES = (8, 12, 16, 24, 30, 32, 48, 64)
WORST_AIM_S = 1.0
MEDIAN_AIM_MS = 50.0
EXACT_AIM = 0.95
OVER_BOUND_AIM = 1.1
LARGE_AIM_S = 5.0
SLOWEST = 3
"""So many slow problems are named."""


class Answer(NamedTuple):
    """Processor seconds to plan a problem, whether that was exact, time over the bound if there is one."""

    strategy: str
    network: str
    problem: str
    seconds: float
    exact: bool
    over_bound: float | None


def run(n: int = 2000, seed: int = 0) -> Tables:
    """Plan ``n`` random problems under each strategy, networks in turn; then the largest mesh."""
    asked = [
        (problem, strategy, list(TOPOLOGIES)[number // 2 % 2])
        for strategy in STRATEGIES
        for number, problem in enumerate(problems(n, seed, ("even", "uneven"), DEVICES))
    ]
    found = in_fresh_process(_answer, asked)
    answers = list(track(found, len(asked), "planning with named collectives"))
    mesh = MESHES[-1] if n >= 100 else MESHES[0]
    rows: list[Row] = []
    for name, strategy in itertools.product(planning.PATTERNS, STRATEGIES):
        (seconds,) = in_fresh_process(_large_s, [(mesh, name, strategy)])
        aim = met(seconds < LARGE_AIM_S)
        rows.append({"pattern": name, "strategy": strategy, "s": seconds, "aim": aim})
    title = f"Planning time on mesh {mesh}: {mesh.n_devices} devices"
    aim = f"aim: < {LARGE_AIM_S:.0f} s"
    return _table(answers), Table.of("devices", title, rows, aim, keys=2)


def _answer(asked: tuple[Problem, str, str]) -> Answer:
    warm_up()
    (problem, strategy, network), topology = asked, TOPOLOGIES[asked[2]]
    work = partial(redist.synthesize, problem.source, problem.target, topology=topology)
    taken, plan = timed(partial(work, strategy=strategy), time.process_time)
    judge(plan, topology)
    bound = plan.search_bound
    over = (plan.time_ps + len(plan.steps)) / bound if bound else None
    return Answer(strategy, network, str(problem), taken, plan.search == "exact", over)


def _large_s(asked: tuple[redist.Mesh, str, str]) -> float:
    """Processor seconds to plan one of the patterns on a large mesh."""
    warm_up()
    mesh, name, strategy = asked
    work = partial(redist.synthesize, *pattern(mesh, name), mesh=mesh, strategy=strategy)
    taken, plan = timed(work, time.process_time)
    judge(plan)
    return taken


def _table(answers: Sequence[Answer]) -> Table:
    rows: list[Row] = []
    notes: list[str] = []
    for strategy in STRATEGIES:
        own = [a for a in answers if a.strategy == strategy]
        for network in (*TOPOLOGIES, "all"):
            some = [a for a in own if network in ("all", a.network)]
            rows.append({"strategy": strategy, "network": network, **_figures(some)})
        worst, median = max(a.seconds for a in own), quantile([a.seconds for a in own], 0.5) or 0.0
        share = sum(a.exact for a in own) / len(own)
        over = geomean(a.over_bound for a in own if a.over_bound is not None)
        notes.append(
            f"{strategy}: worst < {WORST_AIM_S:.0f} s {met(worst < WORST_AIM_S)}, "
            f"median < {MEDIAN_AIM_MS:.0f} ms {met(median * 1e3 < MEDIAN_AIM_MS)}, "
            f"exact >= {EXACT_AIM:.0%} {met(share >= EXACT_AIM)}, "
            f"over the bound < {OVER_BOUND_AIM} {met((over or 1.0) < OVER_BOUND_AIM)}"
        )
        slow = sorted(((a.seconds, a.problem) for a in own), reverse=True)[:SLOWEST]
        notes += [f"{strategy}: {seconds:.2f} s for {text}" for seconds, text in slow]
    title = f"Planning with named collectives alone, {DEVICES[0]} to {DEVICES[-1]} devices"
    return Table.of("random", title, rows, *notes, keys=2)


def _figures(some: Sequence[Answer]) -> Row:
    ms = [a.seconds * 1e3 for a in some]
    over = [a.over_bound for a in some if a.over_bound is not None]
    bounded = sum(not a.exact for a in some)
    return {
        "cases": len(some),
        "median ms": quantile(ms, 0.5),
        "99 % ms": quantile(ms, 0.99),
        "worst ms": most(ms),
        "exact, %": 100.0 * (len(some) - bounded) / len(some) if some else None,
        "bounded": bounded,
        "with a bound": len(over),
        "over it, geomean": geomean(over),
        "most": most(over),
    }
