"""Say what was decided on the layouts of a program: the plan as a value for people and files."""

from __future__ import annotations

import math

from redist.arrange.ein_graph import EinNode
from redist.arrange.lower_bounds import bounds_beside
from redist.graph.nodes import ProgramGraph
from redist.graph.program_plan import PlannedRow, ProgramPlan
from redist.pgas.programs.planning.plan_calls import ProgramCosts, ein_node
from redist.pgas.programs.planning.plan_program import DecidedLayouts
from redist.pgas.programs.planning.recorder import ProgramCall
from redist.pgas.programs.prepare import AS_WRITTEN, PLANNED
from redist.text.units import ceil_div


def make_program_plan(graph: ProgramGraph, decided: DecidedLayouts | None) -> ProgramPlan:
    """**Local.** The layouts of a program, with its graph and all figures that are known."""
    if decided is None:
        return ProgramPlan(graph, AS_WRITTEN, "as asked for", "", (), 0, 0, 0, 0, 0, 0)
    plan, costs = decided.plan, decided.costs
    rows = tuple(_row(graph, one, costs) for one in decided.recorder.calls)
    layouts = AS_WRITTEN if decided.why else PLANNED
    if plan is None or costs is None:
        return ProgramPlan(graph, layouts, decided.why, "", rows, 0, 0, 0, 0, 0, 0)
    floor = bounds_beside(plan, costs.book.topology, costs.device)
    return ProgramPlan(
        graph, layouts, decided.why, plan.search, rows, decided.time_ps, decided.written_ps,
        plan.bound_ps, floor.time_ps, plan.compute_ps, plan.peak_bytes,
    )  # fmt: skip


def _even_ps(node: EinNode, one: ProgramCall, work_ps: int, n_devices: int) -> int:
    """What a call would take if its points were shared evenly by all devices."""
    parts = dict.fromkeys(node.labels, 1)
    for term, t in zip(node.terms, one.wanted, strict=True):
        for label, cut in zip(term, t.cuts, strict=True):
            parts[label] = cut
    busiest = math.prod(ceil_div(node.sizes[label], n) for label, n in parts.items())
    return work_ps * node.n_elems(node.labels) // max(1, busiest * n_devices)


def _row(graph: ProgramGraph, one: ProgramCall, costs: ProgramCosts | None) -> PlannedRow:
    node = graph.nodes[one.node] if one.node < len(graph.nodes) else None
    work = even = 0
    if costs is not None:
        work = costs.work_ps(one)
        form = ein_node(one)
        even = 0 if form is None else _even_ps(form, one, work, costs.book.mesh.n_devices)
    return PlannedRow(
        one.node, one.call.name, "" if node is None else node.line, tuple(map(str, one.wanted)),
        tuple(map(str, one.made)), work, even,
    )  # fmt: skip
