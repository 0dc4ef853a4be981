"""Decide on the layouts of a captured program: plan them, capture again as planned, take what costs less."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.strategies import BUILT_IN, BUILT_IN_CPU
from redist.errors import CaptureError, RequestError
from redist.pgas.ghosts.tape import COLLECTIVE
from redist.pgas.programs.agree import agree_on_nodes, most_of, union_of
from redist.pgas.programs.capture import Capture, ends_in
from redist.pgas.programs.plan_calls import ProgramCosts, plan_calls, planned_calls
from redist.pgas.programs.prepare import Tidied
from redist.pgas.programs.recorder import CallRecorder, calls_to_leave, written_elsewhere
from redist.pgas.tiles.arranging import Arranger
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.links import find_topology
from redist.runtime.ranks.world import Comm, world_of


@dataclass(frozen=True, slots=True, eq=False)
class PlannedProgram:
    """A program captured in planned layouts, and what it costs; as written it costs more."""

    tidied: Tidied
    recorder: CallRecorder
    plan: LayoutPlan
    time_ps: int
    written_ps: int


def plan_program(
    written: Tidied,
    recorder: CallRecorder,
    capture_again: Callable[[Arranger], Capture],
    tidy: Callable[[Capture], Tidied],
    comm: Comm,
    steady: Sequence[Tiled] = (),
) -> PlannedProgram | None:
    """**Collective.** The program in the best layouts; None if it moves nothing, or is no better for them.

    Arguments in ``steady`` stay as they are in calls to come: what is moved of them is moved once.
    """
    if not any(task.kind in COLLECTIVE for task in written.tasks):
        return None
    try:
        costs = costs_of(recorder, comm)
    except RequestError:  # of several meshes: all ranks see that
        return None
    here = written.captured
    left, held = calls_to_leave(recorder.calls, written_elsewhere(here.tasks, here.inputs))
    left, held = set(union_of(comm, sorted(left))), set(union_of(comm, sorted(held)))
    steered: CallRecorder | None = None
    again: Capture | None = None
    said = ""
    try:
        plan = plan_calls(recorder, left, costs, recorder.sources_of(steady))
        planned = planned_calls(recorder, plan, left)
        said = repr(planned)
        steered = CallRecorder(planned, held, recorder.decisions)
        again = capture_again(steered)
    except (RequestError, CaptureError):
        said = ""
    if len(union_of(comm, [said])) > 1 or steered is None or again is None:
        return None
    agree_on_nodes("the plan of a program", comm, again.nodes, None)
    tidied, is_steady = tidy(again), len(steady) > 0
    own = [
        program_ps(tidied, steered, costs, is_steady),
        program_ps(written, recorder, costs, is_steady),
    ]
    time_ps, written_ps = most_of(comm, own)
    if time_ps >= written_ps:
        return None
    return PlannedProgram(tidied, steered, plan, time_ps, written_ps)


def costs_of(recorder: CallRecorder, comm: Comm) -> ProgramCosts:
    """**Collective.** What moves and work cost on this machine."""
    types = [t for one in recorder.calls for t in (*one.wanted, *one.made)]
    n_bytes = max((t.tile_bytes for t in types), default=0)
    topology = find_topology(world_of(comm), None, n_bytes).topology
    on_device = any(x._memory.on_device for one in recorder.calls for x in one.call.arrays)
    return ProgramCosts.of(types, topology, BUILT_IN if on_device else BUILT_IN_CPU)


def program_ps(
    tidied: Tidied, recorder: CallRecorder, costs: ProgramCosts, is_steady: bool = False
) -> int:
    """**Local.** The modelled time of a program: its moves, without those kept if so, work, and the rest.

    That is what finishes results which are pending.
    """
    tasks = tidied.repeated if is_steady else tidied.tasks
    ends = {id(end): end for end in ends_in(tidied.captured.result) if end.argument is None}
    later = sum(costs.finish_ps(end.type) for end in ends.values())
    return costs.tasks_ps(tasks) + sum(map(costs.work_ps, recorder.calls)) + later
