"""What the lanes of a run within a limit did, and when: as a table and as a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from redist.draw.colours import nth_colour
from redist.pgas.watch.timeline import ticks
from redist.program.memory_graph import MemoryGraph
from redist.runtime.lanes.timeline import LaneSpan, tile_names, what_ran
from redist.text.columns import table
from redist.text.svg import Figure, document, line, rect, text, with_title, write_if
from redist.text.units import format_bytes, format_time

LANES = ("compute", "moves", "load", "store")
WIDTH, LEFT, LANE, BAR, TOP = 960, 130, 20, 15, 44
CURVE = 40
"""The height of the curve of a rank's memory."""
MEMORY = "#8d99a6"


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

    ``ranks`` has for every rank what ran on its lanes: ``compute``, ``moves``, ``load`` and ``store``;
    ``memory`` when the bytes that its plan counts changed, and what they were from then on.

    >>> spans = NamedSpan("compute", "matmul (a.py:3)", 0, 2.0), NamedSpan("load", "load w", 0.5, 1.5)
    >>> print(RunTimeline((spans,)))
    rank  lane     times  busy   of the run  longest
    0     compute  1      2 s    100 %       matmul (a.py:3), 2 s
    0     load     1      1 s    50 %        load w, 1 s
    """

    ranks: tuple[tuple[NamedSpan, ...], ...]
    result: Any = field(default=None, compare=False)
    memory: tuple[tuple[tuple[float, int], ...], ...] = ()
    limit_bytes: int | None = None

    @property
    def seconds(self) -> float:
        """From the beginning of the run to the end of what ended last."""
        return max((one.end_s for spans in self.ranks for one in spans), default=0.0)

    def busy_s(self, rank: int, lane: str) -> float:
        """How long a lane of a rank worked."""
        return sum(one.end_s - one.begin_s for one in self.ranks[rank] if one.lane == lane)

    def __str__(self) -> str:
        rows = [("rank", "lane", "times", "busy", "of the run", "longest")]
        for rank, spans in enumerate(self.ranks):
            for lane in LANES:
                here = [one for one in spans if one.lane == lane]
                if not here:
                    continue
                longest = max(here, key=lambda one: one.end_s - one.begin_s)
                busy = self.busy_s(rank, lane)
                share = f"{busy / max(self.seconds, 1e-12):.0%}".replace("%", " %")
                took = _time(longest.end_s - longest.begin_s)
                words = f"{longest.what}, {took}"
                rows.append((str(rank), lane, str(len(here)), _time(busy), share, words))
        return "\n".join(table(rows, left=range(6), gap="  "))

    def svg(self, file: str | os.PathLike[str] | None = None) -> str:
        """**Local.** Draw it: a row for every lane of every rank, and a curve of its memory.

        Returns SVG, and writes it to ``file`` too.
        """
        return write_if(draw_lanes(self.ranks, self.memory, self.limit_bytes), file)


def named_spans(graph: MemoryGraph, spans: Sequence[LaneSpan]) -> tuple[NamedSpan, ...]:
    """**Local.** The spans of a run in words, in the order in which they began."""
    found, names = sorted(spans, key=lambda one: one.begin_s), tile_names(graph)
    return tuple(NamedSpan(s.lane, what_ran(graph, s, names), s.begin_s, s.end_s) for s in found)


def draw_lanes(
    ranks: Sequence[Sequence[NamedSpan]],
    memory: Sequence[Sequence[tuple[float, int]]] = (),
    limit_bytes: int | None = None,
) -> str:
    """The lanes of all ranks as the text of an SVG file.

    >>> "rank 0 load" in draw_lanes([[NamedSpan("load", "load argument 3", 0.0, 0.1)]])
    True
    """
    seconds = max((one.end_s for spans in ranks for one in spans), default=0.0)
    scale = (WIDTH - LEFT - 20) / max(seconds, 1e-9)
    rows = [
        (rank, lane)
        for rank, spans in enumerate(ranks)
        for lane in LANES
        if any(one.lane == lane for one in spans)
    ]
    curves = TOP + len(rows) * LANE
    bottom = curves + len(memory) * (CURVE + 8)
    title = f"{len(ranks)} ranks within a memory limit, {_time(seconds)}"
    body = [text(16, 24, title, 13)]
    for at, (rank, lane) in enumerate(rows):
        y = TOP + at * LANE
        colour = nth_colour(LANES.index(lane), len(LANES))
        body.append(text(16, y + 12, f"rank {rank} {lane}", 11))
        body.append(rect(LEFT, y, WIDTH - LEFT - 20, BAR, "void", style="stroke:none"))
        for one in ranks[rank]:
            if one.lane == lane:
                took = one.end_s - one.begin_s
                bar = rect(LEFT + one.begin_s * scale, y, max(took * scale, 0.5), BAR, fill=colour)
                body.append(with_title(bar, f"{one.what}, {_time(took)}"))
    for rank, changes in enumerate(memory):
        y = curves + rank * (CURVE + 8)
        body += _curve(y, rank, [*changes, (seconds, 0)], scale, limit_bytes)
    for at_s in ticks(seconds):
        x = LEFT + at_s * scale
        body.append(line(x, TOP - 6, x, bottom, "grid"))
        anchor = "end" if x > WIDTH - 60 else "middle"
        body.append(text(x, bottom + 12, _time(at_s), 10, "soft", anchor))
    body.append(
        text(16, bottom + 30, "a bar says what it is when the pointer is on it", 10, "soft")
    )
    return document(Figure(WIDTH, bottom + 42, "\n".join(body)), title)


def _curve(
    y: float,
    rank: int,
    changes: Sequence[tuple[float, int]],
    scale: float,
    limit_bytes: int | None,
) -> list[str]:
    """The memory of a rank over time, as high as its limit, or as its peak."""
    peak = max(n_bytes for _, n_bytes in changes)
    most = max(1, limit_bytes or peak)
    body = [
        text(16, y + 12, f"rank {rank} memory", 11),
        text(16, y + 24, f"{format_bytes(peak)} at most", 9, "soft"),
        *([text(16, y + 35, f"of {format_bytes(limit_bytes)}", 9, "soft")] if limit_bytes else []),
        rect(LEFT, y, WIDTH - LEFT - 20, CURVE, "void", style="stroke:none"),
    ]
    for (begin, n_bytes), (end, _) in pairwise(changes):
        if n_bytes and end > begin:
            high = CURVE * min(1.0, n_bytes / most)
            wide = (end - begin) * scale
            bar = rect(LEFT + begin * scale, y + CURVE - high, wide, high, fill=MEMORY)
            body.append(with_title(bar, format_bytes(n_bytes)))
    return body


def _time(seconds: float) -> str:
    return format_time(round(seconds * 1e12))
