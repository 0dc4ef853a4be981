"""What the lanes of a run within a limit did, and when: as a table and as a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redist.draw.colours import nth_colour
from redist.pgas.watch.timeline import ticks
from redist.program.memory_graph import MemoryGraph
from redist.runtime.lanes.timeline import LaneSpan, tile_names, what_ran
from redist.text.columns import table
from redist.text.svg import Figure, document, line, rect, text, with_title
from redist.text.units import format_time

LANES = ("compute", "moves", "load", "store")
WIDTH, LEFT, LANE, BAR, TOP = 960, 130, 20, 15, 44


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

    ``ranks`` has for every rank what ran on its lanes: ``compute``, ``moves``, ``load`` and ``store``.

    >>> spans = NamedSpan("compute", "matmul (a.py:3)", 0, 2.0), NamedSpan("load", "load w", 0.5, 1.5)
    >>> print(RunTimeline((spans,)))
    rank  lane     times  busy   of the run  longest
    0     compute  1      2 s    100 %       matmul (a.py:3), 2 s
    0     load     1      1 s    50 %        load w, 1 s
    """

    ranks: tuple[tuple[NamedSpan, ...], ...]
    result: Any = field(default=None, compare=False)

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

    def svg(self, file: str | os.PathLike[str]) -> None:
        """**Local.** Draw it: a row for every lane of every rank."""
        with open(file, "w", encoding="utf-8") as out:
            out.write(draw_lanes(self.ranks))


def named_spans(graph: MemoryGraph, spans: Sequence[LaneSpan]) -> tuple[NamedSpan, ...]:
    """**Local.** The spans of a run in words, in the order in which they began."""
    found, names = sorted(spans, key=lambda one: one.begin_s), tile_names(graph)
    return tuple(NamedSpan(s.lane, what_ran(graph, s, names), s.begin_s, s.end_s) for s in found)


def draw_lanes(ranks: Sequence[Sequence[NamedSpan]]) -> str:
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
    bottom = TOP + len(rows) * LANE
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
    for at_s in ticks(seconds):
        x = LEFT + at_s * scale
        body.append(line(x, TOP - 6, x, bottom, "grid"))
        anchor = "end" if x > WIDTH - 60 else "middle"
        body.append(text(x, bottom + 12, _time(at_s), 10, "soft", anchor))
    return document(Figure(WIDTH, bottom + 24, "\n".join(body)), title)


def _time(seconds: float) -> str:
    return format_time(round(seconds * 1e12))
