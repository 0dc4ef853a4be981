"""The moves that an expression would make, before any of them happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from redist.errors import RequestError
from redist.graph.nodes import ProgramGraph
from redist.graph.program_plan import ProgramPlan
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.tiles import tile_shapes
from redist.pgas.ghosts.stand_ins import PretendedRanks, pretend
from redist.pgas.ghosts.tape import TaskKind
from redist.pgas.ghosts.traffic import Exchanger, TileMover
from redist.pgas.global_array import Array
from redist.pgas.programs.capture import Capture, capture
from redist.pgas.programs.compiled import graph_of
from redist.pgas.programs.outside import find_outside
from redist.pgas.programs.passes.tidy import MADE_ONCE, share_equal
from redist.pgas.programs.planning.plan_calls import ProgramCosts
from redist.pgas.programs.planning.plan_program import decide_layouts, make_program_plan, types_of
from redist.pgas.programs.planning.recorder import CallRecorder
from redist.pgas.programs.prepare import Tidied, tidy_up
from redist.pgas.tiles.arranging import Arranger
from redist.pgas.watch.seam import plan_move
from redist.pgas.watch.trace import Move, Trace
from redist.plan.plan import Plan
from redist.plan.rates import CPU, FLAT, DeviceCosts
from redist.plan.topology import Topology
from redist.planner import synthesize

# Explain a program for ranks that are not there, in one process; or plan its layouts.


ALONE: Any = PretendedRanks(1)
"""Nobody to agree with: what the first rank sees holds for all."""


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
    captured = capture(function, arrays, arrays, comm=ranks)
    return _graph(name, captured, types, topology or FLAT)


def plan_elsewhere(
    name: str,
    function: Callable[..., Any],
    types: Sequence[ArrayType],
    mesh: Mesh,
    topology: Topology | None = None,
    device: DeviceCosts = CPU,
) -> ProgramPlan:
    """**Local.** The best layouts of a function for arguments of these types on such a mesh."""
    links = topology or FLAT
    arrays, ranks = _pretended(types, mesh)
    recorder = CallRecorder()

    def again(arranger: Arranger) -> Capture:
        return capture(recorder.again, arrays, arrays, comm=ranks, arranger=arranger)

    def find_costs(recorder: CallRecorder) -> ProgramCosts:
        return ProgramCosts.of(types_of(recorder), links, device)

    written = _tidy(capture(function, arrays, arrays, comm=ranks, arranger=recorder))
    found = decide_layouts(written, recorder, again, _tidy, find_costs, ALONE)
    return make_program_plan(_graph(name, found.tidied.captured, types, links), found)


def _pretended(types: Sequence[ArrayType], mesh: Mesh) -> tuple[list[Any], Any]:
    """Arrays of any size without memory, only to be captured with, and their ranks."""
    ranks: Any = PretendedRanks(max(mesh.ranks) + 1, min(mesh.ranks))
    arrays = [Array(t, ranks, None) for t in types]
    for array in arrays:
        shape = tile_shapes(array.type).get(ranks.rank)
        array.tile = None if shape is None else pretend(shape, array.dtype)
    return arrays, ranks


def _tidy(captured: Capture) -> Tidied:
    """A capture without what it need not do, as one rank sees it."""
    return tidy_up(captured, ALONE, cache=False)


def _graph(
    name: str, captured: Capture, types: Sequence[ArrayType], topology: Topology
) -> ProgramGraph:
    def plan(source: ArrayType, target: ArrayType) -> Plan:
        return synthesize(source, target, topology=topology)

    _, firsts = share_equal(captured.tasks, sorted(captured.kept), captured.roots)
    moves = [task for task in captured.tasks if task.kind in MADE_ONCE]
    fates = [
        "" if first == number else f"made once, for call {moves[first].node}"
        for number, first in enumerate(firsts)
        if moves[number].kind is TaskKind.MOVE
    ]
    return graph_of(name, captured, types, plan, fates)


@overload
def explain(expression: Callable[[], Any], /) -> Trace: ...


@overload
def explain(
    expression: Callable[..., Any],
    /,
    *types: str | ArrayType,
    mesh: Mesh,
    topology: Topology | None = None,
) -> ProgramGraph: ...


def explain(
    expression: Callable[..., Any],
    /,
    *types: str | ArrayType,
    mesh: Mesh | None = None,
    topology: Topology | None = None,
) -> Trace | ProgramGraph:
    """**Collective.** Return the moves of an expression, with modelled time and bytes; nothing moves.

    In an SPMD program::

        print(redist.explain(lambda: a @ b.to("{}, {x}")))

    The typing rules run as they would, on arrays without values: nothing is computed, allocated or
    changed, so arrays may be of any size, and updates are explained too. A number that is read is made
    up, and anything that needs the number of elements in a mask is refused. The result is thrown away.
    ``received_bytes`` is that of the busiest rank.

    With a mesh, the function is explained for arguments of these types on devices that need not be
    there, in one process, and **locally**; the result is the graph of its calls:

    >>> import redist
    >>> rows, columns = "f64[1048576{x}, 1048576]", "f64[1048576, 1048576{x}]"
    >>> graph = redist.explain(lambda a, b: a @ b, rows, columns, mesh=redist.Mesh(x=1024))
    >>> len(graph.moves), graph.received_bytes >> 40                # TiB, of arrays of 8 TiB
    (2, 190)
    """
    if not callable(expression):
        raise RequestError(
            f"cannot explain {type(expression).__name__}: it is computed already; "
            "give a function, as in redist.explain(lambda: a @ b)"
        )
    if mesh is not None:
        given = [ArrayType.parse(t, mesh) if isinstance(t, str) else t for t in types]
        name = getattr(expression, "__name__", type(expression).__name__)
        return explain_elsewhere(name, expression, given, mesh, topology)
    if types:
        raise RequestError("cannot explain a function of types without a mesh: say mesh=")
    arrays = [one.array for one in find_outside(expression).arrays]
    return Trace(moves_of(capture(expression, (), arrays, explains=True)))


def moves_of(captured: Capture) -> list[Move]:
    """**Collective** if a plan must be made. The moves and exchanges of a captured program, planned."""
    return [move for task in captured.tasks for move in _planned(task.function)]


def _planned(function: Any) -> Iterator[Move]:
    match function:
        case TileMover(moves=moves, comm=comm):
            for move in moves:
                plan = plan_move(move.source, move.target, comm, None)
                most = sum(step.received_range_bytes[1] for step in plan.steps)
                yield Move.of(plan, move.line, most)
        case Exchanger(exchange=(what, source, target), line=line):
            yield Move(line, str(source), str(target), what, function.expected_bytes())
