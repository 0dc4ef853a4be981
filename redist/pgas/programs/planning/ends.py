"""Where a program wants its arguments, if they could lie anywhere: once, or round after round of a loop."""

from __future__ import annotations

from collections.abc import Sequence

from redist.errors import ArgumentError, RequestError
from redist.layout.array_type import ArrayType
from redist.pgas.programs.agree import union_of
from redist.pgas.programs.capture import Capture
from redist.pgas.programs.planning.plan_calls import plan_calls
from redist.pgas.programs.planning.plan_program import costs_of
from redist.pgas.programs.planning.recorder import CallRecorder, calls_to_leave, written_elsewhere
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.world import Comm


def wanted_types(
    captured: Capture,
    recorder: CallRecorder,
    arrays: Sequence[Tiled],
    comm: Comm,
    goes_round: bool = False,
) -> list[ArrayType] | None:
    """**Collective.** The types in which the program finds its arguments best; None if that is not known.

    If it ``goes_round``, its results are its arguments of the next round, in order, and what it takes to
    bring them there counts.
    """
    written = written_elsewhere(captured.tasks, captured.inputs)
    left = set(union_of(comm, sorted(calls_to_leave(recorder.calls, written)[0])))
    numbers = [recorder.number_of(x) for x in arrays]
    types = [x.type for x in arrays]
    free = [n for n in numbers if n is not None and n < 0]
    loops: dict[int, int] = {}
    if goes_round:
        ends = recorder.results
        if len(ends) != len(numbers) or recorder.result_types != [
            (t.shape, t.dtype) for t in types
        ]:
            raise ArgumentError("cannot join the ends of a program: its results are no such state")
        loops = {
            end: number
            for end, number in zip(ends, numbers, strict=True)
            if end is not None and end >= 0 and number is not None
        }
    said = ""
    try:
        plan = plan_calls(recorder, left, costs_of(recorder, comm), free, loops)
        for at, number in enumerate(numbers):
            if number is not None and number < 0:
                types[at] = plan.inputs[~number]
        said = "; ".join(map(str, types))
    except RequestError:
        said = ""
    return types if union_of(comm, [said]) == [said] and said else None
