"""A program within a limit as a value for people and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from redist.graph.nodes import ProgramGraph
from redist.layout.array_type import ArrayType
from redist.offload.compile import modelled_ps
from redist.pgas.programs.graphing import graph_of
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.pgas.programs.limited.report import memory_lines
from redist.pgas.programs.prepare import fates_of
from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.seam import plan_move
from redist.plan.plan import Plan


def limited_graph(
    program: LimitedProgram, given: Sequence[Tiled], unlimited_bytes: int = 0
) -> tuple[ProgramGraph, dict[str, Any]]:
    """**Collective.** The graph of a program with how it keeps its limit, and what a plan has of that.

    ``unlimited_bytes`` are those that its tiles take without a limit, if that is known.
    """
    arrays = [*given, *(one.array for one in program.outside)]
    fitted, least = program.agreed.look(arrays)

    def plan(source: ArrayType, target: ArrayType) -> Plan:
        return plan_move(source, target, program.comm, None)

    tidied, tasks = program.tidied, program.tasks
    words = fates_of(program.captured, tidied.firsts, tasks, tasks, ()).words
    types = [array.type for array in arrays]
    graph = graph_of(program.name, program.captured, types, plan, words)
    lines = memory_lines(fitted, program.limit.limit_bytes, least, unlimited_bytes)
    moved = fitted.graph.moved_bytes
    found = {
        "certificate": fitted.certificate,
        "least_bytes": least,
        "time_ps": modelled_ps(fitted.graph),
        "peak_bytes": fitted.bound_bytes,
        "unlimited_bytes": unlimited_bytes,
        "loaded_bytes": moved["load"],
        "stored_bytes": moved["store"],
    }
    return replace(graph, memory=lines), found
