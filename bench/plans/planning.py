"""How long does planning take? Random problems, repeated requests; certificate and check included."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import redist
from bench.plans import growth
from bench.plans.growth import in_fresh_process, warm_up
from bench.problems.judge import judge
from bench.report.figures import met, most, quantile
from bench.report.report import Row, Table, Tables
from redist.text.progress import track
from tests.problems.problems import KINDS, Problem, problems

MEDIAN_AIM_MS = 20.0
WORST_AIM_MS = 500.0
REPEATED_AIM_US = 100.0
OBJECTIVES = ("time", "bytes")
REPEATS = 200
REPEATED = 50
"""So many of the problems are asked again."""
SLOWEST = 3
"""So many slow problems are named."""


def run(n: int = 2000, seed: int = 0) -> Tables:
    """Time ``n`` random problems in fresh processes, then growth with devices."""
    asked = list(dict.fromkeys(problems(n, seed)))
    times = {}
    for objective in OBJECTIVES:
        fresh = in_fresh_process(_planning_ms, [(problem, objective) for problem in asked])
        times[objective] = list(track(fresh, len(asked), f"planning, objective {objective}"))
    repeated = list(in_fresh_process(_repeated_us, asked[:REPEATED]))
    return _times_table(asked, times), _repeated_table(repeated), growth.devices_table(n)


def _planning_ms(asked: tuple[Problem, str]) -> float:
    """Milliseconds to plan, check and certify a problem under an objective; the plan is judged later."""
    warm_up()
    problem, objective = asked
    started = time.perf_counter()
    plan = redist.synthesize(problem.source, problem.target, objective=objective)
    taken = time.perf_counter() - started
    judge(plan)
    return taken * 1e3


def _repeated_us(problem: Problem) -> tuple[float, float]:
    """Median microseconds to ask again, with types and with text."""
    warm_up()
    a, b = problem.source, problem.target
    texts = str(a), str(b)
    first = judge(redist.synthesize(a, b))
    redist.synthesize(*texts, mesh=a.mesh, target_mesh=b.mesh)
    types, text = [], []
    for _ in range(REPEATS):
        started = time.perf_counter()
        again = redist.synthesize(a, b)
        types.append((time.perf_counter() - started) * 1e6)
        started = time.perf_counter()
        redist.synthesize(*texts, mesh=a.mesh, target_mesh=b.mesh)
        text.append((time.perf_counter() - started) * 1e6)
        assert again is first
    return statistics.median(types), statistics.median(text)


def _times_table(asked: Sequence[Problem], times: dict[str, list[float]]) -> Table:
    rows: list[Row] = []
    notes: list[str] = []
    for objective, taken in times.items():
        for kind in (*KINDS, "all"):
            some = [ms for p, ms in zip(asked, taken, strict=True) if kind in ("all", p.kind)]
            spread = {"median ms": quantile(some, 0.5), "99 % ms": quantile(some, 0.99)}
            about: Row = {"objective": objective, "kind": kind, "cases": len(some)}
            rows.append({**about, **spread, "worst ms": most(some)})
        median, worst = quantile(taken, 0.5) or 0.0, max(taken, default=0.0)
        notes.append(
            f"{objective}: aim median < {MEDIAN_AIM_MS:.0f} ms {met(median < MEDIAN_AIM_MS)}, "
            f"worst < {WORST_AIM_MS:.0f} ms {met(worst < WORST_AIM_MS)}, "
            f"{sum(ms >= WORST_AIM_MS for ms in taken)} of {len(taken)} above"
        )
        slow = sorted(zip(taken, map(str, asked), strict=True), reverse=True)[:SLOWEST]
        notes += [f"{objective}: {ms:.0f} ms for {text}" for ms, text in slow]
    title = "Planning time, certificate and check included (strategy auto, solver imported)"
    return Table.of("random", title, rows, *notes, keys=2)


def _repeated_table(repeated: Sequence[tuple[float, float]]) -> Table:
    rows: list[Row] = []
    for i, name in enumerate(("types", "text")):
        medians = [row[i] for row in repeated]
        median = quantile(medians, 0.5) or 0.0
        about: Row = {"given as": name, "problems": len(medians), "median us": median}
        rows.append({**about, "worst us": most(medians), "aim": met(median < REPEATED_AIM_US)})
    title = f"A repeated request (medians of {REPEATS}; aim < {REPEATED_AIM_US:.0f} us)"
    return Table.of("repeated", title, rows)
