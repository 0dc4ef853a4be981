"""A program of one signature that can run.

Every program goes the same way::

    capture       run the function once, on ghosts: tasks, nodes, values       capture, body
    layouts       plan them, do the calls again as planned                     planning
    tidy          equal tasks once, none that nothing needs, joins in blocks   prepare.tidy_up
    last pass     replay: order, batches, early moves, one function            prepare, replayed
                  or within a limit: a memory graph, fitted and certified      limited

What all have after ``tidy`` is :class:`LaidOut`; what the last pass gives is a :class:`Compiled`. Graph, plan
and timeline are views of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redist.graph.nodes import GraphMove, GraphNode, ProgramGraph
from redist.graph.program_plan import ProgramPlan
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.tape import MoveOf, TaskKind, refs_in
from redist.pgas.ghosts.traffic import Exchanger
from redist.pgas.programs.capture import Capture, ends_in
from redist.pgas.programs.handing_over import find_aliases
from redist.pgas.programs.outside import Outside
from redist.pgas.programs.planning.plan_program import DecidedLayouts, make_program_plan
from redist.pgas.programs.prepare import Tidied
from redist.pgas.programs.signature import Signature
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.seam import plan_move
from redist.plan.plan import Plan
from redist.runtime.ranks.world import Comm


@dataclass(frozen=True, slots=True, eq=False)
class LaidOut:
    """A captured program in its layouts, without what it need not do; and what its function reaches."""

    name: str
    tidied: Tidied
    decided: DecidedLayouts | None
    """None where layouts are not planned."""
    outside: Outside
    comm: Comm


class Compiled(ABC):
    """A program of one signature, ready for calls."""

    def __init__(self, laid: LaidOut) -> None:
        """**Collective.**"""
        self.name, self.tidied, self.decided = laid.name, laid.tidied, laid.decided
        self.captured: Capture = laid.tidied.captured
        self.comm, self.outside = laid.comm, laid.outside.arrays
        self._still_stands = laid.outside.still_stands
        self._aliases = find_aliases(self.captured, self.comm)

    def arrays(self, given: Sequence[Tiled]) -> list[Tiled]:
        """The arrays of a call, and those that the function reaches."""
        return [*given, *(one.array for one in self.outside)] if self.outside else list(given)

    @abstractmethod
    def serves(self, signature: Signature) -> bool:
        """**Collective** under a limit. Whether it is still the program of such a call."""

    @abstractmethod
    def run(self, given: Sequence[Tiled]) -> Any:
        """**Collective** if anything moves. Run it on the arrays of a call."""

    @abstractmethod
    def fates(self) -> tuple[Sequence[str], dict[str, int]]:
        """What became of every captured move, and figures of what is done."""

    def graph(self, given: Sequence[Tiled]) -> ProgramGraph:
        """**Collective.** It as a value: its calls, and what becomes of their moves."""

        def plan(source: ArrayType, target: ArrayType) -> Plan:
            return plan_move(source, target, self.comm, None)

        types = [array.type for array in self.arrays(given)]
        lists = lists_in_words(self.tidied)
        return graph_of(self.name, self.captured, types, plan, *self.fates(), lists)

    def plan(self, given: Sequence[Tiled]) -> ProgramPlan:
        """**Collective.** Its layouts as a value."""
        return make_program_plan(self.graph(given), self.decided)


# The graph of a captured program: which call needs which, and what became of its moves.


Planner = Callable[[ArrayType, ArrayType], Plan]


def graph_of(
    name: str,
    captured: Capture,
    types: Sequence[ArrayType],
    plan: Planner,
    fates: Sequence[str] = (),
    figures: dict[str, int] | None = None,
    lists: Mapping[int, str] | None = None,
) -> ProgramGraph:
    """**Local.** The graph of a capture, as this rank sees it; ``types`` are those of its arguments."""
    needs, arguments, makers = _dependencies(captured)
    moves: dict[int, list[GraphMove]] = {}
    said = iter(fates)
    for task in captured.tasks:
        if isinstance(task.function, Exchanger):
            fate = "" if task.out is None or not lists else lists.get(task.out, "")
            moves.setdefault(task.node, []).append(_exchange(task.function, fate))
        for move in task.moves:
            fate = next(said, "") if task.kind is TaskKind.MOVE else "with others"
            moves.setdefault(task.node, []).append(_move(move, plan, fate))
    nodes = []
    for number, node in enumerate(captured.nodes):
        made = str(node.types[-1]) if node.types else ""
        nodes.append(
            GraphNode(
                number, node.name, str(node.line), node.line.code, made,
                tuple(sorted(needs.get(number, ()))), tuple(sorted(arguments.get(number, ()))),
                node.updates, tuple(moves.get(number, ())),
            )
        )  # fmt: skip
    ends = [end.tile for end in ends_in(captured.result)]
    results = [makers[tile] for tile in ends if tile is not None and tile in makers]
    mesh = str(types[0].mesh) if types else ""
    return ProgramGraph(
        name, mesh, tuple(map(str, types)), tuple(nodes), tuple(dict.fromkeys(results)),
        figures or {},
    )  # fmt: skip


def _dependencies(
    captured: Capture,
) -> tuple[dict[int, set[int]], dict[int, set[int]], dict[int, int]]:
    """By call: the calls and the arguments that it needs; and by value, the call that makes it."""
    makers: dict[int, int] = {}
    writers: dict[int, int] = {}
    given = {n: i for i, n in enumerate(captured.inputs) if n is not None}
    needs: dict[int, set[int]] = {}
    arguments: dict[int, set[int]] = {}
    for task in captured.tasks:
        for number in refs_in((task.args, task.options)):
            if number in given:
                arguments.setdefault(task.node, set()).add(given[number])
            elif makers.get(number, task.node) != task.node:
                needs.setdefault(task.node, set()).add(makers[number])
        for root in (*task.reads, *task.writes):
            if writers.get(root, task.node) != task.node:
                needs.setdefault(task.node, set()).add(writers[root])
        if task.out is not None:
            makers[task.out] = task.node
            writers.setdefault(task.out, task.node)
        for root in task.writes:
            writers[root] = task.node
    return needs, arguments, makers


def _move(move: MoveOf, plan: Planner, fate: str) -> GraphMove:
    found = plan(move.source, move.target)
    steps = ", ".join(step.op for step in found.steps) or "copy"
    ends = str(move.source), str(move.target)
    return GraphMove(*ends, steps, found.received_bytes, found.time_ps, fate)


def _exchange(exchanger: Exchanger, fate: str) -> GraphMove:
    what, source, target = exchanger.exchange
    return GraphMove(str(source), str(target), what, exchanger.expected_bytes(), 0, fate)


def lists_in_words(tidied: Tidied) -> dict[int, str]:
    """**Local.** What becomes of each inspection, by the value that it gives."""
    left = {task.out: made for task, made in tidied.lists.items()}
    there = {task.out for task in tidied.tasks}
    said: dict[int, str] = {}
    for task in tidied.captured.tasks:
        if task.kind is not TaskKind.INSPECT or task.out is None:
            continue
        if task.out in left:
            names = " and ".join(f"argument {at}" for at in left[task.out].arguments)
            stay = f"while {names} stays" if names else "for all calls"
            said[task.out] = f"inspected once, {stay}"
        else:
            again = task.out in there
            said[task.out] = "inspected in every call" if again else "made once, with an equal one"
    return said
