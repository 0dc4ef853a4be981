"""Which moves an expression would make, before any of them happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from redist.errors import RequestError
from redist.pgas.watch.dry_run import DryRun
from redist.pgas.watch.seam import through, traffic
from redist.pgas.watch.trace import Trace


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
    dry_run = DryRun(traffic())
    with through(dry_run), np.errstate(all="ignore"):
        expression()
    return Trace(dry_run.moves)
