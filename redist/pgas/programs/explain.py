"""Which moves an expression would make, before any of them happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redist.errors import RequestError
from redist.pgas.ghosts.traffic import BatchMover, Exchanger, TileMover
from redist.pgas.programs.capture import Capture, capture
from redist.pgas.programs.outside import find_outside
from redist.pgas.watch.seam import plan_move
from redist.pgas.watch.trace import Move, Trace


def explain(expression: Callable[[], Any]) -> Trace:
    """**Collective.** The moves of an expression, with modelled time and bytes; nothing moves.

    In an SPMD program::

        print(redist.explain(lambda: a @ b.to("{}, {x}")))

    The typing rules run as they would, on arrays without values: nothing is computed, allocated or
    changed, so arrays may be of any size, and updates are explained too. A number that is read is made
    up, and how many elements a mask has is refused. The result is thrown away. ``received_bytes``
    is that of the busiest rank.
    """
    if not callable(expression):
        raise RequestError(
            f"cannot explain {type(expression).__name__}: it is computed already; "
            "give a function, as in redist.explain(lambda: a @ b)"
        )
    arrays = [one.array for one in find_outside(expression).arrays]
    return Trace(moves_of(capture(expression, (), {}, arrays, explains=True)))


def moves_of(captured: Capture) -> list[Move]:
    """**Collective** if a plan must be made. The moves and exchanges of a captured program, planned."""
    return [_planned(mover) for mover in movers_of(captured)]


def movers_of(captured: Capture) -> list[TileMover | Exchanger]:
    """**Local.** What moves in a captured program, in order; of batches each move."""
    found: list[TileMover | Exchanger] = []
    for task in captured.tasks:
        match task.function:
            case TileMover() | Exchanger():
                found.append(task.function)
            case BatchMover(movers=movers):
                found += movers
    return found


def _planned(mover: TileMover | Exchanger) -> Move:
    if isinstance(mover, TileMover):
        move = mover.move
        plan = plan_move(move.source, move.target, mover.comm, None)
        most = sum(step.received_range_bytes[1] for step in plan.steps)
        return Move.of(plan, move.line, most)
    what, source, target = mover.exchange
    return Move(mover.line, str(source), str(target), what, mover.expected_bytes())
