"""Say how a program keeps its limit: peak, least limit, modelled time, what leaves and comes when."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from redist.draw.lanes import Lane, LaneBar, draw_lanes
from redist.pgas.programs.limited.fit import FittedProgram
from redist.program.memory_graph import MemoryGraph
from redist.runtime.lanes.loop import LaneSpan
from redist.text.columns import table
from redist.text.svg import nth_colour, write_if
from redist.text.units import format_bytes, format_seconds, format_time

# What the lanes of a run within a limit did, and when: as a table and as a picture.


LANES = ("compute", "moves", "load", "store")
COPIES = ("load", "store")
CURVE = 40
"""The height of the curve of a rank's memory."""
MEMORY = "#8d99a6"


def covered_s(intervals: Iterable[tuple[float, float]]) -> float:
    """The time within intervals, once where they overlap.

    >>> covered_s([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    total, reached = 0.0, 0.0
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def live_bytes(graph: MemoryGraph, spans: Iterable[LaneSpan]) -> tuple[tuple[float, int], ...]:
    """When what lies in the first place changes, and how many bytes are there from then on.

    Tiles count from the beginning of the vertex that makes them until they are freed, staging while its
    task runs. What takes no time is done when all before it is.
    """
    begins = {span.vertex: span.begin_s for span in spans}
    ends = {span.vertex: span.end_s for span in spans}
    changes: dict[float, int] = {0.0: 0}

    def change(at_s: float, n_bytes: int) -> None:
        changes[at_s] = changes.get(at_s, 0) + n_bytes

    def held(residencies: Iterable[int]) -> int:
        return sum(graph.bytes_of(r) for r in residencies if graph.residencies[r].place == 0)

    change(0.0, held(range(graph.n_given)))
    for number, vertex in enumerate(graph.vertices):
        done = ends.setdefault(number, max((ends[one] for one in vertex.before), default=0.0))
        begun = begins.get(number, done)
        staging = 0 if vertex.task is None else graph.tasks.tasks[vertex.task].staging_bytes
        change(begun, held(vertex.makes) + staging)
        change(done, -held(vertex.ends) - staging)
    times = sorted(changes)
    return tuple(zip(times, accumulate(changes[at_s] for at_s in times), strict=True))


def tile_names(graph: MemoryGraph) -> list[str]:
    """Every tile in words: its own name, or the task that makes it.

    >>> from redist.program.tasks import MemoryTask, MemoryTile, TaskList
    >>> tiles = MemoryTile(8, begins=(0,), name="argument 0"), MemoryTile(8)
    >>> tile_names(MemoryGraph(TaskList(tiles, (MemoryTask("exp (a.py:3)", (0,), (1,)),)), (), (), 0, ()))
    ['argument 0', 'the result of exp (a.py:3)']
    """
    makers = {tile: task.name for task in graph.tasks.tasks for tile in task.makes}
    return [
        tile.name or f"the result of {makers.get(number, '?')}"
        for number, tile in enumerate(graph.tasks.tiles)
    ]


def what_ran(graph: MemoryGraph, span: LaneSpan, names: Sequence[str]) -> str:
    """A span in words: the name of its task, or that of the tile which it copies."""
    vertex = graph.vertices[span.vertex]
    if vertex.task is not None:
        return graph.tasks.tasks[vertex.task].name
    return f"{vertex.kind} {names[graph.residencies[vertex.reads[0]].tile]}"


@dataclass(frozen=True, slots=True)
class NamedSpan:
    """What ran on a lane, from when to when, in seconds since the run began."""

    lane: str
    what: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class RunTimeline:
    """A run of a program within a limit: ``print`` gives a table, :meth:`svg` a picture; ``result`` is its.

    ``ranks`` has for every rank what ran on its lanes: ``compute``, ``moves``, ``load`` and ``store``; while
    the first two did nothing and something was loaded or stored, it was ``waiting``. ``memory`` has when the
    bytes that its plan counts changed, and what they were from then on.

    >>> spans = NamedSpan("compute", "matmul (a.py:3)", 0, 2.0), NamedSpan("load", "load w", 0.5, 1.5)
    >>> print(RunTimeline((spans,)))
    rank  lane     times  busy   of the run  longest
    0     compute  1      2 s    100 %       matmul (a.py:3), 2 s
    0     load     1      1 s    50 %        load w, 1 s
    0     waiting         0 s    0 %         for memory
    >>> picture = RunTimeline((spans,), memory=(((0.0, 64), (1.5, 32)),), limit_bytes=128).svg()
    >>> [text in picture for text in ("rank 0 load", "load w, 1 s", "64 B at most", "of 128 B")]
    [True, True, True, True]
    """

    ranks: tuple[tuple[NamedSpan, ...], ...]
    result: Any = field(default=None, compare=False)
    memory: tuple[tuple[tuple[float, int], ...], ...] = ()
    limit_bytes: int | None = None

    @property
    def seconds(self) -> float:
        """The time from the beginning of the run to its end."""
        return max((one.end_s for spans in self.ranks for one in spans), default=0.0)

    def busy_s(self, rank: int, lane: str) -> float:
        """How long a lane of a rank was busy."""
        return sum(one.end_s - one.begin_s for one in self.ranks[rank] if one.lane == lane)

    def waited_s(self, rank: int) -> float:
        """The time that a rank lost waiting for memory: it did nothing else while it loaded or stored."""
        copies = [(s.begin_s, s.end_s) for s in self.ranks[rank] if s.lane in COPIES]
        work = [(s.begin_s, s.end_s) for s in self.ranks[rank] if s.lane not in COPIES]
        return covered_s([*copies, *work]) - covered_s(work)

    def __str__(self) -> str:
        rows = [("rank", "lane", "times", "busy", "of the run", "longest")]
        for rank, spans in enumerate(self.ranks):
            for lane in LANES:
                here = [one for one in spans if one.lane == lane]
                if not here:
                    continue
                longest = max(here, key=lambda one: one.end_s - one.begin_s)
                busy = self.busy_s(rank, lane)
                share = _percent(busy / max(self.seconds, 1e-12))
                took = format_seconds(longest.end_s - longest.begin_s)
                words = f"{longest.what}, {took}"
                rows.append((str(rank), lane, str(len(here)), format_seconds(busy), share, words))
            if any(one.lane in COPIES for one in spans):
                waited = self.waited_s(rank)
                share = _percent(waited / max(self.seconds, 1e-12))
                rows.append((str(rank), "waiting", "", format_seconds(waited), share, "for memory"))
        return "\n".join(table(rows, left=range(6), gap="  "))

    def svg(self, file: str | os.PathLike[str] | None = None) -> str:
        """**Local.** Draw it: a row for every lane of every rank, and a curve of its memory.

        Returns SVG, and writes it to ``file`` too.
        """
        return write_if(_draw(self), file)


def named_spans(graph: MemoryGraph, spans: Sequence[LaneSpan]) -> tuple[NamedSpan, ...]:
    """**Local.** The spans of a run in words, in the order in which they began."""
    found, names = sorted(spans, key=lambda one: one.begin_s), tile_names(graph)
    return tuple(NamedSpan(s.lane, what_ran(graph, s, names), s.begin_s, s.end_s) for s in found)


def _draw(run: RunTimeline) -> str:
    """A run as the text of an SVG file."""
    lanes = []
    for rank, spans in enumerate(run.ranks):
        for number, lane in enumerate(LANES):
            colour = nth_colour(number, len(LANES))
            bars = [_bar(one, colour) for one in spans if one.lane == lane]
            lanes += [Lane(f"rank {rank} {lane}", bars)] if bars else []
    for rank, changes in enumerate(run.memory):
        lanes.append(_curve(rank, [*changes, (run.seconds, 0)], run.limit_bytes))
    title = f"{len(run.ranks)} ranks within a memory limit, {format_seconds(run.seconds)}"
    return draw_lanes(title, lanes, run.seconds)


def _bar(one: NamedSpan, colour: str) -> LaneBar:
    took = one.end_s - one.begin_s
    return LaneBar(one.begin_s, took, colour, f"{one.what}, {format_seconds(took)}")


def _curve(rank: int, changes: Sequence[tuple[float, int]], limit_bytes: int | None) -> Lane:
    """The memory of a rank over time, as high as its limit, or as its peak."""
    peak = max(n_bytes for _, n_bytes in changes)
    most = max(1, limit_bytes or peak)
    bars = [
        LaneBar(begin, end - begin, MEMORY, format_bytes(n_bytes), min(1.0, n_bytes / most))
        for (begin, n_bytes), (end, _) in pairwise(changes)
        if n_bytes and end > begin
    ]
    remarks = [f"{format_bytes(peak)} at most"]
    remarks += [f"of {format_bytes(limit_bytes)}"] if limit_bytes else []
    return Lane(f"rank {rank} memory", bars, CURVE, remarks)


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
        f"modelled   {format_time(fitted.clocked.time_ps)}, {format_time(alone)} without a limit; "
        f"{_percent(fitted.clocked.waited_share)} lost waiting for memory",
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
