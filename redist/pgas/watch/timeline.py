"""Draw a trace: a lane for every rank, a bar for every move, a colour for every line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from redist.draw.colours import nth_colour
from redist.text.svg import Figure, document, line, rect, text, with_title
from redist.text.units import format_bytes, format_time

PLANNING = "#b8bcc2"
"""The colour of time in which nothing moves yet."""
WIDTH, LEFT, LANE, BAR, TOP = 960, 70, 26, 18, 44


@dataclass(frozen=True, slots=True)
class Bar:
    """A move on one rank."""

    start_s: float
    seconds: float
    site: str
    types: str
    steps: str
    received_bytes: int
    planning_s: float = 0.0
    """How much of the seconds went by before the data moved."""


def draw(lanes: Sequence[Sequence[Bar]]) -> str:
    """Draw the lanes of all ranks as the text of an SVG file.

    A move that several ranks make counts once.

    >>> "rank 1" in draw([[], [Bar(1.0, 0.5, "heat.py:7", "f32[4{x}] -> f32[4]", "all_gather", 8)]])
    True
    """
    bars = [bar for lane in lanes for bar in lane]
    start = min((bar.start_s for bar in bars), default=0.0)
    end = max((bar.start_s + bar.seconds for bar in bars), default=start)
    scale = (WIDTH - LEFT - 20) / max(end - start, 1e-9)
    sites = list(dict.fromkeys(bar.site for bar in bars))
    colours = {site: nth_colour(place, len(sites)) for place, site in enumerate(sites)}
    bottom = TOP + len(lanes) * LANE
    height = bottom + 34 + 18 * (len(sites) + any(bar.planning_s for bar in bars))
    n_bytes = sum(bar.received_bytes for bar in bars)
    moves = max(map(len, lanes), default=0)
    title = (
        f"{moves} move{'' if moves == 1 else 's'} on {len(lanes)} ranks, "
        f"{format_bytes(n_bytes)} received by all, "
        f"{_time(end - start)} from the first to the last"
    )
    body = [text(16, 24, title, 13)]
    for rank, lane in enumerate(lanes):
        y = TOP + rank * LANE
        body.append(text(16, y + 14, f"rank {rank}", 11))
        body.append(rect(LEFT, y, WIDTH - LEFT - 20, BAR, "void", style="stroke:none"))
        body += [_bar(bar, LEFT + (bar.start_s - start) * scale, y, scale, colours) for bar in lane]
    for at in ticks(end - start):
        x = LEFT + at * scale
        body.append(line(x, TOP - 6, x, bottom, "grid"))
        anchor = "end" if x > WIDTH - 60 else "middle"
        body.append(text(x, bottom + 12, _time(at), 10, "soft", anchor))
    for place, site in enumerate(sites):
        y = bottom + 34 + 18 * place
        here = next(bar for bar in bars if bar.site == site)
        took = max(_sums(lanes, site))
        body.append(rect(LEFT, y - 9, 11, 11, fill=colours[site]))
        words = f"{site}   {here.types}   {here.steps}   {_time(took[0])} on the slowest rank"
        words += f", {_time(took[1])} of it planning" if took[1] else ""
        body.append(text(LEFT + 18, y, words, 11, "soft"))
    if any(bar.planning_s for bar in bars):
        y = bottom + 34 + 18 * len(sites)
        body.append(rect(LEFT, y - 9, 11, 11, fill=PLANNING))
        body.append(text(LEFT + 18, y, "planning and preparing, the first time", 11, "soft"))
    return document(Figure(WIDTH, height, "\n".join(body)), title)


def ticks(length: float) -> list[float]:
    """Round numbers from 0 to a length, four to ten of them.

    >>> ticks(0.46)
    [0.0, 0.1, 0.2, 0.3, 0.4]
    """
    power = 10.0 ** math.floor(math.log10(max(length, 1e-9)))
    step = next(k * power for k in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if length <= 9 * k * power)
    step = step if length >= 3 * step else step / 2
    return [round(k * step, 12) for k in range(int(length / step) + 1)]


def _bar(bar: Bar, x: float, y: float, scale: float, colours: dict[str, str]) -> str:
    planning = min(bar.planning_s, bar.seconds)
    moving = bar.seconds - planning
    words = (
        f"{bar.site}: {bar.types} ({bar.steps}), {format_bytes(bar.received_bytes)} received "
        f"in {_time(moving)}"
    )
    words += f", after {_time(planning)} of planning" if planning else ""
    shape = rect(x + planning * scale, y, max(moving * scale, 0.7), BAR, fill=colours[bar.site])
    if planning:
        shape = rect(x, y, max(planning * scale, 0.7), BAR, fill=PLANNING) + shape
    return with_title(shape, words)


def _sums(lanes: Sequence[Sequence[Bar]], site: str) -> list[tuple[float, float]]:
    """Of every rank: the seconds of a line, and those of them that it planned."""
    of = [[bar for bar in lane if bar.site == site] for lane in lanes]
    return [(sum(b.seconds for b in bars), sum(b.planning_s for b in bars)) for bars in of]


def _time(seconds: float) -> str:
    return format_time(round(seconds * 1e12))
