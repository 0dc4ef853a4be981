"""Which moves an expression would make, before any of them happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from redist.errors import RequestError
from redist.pgas.watch.call_site import Line
from redist.pgas.watch.dry_run import PRETENDING
from redist.pgas.watch.trace import Move, Trace
from redist.plan.plan import Plan


def explain(expression: Callable[[], Any]) -> Trace:
    """**Collective.** The moves of an expression, with modelled time and bytes; nothing moves.

    In an SPMD program::

        print(redist.explain(lambda: a @ b.to("{}, {x}")))

    The typing rules run as they would, and NumPy on the tiles, but what has moved holds made-up
    values: so give an expression without effects, whose moves do not depend on the data. Its result
    is thrown away. ``received_bytes`` is that of the busiest rank.
    """
    if not callable(expression):
        raise RequestError(
            f"cannot explain {type(expression).__name__}: it is computed already; "
            "give a function, as in redist.explain(lambda: a @ b)"
        )
    noted = _Noted()
    PRETENDING.append(noted)
    try:
        with np.errstate(all="ignore"):
            expression()
    finally:
        PRETENDING.remove(noted)
    return Trace(noted.moves)


class _Noted:
    def __init__(self) -> None:
        self.moves: list[Move] = []

    def note(self, plan: Plan, line: Line) -> None:
        """There would be a move."""
        most = sum(step.received_range_bytes[1] for step in plan.steps)
        self.moves.append(Move.of(plan, line, most))

    def saw(self, move: Move) -> None:
        """There would be an exchange without a plan."""
        self.moves.append(move)
