"""Decide on the layouts of a captured program: plan them, do calls again as planned, take what costs less."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from redist.arrange.ein_graph import EinNode
from redist.arrange.judge_layouts import judge_layouts
from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.lower_bounds import bounds_beside
from redist.errors import CaptureError, NoPlanError, RequestError
from redist.graph.nodes import ProgramGraph
from redist.graph.program_plan import PlannedRow, ProgramPlan
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.tape import COLLECTIVE
from redist.pgas.programs.capture import Capture, agree_on_nodes, ends_in, most_of, union_of
from redist.pgas.programs.handing_over import how_ends_lie, memory_of_several
from redist.pgas.programs.passes.order import join_moves, needed_before
from redist.pgas.programs.planning.plan_calls import ProgramCosts, ein_node, plan_calls
from redist.pgas.programs.planning.recorder import (
    CallRecorder,
    ProgramCall,
    calls_to_leave,
    written_elsewhere,
)
from redist.pgas.programs.prepare import AS_WRITTEN, PLANNED, Tidied
from redist.pgas.tiles.arranging import Arranger
from redist.plan.rates import device_costs
from redist.runtime.ranks.links import find_topology
from redist.runtime.ranks.world import Comm, world_of
from redist.text.units import ceil_div, format_bytes

# Say what was decided on the layouts of a program: the plan as a value for people and files.


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


@dataclass(frozen=True, slots=True, eq=False)
class DecidedLayouts:
    """A program in the layouts that were decided on: planned, or as written, and ``why`` then.

    ``plan`` is what was planned, used or not; times are modelled, 0 where they are not known. ``fresh_ps`` is
    that of a call that moves all it has to, ``kept_ps`` that of one which finds copies of moved arguments.
    """

    tidied: Tidied
    recorder: CallRecorder
    why: str
    plan: LayoutPlan | None = None
    costs: ProgramCosts | None = None
    time_ps: int = 0
    written_ps: int = 0
    fresh_ps: int = 0
    kept_ps: int = 0


def decide_layouts(
    written: Tidied,
    recorder: CallRecorder,
    again: Callable[[Arranger], Capture],
    tidy: Callable[[Capture], Tidied],
    find_costs: Callable[[CallRecorder], ProgramCosts],
    comm: Comm,
    steady: Collection[int] = (),
    limit_bytes: int | None = None,
    as_written: str = "",
) -> DecidedLayouts:
    """**Collective.** The program in the best layouts, or as written if nothing moves or none are better.

    ``again`` captures its calls once more. Arguments in ``steady`` stay as they are in calls to come: what is
    moved of them is moved once. With ``as_written``, which says why, none are planned.
    """
    if not any(task.kind in COLLECTIVE for task in written.tasks):
        return DecidedLayouts(written, recorder, "nothing moves")
    try:
        costs = find_costs(recorder)
    except RequestError as problem:  # of several meshes: all ranks see that
        return DecidedLayouts(written, recorder, str(problem))
    if as_written or recorder.odd:
        return DecidedLayouts(written, recorder, as_written or recorder.odd, costs=costs)
    here = written.captured
    left, held = left_alone_by(here, recorder, comm)
    planned: tuple[LayoutPlan, CallRecorder, Capture] | None = None
    said = ""
    try:
        free = [number for number, at in recorder.begins.items() if at in steady]
        plan = plan_calls(recorder, left, costs, free, limit_bytes=limit_bytes)
        steered = CallRecorder(recorder, plan, left, held)
        planned = plan, steered, again(steered)
        said = repr((plan.wanted, plan.made, list(map(plan.home, range(len(plan.made))))))
    except NoPlanError as problem:
        why = str(problem)
        if (
            problem.least_bytes
        ):  # what lies in a file may still leave room for the layouts as written
            need = format_bytes(problem.least_bytes)
            why = f"planned layouts would need {need}, with all arguments in memory"
    except (RequestError, CaptureError) as problem:
        why = str(problem)
    if len(union_of(comm, [said])) > 1:
        return DecidedLayouts(written, recorder, "ranks found different plans")
    fresh, kept = _times(written, recorder, costs, comm)
    as_is = DecidedLayouts(written, recorder, "", costs=costs, fresh_ps=fresh, kept_ps=kept)
    if planned is None:
        return replace(as_is, why=why)
    plan, steered, there = planned
    agree_on_nodes("the plan of a program", comm, there.nodes, None)
    if union_of(comm, [how_ends_lie(there) != how_ends_lie(here)])[-1]:
        why = "results would not lie in the memory of each other or of arguments as they do"
        return replace(as_is, why=why)
    tidied = tidy(there)
    times = _times(tidied, steered, costs, comm)
    at = 1 if len(steady) > 0 else 0
    time_ps, written_ps = times[at], (fresh, kept)[at]
    if time_ps >= written_ps:
        why = "no layouts were found that are better"
        return replace(as_is, why=why, plan=plan, time_ps=written_ps, written_ps=written_ps)
    judge_layouts(plan, costs.device)
    return DecidedLayouts(tidied, steered, "", plan, costs, time_ps, written_ps, *times)


def wanted_types(
    captured: Capture,
    recorder: CallRecorder,
    types: Sequence[ArrayType],
    comm: Comm,
    goes_round: bool = False,
) -> list[ArrayType] | None:
    """**Collective.** The types in which the program finds its arguments best; these if that is not known.

    Arrays that it updates in place stay. If it ``goes_round``, its results are its arguments of the next
    round, in order, and what it takes to bring them there counts; None if they cannot be.
    """
    left, held = left_alone_by(captured, recorder, comm)
    stay = {recorder.calls[n].operands[k] for n, k in held}
    inputs = range(len(recorder.sources))
    free = {
        at: ~k for k in inputs if (at := recorder.begins.get(~k)) is not None and ~k not in stay
    }
    loops: dict[int, int] = {}
    if goes_round:
        ends = [(end.type.shape, end.type.dtype) for end in ends_in(captured.result)]
        if ends != [(t.shape, t.dtype) for t in types]:
            return None
        loops = {
            end: free[at]
            for at, end in enumerate(recorder.results)
            if end is not None and end >= 0 and at in free
        }
    found, said = list(types), ""
    with suppress(RequestError):
        plan = plan_calls(recorder, left, costs_of(recorder, comm), free.values(), loops)
        found = [plan.inputs[~free[at]] if at in free else t for at, t in enumerate(types)]
        said = "; ".join(map(str, found))
    return found if union_of(comm, [said]) == [said] and said else list(types)


def left_alone_by(
    captured: Capture, recorder: CallRecorder, comm: Comm
) -> tuple[set[int], set[tuple[int, int]]]:
    """**Collective.** The calls that no plan changes, and their operands that no plan moves."""
    fixed = written_elsewhere(captured.tasks, captured.inputs) | memory_of_several(captured)
    left, held = calls_to_leave(recorder.calls, fixed)
    return set(union_of(comm, sorted(left))), set(union_of(comm, sorted(held)))


def _times(
    tidied: Tidied, recorder: CallRecorder, costs: ProgramCosts, comm: Comm
) -> tuple[int, int]:
    """**Collective.** The modelled times of a call that moves all, and of one that finds copies."""
    own = [program_ps(tidied, recorder, costs, is_steady) for is_steady in (False, True)]
    fresh_ps, kept_ps = most_of(comm, own)
    return fresh_ps, kept_ps


def costs_of(recorder: CallRecorder, comm: Comm) -> ProgramCosts:
    """**Collective.** What moves and work cost on this machine."""
    types = types_of(recorder)
    n_bytes = max((t.tile_bytes for t in types), default=0)
    topology = find_topology(world_of(comm), None, n_bytes).topology
    on_device = any(is_gpu for one in recorder.calls for is_gpu, _ in one.kinds)
    return ProgramCosts.of(types, topology, device_costs(on_device))


def types_of(recorder: CallRecorder) -> list[ArrayType]:
    """The types that calls of a program were given, were done in, and made."""
    return [t for one in recorder.calls for t in (*one.types, *one.wanted, *one.made)]


def program_ps(
    tidied: Tidied, recorder: CallRecorder, costs: ProgramCosts, is_steady: bool = False
) -> int:
    """**Local.** The modelled time of a program: its moves, without those kept if so, work, and the rest.

    That is what finishes results which are pending.
    """
    roots = tidied.captured.roots
    tasks = tidied.repeated if is_steady else list(tidied.tasks)
    tasks = join_moves(tasks, roots, needed_before(tasks, roots), 0)
    ends = {id(end): end for end in ends_in(tidied.captured.result) if end.argument is None}
    later = sum(costs.finish_ps(end.type) for end in ends.values())
    return costs.tasks_ps(tasks) + sum(map(costs.work_ps, recorder.calls)) + later
