"""Explain a program for ranks that are not there, in one process; or plan its layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redist.arrange.strategies import BUILT_IN_CPU, DeviceCosts
from redist.errors import RequestError
from redist.graph.nodes import ProgramGraph
from redist.graph.program_plan import ProgramPlan
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.pgas.ghosts.pretended import PretendedRanks, pretended_array
from redist.pgas.programs.capture import Capture, capture
from redist.pgas.programs.graphing import graph_of
from redist.pgas.programs.plan_calls import ProgramCosts, plan_calls, planned_calls
from redist.pgas.programs.plan_program import DecidedLayouts, program_ps, types_of
from redist.pgas.programs.plan_report import make_program_plan
from redist.pgas.programs.prepare import Tidied, tidy_up
from redist.pgas.programs.recorder import CallRecorder, calls_to_leave, written_elsewhere
from redist.pgas.programs.tidy import share_equal
from redist.plan.plan import Plan
from redist.plan.topology import FLAT, Topology
from redist.planner import synthesize


def explain_elsewhere(
    name: str,
    function: Callable[..., Any],
    types: Sequence[ArrayType],
    mesh: Mesh,
    topology: Topology | None = None,
) -> ProgramGraph:
    """**Local.** The graph of a function for arguments of these types, as the first rank would have it.

    Arrays may be of any size and meshes of any: nothing is allocated, and no rank is needed.
    """
    arrays, ranks = _pretended(types, mesh)
    captured = capture(function, arrays, {}, arrays, comm=ranks)
    return _graph(name, captured, types, topology or FLAT)


def plan_elsewhere(
    name: str,
    function: Callable[..., Any],
    types: Sequence[ArrayType],
    mesh: Mesh,
    topology: Topology | None = None,
    device: DeviceCosts = BUILT_IN_CPU,
) -> ProgramPlan:
    """**Local.** The best layouts of a function for arguments of these types on such a mesh."""
    links = topology or FLAT
    arrays, ranks = _pretended(types, mesh)
    recorder = CallRecorder()
    written = _tidy(capture(function, arrays, {}, arrays, comm=ranks, arranger=recorder))
    here = written.captured
    left, held = calls_to_leave(recorder.calls, written_elsewhere(here.tasks, here.inputs))
    found = DecidedLayouts(written, recorder, "")
    try:
        costs = ProgramCosts.of(types_of(recorder), links, device)
        plan = plan_calls(recorder, left, costs)
    except RequestError as problem:
        found = DecidedLayouts(written, recorder, str(problem))
    else:
        steered = CallRecorder(planned_calls(recorder, plan, left), held, recorder.decisions)
        tidied = _tidy(capture(function, arrays, {}, arrays, comm=ranks, arranger=steered))
        times = program_ps(tidied, steered, costs), program_ps(written, recorder, costs)
        found = DecidedLayouts(tidied, steered, "", plan, costs, *times)
        if times[0] >= times[1]:
            why = "no layouts are better"
            found = DecidedLayouts(written, recorder, why, plan, costs, times[1], times[1])
    graph = _graph(name, found.tidied.captured, types, links)
    return make_program_plan(graph, found)


def _pretended(types: Sequence[ArrayType], mesh: Mesh) -> tuple[list[Any], Any]:
    ranks: Any = PretendedRanks(max(mesh.ranks) + 1, min(mesh.ranks))
    return [pretended_array(t, ranks) for t in types], ranks


def _tidy(captured: Capture) -> Tidied:
    """A capture without what it need not do, as one rank sees it."""
    alone: Any = PretendedRanks(1)
    return tidy_up(captured, alone, cache=False)


def _graph(
    name: str, captured: Capture, types: Sequence[ArrayType], topology: Topology
) -> ProgramGraph:
    def plan(source: ArrayType, target: ArrayType) -> Plan:
        return synthesize(source, target, topology=topology)

    _, firsts = share_equal(captured.tasks, sorted(captured.kept), captured.roots)
    moves = [task for task in captured.tasks if task.move is not None]
    fates = [
        "" if first == number else f"made once, for call {moves[first].node}"
        for number, first in enumerate(firsts)
    ]
    return graph_of(name, captured, types, plan, fates)
