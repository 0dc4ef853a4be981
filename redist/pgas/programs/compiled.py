"""A program of one signature that can run.

Every program goes the same way::

    capture       run the function once, on ghosts: tasks, nodes, values       capture, body
    layouts       plan them, do the calls again as planned                     planning
    tidy          equal tasks once, none that nothing needs                    prepare.tidy_up
    last pass     replay: order, batches, early moves, one function            prepare, replayed
                  or within a limit: a memory graph, fitted and certified      limited

What all have after ``tidy`` is :class:`LaidOut`; what the last pass gives is a :class:`Compiled`. Graph, plan
and timeline are views of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redist.graph.nodes import ProgramGraph
from redist.graph.program_plan import ProgramPlan
from redist.layout.array_type import ArrayType
from redist.pgas.programs.capture import Capture
from redist.pgas.programs.graphing import graph_of
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
        return graph_of(self.name, self.captured, types, plan, *self.fates())

    def plan(self, given: Sequence[Tiled]) -> ProgramPlan:
        """**Collective.** Its layouts as a value."""
        return make_program_plan(self.graph(given), self.decided)
