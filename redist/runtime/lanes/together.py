"""Run memory graphs on all ranks of a communicator: they all succeed, or all have an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from redist.errors import RedistError, RequestError, SpillError, TransferError
from redist.program.memory_graph import MemoryGraph
from redist.program.tasks import digest_of
from redist.runtime.lanes.loop import nothing
from redist.runtime.lanes.run_graph import GraphOutcome, GraphRunner
from redist.runtime.ranks.agreement import gather_answers, raise_unless_agreed
from redist.runtime.ranks.meeting import Met
from redist.runtime.ranks.tokens import Token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, world_of


def make_together(
    comm: Comm, make: Callable[[], GraphRunner], timeout_s: float | None = TIMEOUT_S
) -> GraphRunner:
    """**Collective over** ``comm``. Make a runner on every rank, with room in its stores.

    Graphs may differ between ranks, as tiles do; what meets others must not. If a rank cannot, because its
    disk is full or its moves are others, all raise the same error.
    """
    runner: GraphRunner | None = None
    error: RedistError | None = None
    try:
        runner = make()
        runner.reserve()
    except RedistError as problem:
        error = problem
    except Exception as problem:  # the others must not wait for this rank
        error = SpillError(f"cannot prepare a program: {type(problem).__name__}: {problem}")
        error.__cause__ = problem
    said = None if runner is None else moves_of(runner.graph)
    answers = gather_answers(comm, said, error, timeout_s)
    try:
        raise_unless_agreed("cannot run a program", answers, error)
    except RequestError as problem:
        if any(failed is not None for _, failed, *_ in answers):
            raise SpillError(str(problem)) from error
        raise
    assert runner is not None
    return runner


def moves_of(graph: MemoryGraph) -> str:
    """What a rank says of its graph: the moves in their order, as a number and a digest."""
    names = [
        graph.tasks.tasks[one.task].name
        for number, one in enumerate(graph.vertices)
        if one.task is not None and graph.lane_of(number) == "moves"
    ]
    return f"{len(names)} moves, {digest_of(json.dumps(names))}"


def run_together(
    comm: Comm,
    runner: GraphRunner,
    given: Mapping[tuple[int, int], Any],
    *,
    timeout_s: float | None = TIMEOUT_S,
    checks: bool = False,
    records: bool = False,
    awake: bool = False,
    said: Callable[[int, int], None] = nothing,
) -> GraphOutcome:
    """**Collective over** ``comm``. Run a graph; moves of its tasks go over the same communicator.

    If a vertex fails on one rank, all others raise :class:`~redist.errors.PeerError` with its words, those
    that wait in a move too; as after every failure in the middle, the communicator cannot be used any more.
    """
    world = world_of(comm, timeout_s=timeout_s)
    with world.operation(timeout_s):
        look, told = world.failure.raise_if_any, world.abort_once
        outcome = runner.run(
            given, checks=checks, records=records, awake=awake, look=look, told=told, said=said
        )
        if world.meet(Token.GRAPH_DONE) is Met.DISAGREE:
            raise TransferError("ranks run different programs: all must make one call")
    return outcome
