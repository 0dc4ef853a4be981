"""A program within a limit as a value for people and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from redist.graph.nodes import ProgramGraph
from redist.layout.array_type import ArrayType
from redist.pgas.programs.graphing import graph_of
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.pgas.programs.limited.report import memory_lines
from redist.pgas.programs.prepare import fates_of
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.seam import plan_move
from redist.plan.plan import Plan
from redist.program.memory_certificate import MemoryCertificate


def limited_graph(
    program: LimitedProgram, given: Sequence[Tiled]
) -> tuple[ProgramGraph, MemoryCertificate, int]:
    """**Collective.** The graph of a program with how it keeps its limit, what was shown, the least limit."""
    arrays = [*given, *(one.array for one in program.outside)]
    fitted, least = program.agreed.look(arrays)

    def plan(source: ArrayType, target: ArrayType) -> Plan:
        return plan_move(source, target, program.comm, None)

    tidied, tasks = program.tidied, program.tasks
    words = fates_of(program.captured, tidied.firsts, tasks, tasks, ()).words
    types = [array.type for array in arrays]
    graph = graph_of(program.name, program.captured, types, plan, words)
    lines = memory_lines(fitted, program.limit.limit_bytes, least)
    return replace(graph, memory=lines), fitted.certificate, least
