"""Decide on the layouts of a captured program: plan them, capture again as planned, take what costs less."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from redist.arrange.ein_graph import AskedNode, EinGraph, WayTaken
from redist.arrange.judge_layouts import judge_layouts
from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.strategies import BUILT_IN, BUILT_IN_CPU
from redist.errors import CaptureError, NoPlanError, RequestError
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.tape import COLLECTIVE
from redist.pgas.programs.agree import agree_on_nodes, most_of, union_of
from redist.pgas.programs.capture import Capture, ends_in
from redist.pgas.programs.handing_over import how_ends_lie, memory_of_several
from redist.pgas.programs.passes.together import join_moves, needed_before
from redist.pgas.programs.planning.plan_calls import ProgramCosts, plan_calls, planned_calls
from redist.pgas.programs.planning.recorder import CallRecorder, calls_to_leave, written_elsewhere
from redist.pgas.programs.prepare import Tidied
from redist.pgas.tiles.arranging import Arranger, Types
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.links import find_topology
from redist.runtime.ranks.world import Comm, world_of
from redist.text.units import format_bytes


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

    def without_arrays(self) -> DecidedLayouts:
        """**Local.** The same without the arrays of the call that it was made for: they may go."""
        plan = self.plan
        if plan is not None:
            nodes = tuple(
                replace(node, ask=_is_decided) if isinstance(node, AskedNode) else node
                for node in plan.graph.nodes
            )
            plan = replace(plan, graph=EinGraph(plan.graph.inputs, nodes))
        return replace(self, recorder=self.recorder.without_arrays(), plan=plan)


def _is_decided(types: Types) -> WayTaken | None:
    raise RequestError("cannot ask a call of a program whose layouts are decided")


def decide_layouts(
    written: Tidied,
    recorder: CallRecorder,
    capture_again: Callable[[Arranger], Capture],
    tidy: Callable[[Capture], Tidied],
    find_costs: Callable[[CallRecorder], ProgramCosts],
    comm: Comm,
    steady: Sequence[Tiled] = (),
    limit_bytes: int | None = None,
    as_written: str = "",
) -> DecidedLayouts:
    """**Collective.** The program in the best layouts, or as written if nothing moves or none are better.

    Arguments in ``steady`` stay as they are in calls to come: what is moved of them is moved once. With
    ``as_written``, which says why, none are planned.
    """
    if not any(task.kind in COLLECTIVE for task in written.tasks):
        return DecidedLayouts(written, recorder, "nothing moves")
    try:
        costs = find_costs(recorder)
    except RequestError as problem:  # of several meshes: all ranks see that
        return DecidedLayouts(written, recorder, str(problem))
    if as_written:
        return DecidedLayouts(written, recorder, as_written, costs=costs)
    here = written.captured
    fixed = written_elsewhere(here.tasks, here.inputs) | memory_of_several(here)
    left, held = calls_to_leave(recorder.calls, fixed)
    left, held = set(union_of(comm, sorted(left))), set(union_of(comm, sorted(held)))
    planned: tuple[LayoutPlan, CallRecorder, Capture] | None = None
    said = ""
    try:
        free = recorder.sources_of(steady)
        plan = plan_calls(recorder, left, costs, free, limit_bytes=limit_bytes)
        calls = planned_calls(recorder, plan, left)
        steered = CallRecorder(calls, held, recorder.decisions)
        planned = plan, steered, capture_again(steered)
        said = repr(calls)
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
    plan, steered, again = planned
    agree_on_nodes("the plan of a program", comm, again.nodes, None)
    if union_of(comm, [how_ends_lie(again) != how_ends_lie(here)])[-1]:
        why = "results would not lie in the memory of each other or of arguments as they do"
        return replace(as_is, why=why)
    tidied = tidy(again)
    times = _times(tidied, steered, costs, comm)
    at = 1 if len(steady) > 0 else 0
    time_ps, written_ps = times[at], (fresh, kept)[at]
    if time_ps >= written_ps:
        why = "no layouts were found that are better"
        return replace(as_is, why=why, plan=plan, time_ps=written_ps, written_ps=written_ps)
    judge_layouts(plan, costs.device)
    return DecidedLayouts(tidied, steered, "", plan, costs, time_ps, written_ps, *times)


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
    on_device = any(x._memory.on_device for one in recorder.calls for x in one.call.arrays)
    return ProgramCosts.of(types, topology, BUILT_IN if on_device else BUILT_IN_CPU)


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
