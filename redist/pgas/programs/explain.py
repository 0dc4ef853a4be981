"""Which moves an expression would make, before any of them happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from redist.errors import RequestError
from redist.graph.nodes import ProgramGraph
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.pgas.ghosts.traffic import Exchanger, TileMover, movers_in
from redist.pgas.programs.capture import Capture, capture
from redist.pgas.programs.elsewhere import explain_elsewhere
from redist.pgas.programs.outside import find_outside
from redist.pgas.watch.seam import plan_move
from redist.pgas.watch.trace import Move, Trace
from redist.plan.topology import Topology


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
    """**Collective.** The moves of an expression, with modelled time and bytes; nothing moves.

    In an SPMD program::

        print(redist.explain(lambda: a @ b.to("{}, {x}")))

    The typing rules run as they would, on arrays without values: nothing is computed, allocated or
    changed, so arrays may be of any size, and updates are explained too. A number that is read is made
    up, and how many elements a mask has is refused. The result is thrown away. ``received_bytes``
    is that of the busiest rank.

    With a mesh, the function is explained for arguments of these types on devices that need not be
    there, in one process, and **locally**; what comes is the graph of its calls:

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
    return Trace(moves_of(capture(expression, (), {}, arrays, explains=True)))


def moves_of(captured: Capture) -> list[Move]:
    """**Collective** if a plan must be made. The moves and exchanges of a captured program, planned."""
    return [_planned(mover) for mover in movers_in(captured.tasks)]


def _planned(mover: TileMover | Exchanger) -> Move:
    if isinstance(mover, TileMover):
        move = mover.move
        plan = plan_move(move.source, move.target, mover.comm, None)
        most = sum(step.received_range_bytes[1] for step in plan.steps)
        return Move.of(plan, move.line, most)
    what, source, target = mover.exchange
    return Move(mover.line, str(source), str(target), what, mover.expected_bytes())
