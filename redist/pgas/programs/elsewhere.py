"""Explain a program for ranks that are not there, in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redist.graph.nodes import ProgramGraph
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.pgas.ghosts.pretended import PretendedRanks, pretended_array
from redist.pgas.programs.capture import capture
from redist.pgas.programs.graphing import graph_of
from redist.pgas.programs.tidy import share_equal
from redist.plan.plan import Plan
from redist.plan.topology import FLAT, Topology
from redist.planner import synthesize


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
    ranks: Any = PretendedRanks(max(mesh.ranks) + 1, min(mesh.ranks))
    arrays = [pretended_array(t, ranks) for t in types]
    captured = capture(function, arrays, {}, arrays, comm=ranks)

    def plan(source: ArrayType, target: ArrayType) -> Plan:
        return synthesize(source, target, topology=topology or FLAT)

    _, firsts = share_equal(captured.tasks, sorted(captured.kept), captured.roots)
    moves = [task for task in captured.tasks if task.move is not None]
    fates = [
        "" if first == number else f"made once, for call {moves[first].node}"
        for number, first in enumerate(firsts)
    ]
    return graph_of(name, captured, types, plan, fates)
