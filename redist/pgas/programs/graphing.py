"""Make the graph of a captured program: which call needs which, and what became of its moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from redist.graph.nodes import GraphMove, GraphNode, ProgramGraph
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.tape import TaskKind, refs_in
from redist.pgas.ghosts.traffic import BatchMover, Exchanger, TileMover
from redist.pgas.programs.capture import Capture, ends_in
from redist.plan.plan import Plan

Planner = Callable[[ArrayType, ArrayType], Plan]


def graph_of(
    name: str,
    captured: Capture,
    types: Sequence[ArrayType],
    plan: Planner,
    fates: Sequence[str] = (),
    figures: dict[str, int] | None = None,
) -> ProgramGraph:
    """**Local.** The graph of a capture, as this rank sees it; ``types`` are those of its arguments."""
    needs, arguments, makers = _dependencies(captured)
    moves: dict[int, list[GraphMove]] = {}
    said = iter(fates)
    for task in captured.tasks:
        if isinstance(task.function, BatchMover):
            together = [_move(mover, plan, "with others") for mover in task.function.movers]
            moves.setdefault(task.node, []).extend(together)
        elif isinstance(task.function, (TileMover, Exchanger)):
            fate = next(said, "") if task.kind is TaskKind.MOVE else ""
            moves.setdefault(task.node, []).append(_move(task.function, plan, fate))
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


def _move(mover: TileMover | Exchanger, plan: Planner, fate: str) -> GraphMove:
    if isinstance(mover, TileMover):
        move = mover.move
        found = plan(move.source, move.target)
        steps = ", ".join(step.op for step in found.steps) or "copy"
        ends = str(move.source), str(move.target)
        return GraphMove(*ends, steps, found.received_bytes, found.time_ps, fate)
    what, source, target = mover.exchange
    return GraphMove(str(source), str(target), what, mover.expected_bytes(), 0, fate)
