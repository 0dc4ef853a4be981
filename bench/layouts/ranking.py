"""The job of ``python -m bench ranking``: random plans of workloads, modelled and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.layouts.cases import workloads
from bench.layouts.race import arrays_of
from bench.layouts.workload import Workload
from bench.report.figures import met, repeated
from bench.report.job import say
from bench.report.jobs import found_by, on_hosts, on_ranks
from bench.report.report import Row, Table, Tables
from redist import RedistError, pgas
from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.layouts import plan_layouts
from redist.measure.computing import measure_computing
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch
from redist.pgas.programs.capture import capture
from redist.pgas.programs.planning.plan_calls import ProgramCosts, make_graph
from redist.pgas.programs.planning.plan_program import program_ps, types_of
from redist.pgas.programs.planning.recorder import CallRecorder
from redist.pgas.programs.prepare import ProgramOptions, prepare, tidy_up
from redist.plan.rates import DeviceCosts
from redist.runtime.ranks.links import find_topology
from redist.runtime.ranks.world import world_of
from tests.cluster.hosts import why_no_cluster

NAMES = ("block, small", "chain, skewed", "MTTKRP-03-M0", "MLP, backward")
LARGE_BYTES = 2**24
"""So much is said to move, so that links are measured first."""
HOSTS, RATE_MBIT = 4, 1000.0
CORRELATION_AIM, BEST_AIM = 0.9, 1.1


def run(n: int = 50, only: str = "") -> Tables:
    """Rank ``n`` plans (50 at most) of each workload on 4 emulated hosts, and on 4 ranks of one node.

    only: workloads whose name has this.
    """
    job, asked = "bench.layouts.ranking", {"plans": min(n, 50), "only": only}
    tables = []
    if not why_no_cluster():
        tables.append(_table(found_by(on_hosts(HOSTS, 1, RATE_MBIT), job, **asked), True))
    return (*tables, _table(found_by(on_ranks(HOSTS), job, **asked), False))


def _table(data: dict[str, Any], on_hosts: bool) -> Table:
    rows: list[Row] = []
    for row in data["rows"]:
        modelled, measured = zip(*row["plans"], strict=True)
        alike, best = row["correlation"], row["chosen_over_best"]
        aims = (met(alike >= CORRELATION_AIM), met(best <= BEST_AIM)) if on_hosts else ("-", "-")
        rows.append(
            {
                "workload": row["name"], "size": row["what"], "plans": len(measured),
                "chosen, modelled ms": 1e3 * modelled[0], "chosen, measured ms": 1e3 * measured[0],
                "slowest ms": 1e3 * max(measured), "rank correlation": alike, "at least 0.9": aims[0],
                "chosen / best": best, "at most 1.1": aims[1],
            }
        )  # fmt: skip
    where = f"{HOSTS} ranks of one node"
    if on_hosts:
        where = f"{HOSTS} emulated hosts of 1 rank, links of {RATE_MBIT:g} Mbit/s"
    notes = (
        "plans: the best by the model, and others in which some values are pinned to random types",
        "computing measured in the same job, links as a job measures them; medians of 5 in turn",
    )
    title = f"Plans of layouts, modelled and measured, {where}, {data['mpi']}"
    return Table.of("hosts" if on_hosts else "node", title, rows, *notes)


def measure(plans: int, repeat: int = 5, only: str = "") -> dict[str, Any]:
    """Rank so many plans of each workload. **Collective over all ranks of the job.**"""
    comm, rows = MPI.COMM_WORLD, []
    device = measure_computing(comm)["cpu"]
    for workload in workloads():
        if workload.name in NAMES and only in workload.name:
            rows.append(rank_plans(comm, workload, device, plans, repeat))
            say(f"ranking: { {k: v for k, v in rows[-1].items() if k != 'plans'} }")
    return {"mpi": mpi_name(), "ranks": comm.size, "rows": rows}


def rank_plans(
    comm: MPI.Intracomm, workload: Workload, device: DeviceCosts, n_plans: int, repeat: int
) -> dict[str, Any]:
    """Modelled and measured times of random plans of a workload, the best one among them. **Collective.**"""
    arrays, recorder = arrays_of(workload), CallRecorder()
    capture(workload.of(pgas), arrays, arrays, arranger=recorder)
    topology = find_topology(world_of(comm), None, LARGE_BYTES).topology
    costs = ProgramCosts.of(types_of(recorder), topology, device)
    tiles = [x.tile for x in arrays]
    modelled: list[int] = []
    works: list[Callable[[int], None]] = []
    for plan in random_plans(recorder, costs, n_plans):
        steered = CallRecorder(recorder, plan)
        captured = capture(recorder.again, arrays, arrays, arranger=steered)
        tidied = tidy_up(captured, comm, cache=False)
        ready = prepare(tidied, comm, ProgramOptions(prefetch=False, cache=False))
        modelled.append(program_ps(tidied, steered, costs))
        works.append(repeated(ready.replay, *tiles))
    times = Stopwatch.on(comm).in_turn(works, repeat)
    measured = [one.median_s for one in times]
    return {
        "name": workload.name,
        "what": workload.what,
        "correlation": rank_correlation(modelled, measured),
        "chosen_over_best": measured[0] / min(measured),
        "plans": list(zip([ps * 1e-12 for ps in modelled], measured, strict=True)),
    }


def random_plans(recorder: CallRecorder, costs: ProgramCosts, n: int) -> list[LayoutPlan]:
    """The best plan, then others: each the best of those in which some values have random types."""
    graph, pins = make_graph(recorder, (), costs)
    book, rng = costs.book, Random(5)
    links = book.topology

    def planned(more: dict[int, Any]) -> LayoutPlan:
        return plan_layouts(graph, book.mesh, book.parts, links, costs.device, {**pins, **more})

    found = [planned({})]
    made = [value for value in graph.values if value >= 0]
    tries = 0
    while len(found) < n and tries < 20 * n:
        tries += 1
        more = {}
        for value in rng.sample(made, rng.randint(1, min(4, len(made)))):
            domain = book.domain(graph.shape_of(value), graph.dtype_of(value), None)
            more[value] = domain.type(rng.randrange(len(domain)))
        try:
            plan = planned(more)
        except RedistError:
            continue
        if all(plan.wanted != one.wanted or plan.made != one.made for one in found):
            found.append(plan)
    return found


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """How alike two orders are, from -1 to 1 (Spearman); equal values share their ranks.

    >>> rank_correlation([1, 2, 3], [10, 20, 30]), rank_correlation([1, 2, 3], [3, 2, 1])
    (1.0, -1.0)
    """
    ranks = []
    for values in (a, b):
        _, place, n = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(n) - (n - 1) / 2.0)[place])
    return float(np.round(np.corrcoef(ranks[0], ranks[1])[0, 1], 4))
