"""Say how a program keeps its limit: peak, least limit, modelled time, what leaves and comes when."""

from __future__ import annotations

from redist.offload.compile import modelled_ps
from redist.pgas.programs.limited.fit import FittedProgram
from redist.program.memory_graph import MemoryGraph
from redist.runtime.lanes.timeline import tile_names
from redist.text.units import format_bytes, format_time

MOST_EVENTS = 30
"""This many loads and stores are listed."""


def memory_lines(
    fitted: FittedProgram, limit_bytes: int, least_bytes: int, unlimited_bytes: int = 0
) -> tuple[str, ...]:
    """**Local.** How this rank keeps the limit, line by line; ``least_bytes`` would do on all ranks.

    ``unlimited_bytes`` are those that tiles take without a limit, if that is known.
    """
    graph = fitted.graph
    budget = graph.places[0].limit_bytes or 0
    others = limit_bytes - budget
    alone = sum(task.time_ps for task in graph.tasks.tasks)
    shown = fitted.certificate
    before = f"{format_bytes(unlimited_bytes)} without a limit; " if unlimited_bytes else ""
    lines = [
        f"memory     {before}within {format_bytes(limit_bytes)}, {format_bytes(others)} of it held by "
        f"other arrays: at most {format_bytes(fitted.bound_bytes)}, {shown.verdict} for {shown.scope} "
        f"({shown.method})",
        f"least      limit={least_bytes} ({format_bytes(least_bytes, round_up=True)}) would do",
        f"modelled   {format_time(modelled_ps(graph))}, {format_time(alone)} without a limit",
    ]
    if fitted.away:
        several = len(fitted.away) > 1
        numbers = ", ".join(map(str, sorted(fitted.away)))
        who = f"arguments {numbers} are" if several else f"argument {numbers} is"
        places = sorted({graph.places[place].name for place in fitted.away.values()})
        where = " and ".join("pinned memory" if one == "host" else f"the {one}" for one in places)
        lines.append(f"put away   {who} kept in {where}")
    cut = fitted.fitter.cut
    if cut is not None:
        blocks = [len(ranges) for ranges in cut.cuts.ranges.values()]
        said = f"{min(blocks)} to {max(blocks)}" if min(blocks) < max(blocks) else str(blocks[0])
        lines.append(f"in blocks  {len(blocks)} arrays of {said} blocks each")
    events = list_events(graph)
    if events:
        moved = graph.moved_bytes
        behind = [place.name for place in graph.places[1:]]
        lines.append(
            f"{' and '.join(behind):<10} {format_bytes(moved['load'])} loaded, "
            f"{format_bytes(moved['store'])} stored"
        )
        lines += [f"  {event}" for event in events[:MOST_EVENTS]]
        left = len(events) - MOST_EVENTS
        lines += [f"  and {left} more"] if left > 0 else []
    return tuple(lines)


def list_events(graph: MemoryGraph) -> list[str]:
    """**Local.** Loads and stores in the order of the list, each with the task that comes next."""
    names = tile_names(graph)
    out: list[str] = []
    waiting: list[str] = []
    for vertex in graph.vertices:
        if vertex.kind in ("load", "store"):
            tile = graph.residencies[vertex.reads[0]].tile
            waiting.append(
                f"{vertex.kind} {names[tile]}, {format_bytes(graph.bytes_of(vertex.reads[0]))}"
            )
        elif vertex.task is not None and waiting:
            out += [f"{one}, before {graph.tasks.tasks[vertex.task].name}" for one in waiting]
            waiting.clear()
    return out + [f"{one}, at the end" for one in waiting]
