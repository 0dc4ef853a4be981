"""Run a memory graph on this rank, alone or together with the other ranks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redist.errors import RedistError, RequestError, SpillError, TransferError
from redist.program.memory_graph import MemoryGraph
from redist.program.tasks import digest_of
from redist.runtime.lanes.loop import LaneLoop, LaneSpan, nothing
from redist.runtime.lanes.residencies import LiveTiles, MakeTile
from redist.runtime.lanes.stores import TileStore
from redist.runtime.lanes.vertex_table import LanePolicy, TaskWork, VertexTable
from redist.runtime.ranks.agreement import gather_answers, raise_unless_agreed
from redist.runtime.ranks.meeting import Met
from redist.runtime.ranks.tokens import Token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, world_of

# Run memory graphs on all ranks of a communicator: they all succeed, or all have an error.


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


@dataclass(frozen=True, slots=True)
class GraphOutcome:
    """What a run leaves: arrays (place 0) and spaces of stores by tile and place, and what it took."""

    held: Mapping[tuple[int, int], Any]
    peak_bytes: tuple[int, ...]
    spans: tuple[LaneSpan, ...]


class GraphRunner:
    """A memory graph with what it needs to run, any number of times.

    ``work`` has what each task does, ``stores`` the places behind the first, ``make_tile(number)`` gives a
    new array for a tile, in C order; threads call it too, one at a time.

    >>> import numpy as np
    >>> from redist.program.memory_graph import Credit, MemoryPlace, Residency, Vertex
    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> tiles = MemoryTile(8, begins=(0,), ends=(0,), is_fixed=True), MemoryTile(8, ends=(0,))
    >>> tasks = TaskList(tiles, (MemoryTask("double", (0,), (1,)),))
    >>> double = Vertex("run", 0, reads=(0,), makes=(1,), credits=(Credit(None, 0, 8),))
    >>> places = (MemoryPlace("memory", 16),)
    >>> graph = MemoryGraph(tasks, places, (Residency(0, 0), Residency(1, 0)), 1, (double,))
    >>> work = TaskWork(lambda x, out: np.multiply(x, 2, out))
    >>> runner = GraphRunner(graph, [work], (), lambda _: np.empty(2, "f4"))
    >>> outcome = runner.run({(0, 0): np.array([1, 2], "f4")})
    >>> outcome.held[1, 0], outcome.peak_bytes
    (array([2., 4.], dtype=float32), (16,))
    """

    def __init__(
        self,
        graph: MemoryGraph,
        work: Sequence[TaskWork],
        stores: Sequence[TileStore],
        make_tile: MakeTile,
        *,
        policy: LanePolicy | None = None,
        n_threads: int = 1,
    ) -> None:
        self.graph, self.policy = graph, policy or LanePolicy()
        self._work = work
        self._stores, self._make_tile = tuple(stores), make_tile
        self._n_threads = max(1, n_threads)
        self._table = VertexTable(graph, work, stores, self.policy)

    def choosing(self, policy: LanePolicy) -> GraphRunner:
        """**Local.** The same graph, run by another policy."""
        return GraphRunner(
            self.graph, self._work, self._stores, self._make_tile, policy=policy,
            n_threads=self._n_threads,
        )  # fmt: skip

    def reserve(self) -> None:
        """**Local.** Make sure that stores have room for what they hold at once, as the graph is listed.

        What is given there already is not reserved again. Raises :class:`~redist.errors.SpillError`.
        """
        for store, n_bytes in zip(self._stores, stored_bytes(self.graph)[1:], strict=True):
            store.reserve(n_bytes)

    def run(
        self,
        given: Mapping[tuple[int, int], Any],
        *,
        checks: bool = False,
        records: bool = False,
        awake: bool = False,
        look: Callable[[], None] = nothing,
        told: Callable[[BaseException], None] = nothing,
        said: Callable[[int, int], None] = nothing,
    ) -> GraphOutcome:
        """**Local**, unless tasks are collective. Run the graph on what is given, by tile and place.

        An array that is given is changed only by tasks that update it; a space that is given belongs to the
        graph, which may end it. If a vertex fails, what is under way is waited for, all that was made is
        freed, and its error is raised; of several, that of the first vertex in the list. ``look`` is called
        now and then while this rank waits, and may raise; ``told`` hears of an error before anything waits.
        ``said`` hears after every task how many vertices of how many are done. ``checks`` asserts limits and
        operands at every vertex, ``records`` notes when each ran. ``awake`` asks without a pause whether what
        was started is done: work on a GPU is followed sooner by the next, and a core is busy.
        """
        tiles = LiveTiles(self.graph, self._stores, self._make_tile, given, checks)
        spans: list[LaneSpan] | None = [] if records else None
        loop = LaneLoop(
            self._table, tiles, self.policy, self._n_threads, look, awake, spans, said
        )  # fmt: skip
        try:
            loop.run(told)
            outcome = GraphOutcome(tiles.results(), tuple(tiles.peak_bytes), tuple(spans or ()))
            tiles.held.clear()  # whoever looks on still knows the run, and must not keep its arrays
            return outcome
        except BaseException:
            tiles.give_up()
            raise


def stored_bytes(graph: MemoryGraph) -> list[int]:
    """By place, the most bytes that the graph adds to what is given there, in the order of its list."""
    live = [0] * len(graph.places)
    most = list(live)
    for vertex in graph.vertices:
        for one in vertex.makes:
            place = graph.residencies[one].place
            live[place] += graph.bytes_of(one)
            most[place] = max(most[place], live[place])
        for one in vertex.ends:
            live[graph.residencies[one].place] -= graph.bytes_of(one)
    return most
