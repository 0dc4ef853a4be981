"""Does a plan that costs less take less? Random plans of workloads, modelled and measured, inside an MPI job.

``mpirun -n 4 python -m bench.layouts.ranking``; ``python -m bench ranking`` starts it on emulated hosts.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.layouts.cases import workloads
from bench.layouts.workload import Workload, cut_text
from bench.report.timing import repeated
from redist import RedistError, pgas
from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.layouts import plan_layouts
from redist.arrange.strategies import DeviceCosts
from redist.measure.computing import measure_computing
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch
from redist.pgas.programs.capture import capture
from redist.pgas.programs.planning.plan_calls import ProgramCosts, make_graph
from redist.pgas.programs.planning.plan_program import program_ps, types_of
from redist.pgas.programs.planning.recorder import CallRecorder
from redist.pgas.programs.prepare import ProgramOptions, prepare, tidy_up
from redist.runtime.ranks.links import find_topology
from redist.runtime.ranks.world import world_of

NAMES = ("block, small", "chain, skewed", "MTTKRP-03-M0", "MLP, backward")
LARGE_BYTES = 2**24
"""So much is said to move, so that links are measured first."""


def main() -> int:
    """Measure and write. **Collective over all ranks of the job.**"""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    comm = MPI.COMM_WORLD
    device = measure_computing(comm)["cpu"]
    rows = []
    for workload in workloads():
        if workload.name in NAMES and args.only in workload.name:
            rows.append(rank_plans(comm, workload, device, args.plans, args.repeat))
            if comm.rank == 0:
                said = {k: v for k, v in rows[-1].items() if k != "plans"}
                print(f"bench ranking: {said}", file=sys.stderr, flush=True)
    if comm.rank == 0 and args.json is not None:
        data = {"mpi": mpi_name(), "ranks": comm.size, "rows": rows}
        args.json.write_text(json.dumps(data), encoding="utf-8")
    return 0


def rank_plans(
    comm: MPI.Intracomm, workload: Workload, device: DeviceCosts, n_plans: int, repeat: int
) -> dict[str, Any]:
    """Modelled and measured times of random plans of a workload, the best one among them. **Collective.**"""
    arrays = [
        pgas.asarray(values, type=cut_text(cut, values.ndim))
        for values, cut in zip(workload.make(), workload.cuts, strict=True)
    ]
    function, recorder = workload.of(pgas), CallRecorder()
    capture(function, arrays, {}, arrays, arranger=recorder)
    topology = find_topology(world_of(comm), None, LARGE_BYTES).topology
    costs = ProgramCosts.of(types_of(recorder), topology, device)
    tiles = [x.tile for x in arrays]
    modelled: list[int] = []
    works: list[Callable[[int], None]] = []
    for plan in random_plans(recorder, costs, n_plans):
        steered = CallRecorder(recorder, plan)
        captured = capture(recorder.again, arrays, {}, arrays, arranger=steered)
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


if __name__ == "__main__":
    sys.exit(main())
