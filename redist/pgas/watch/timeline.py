"""Draw a trace: a lane for every rank, a bar for every move, a colour for every line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redist.draw.lanes import Lane, LaneBar, draw_lanes
from redist.text.svg import nth_colour
from redist.text.units import format_bytes, format_seconds

PLANNING = "#b8bcc2"
"""The colour of time in which nothing moves yet."""


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


def draw(ranks: Sequence[Sequence[Bar]]) -> str:
    """Draw the moves of all ranks as the text of an SVG file.

    A move that several ranks make counts once.

    >>> "rank 1" in draw([[], [Bar(1.0, 0.5, "heat.py:7", "f32[4{x}] -> f32[4]", "all_gather", 8)]])
    True
    """
    bars = [bar for moves in ranks for bar in moves]
    start = min((bar.start_s for bar in bars), default=0.0)
    seconds = max((bar.start_s + bar.seconds for bar in bars), default=start) - start
    sites = list(dict.fromkeys(bar.site for bar in bars))
    colours = {site: nth_colour(place, len(sites)) for place, site in enumerate(sites)}
    n_bytes = sum(bar.received_bytes for bar in bars)
    n_moves = max(map(len, ranks), default=0)
    title = (
        f"{n_moves} move{'' if n_moves == 1 else 's'} on {len(ranks)} ranks, "
        f"{format_bytes(n_bytes)} received by all, "
        f"{format_seconds(seconds)} from the first to the last"
    )
    lanes = [
        Lane(f"rank {rank}", [part for bar in moves for part in _parts(bar, start, colours)])
        for rank, moves in enumerate(ranks)
    ]
    legend = [(colours[site], _words(site, ranks)) for site in sites]
    if any(bar.planning_s for bar in bars):
        legend.append((PLANNING, "planning and preparing, the first time"))
    return draw_lanes(title, lanes, seconds, legend)


def _parts(bar: Bar, start: float, colours: dict[str, str]) -> list[LaneBar]:
    """A move, and before it its planning."""
    planning, begin = min(bar.planning_s, bar.seconds), bar.start_s - start
    moving = bar.seconds - planning
    words = (
        f"{bar.site}: {bar.types} ({bar.steps}), {format_bytes(bar.received_bytes)} received "
        f"in {format_seconds(moving)}"
    )
    move = LaneBar(begin + planning, moving, colours[bar.site], words)
    planned = f"{bar.site}: {bar.types}, planned in {format_seconds(planning)}"
    return [LaneBar(begin, planning, PLANNING, planned), move] if planning else [move]


def _words(site: str, ranks: Sequence[Sequence[Bar]]) -> str:
    """What a line did, and how long it took on the slowest rank."""
    here = [[bar for bar in moves if bar.site == site] for moves in ranks]
    seconds, planning = max(
        (sum(bar.seconds for bar in bars), sum(bar.planning_s for bar in bars)) for bars in here
    )
    first = next(bar for bars in here for bar in bars)
    words = (
        f"{site}   {first.types}   {first.steps}   {format_seconds(seconds)} on the slowest rank"
    )
    return f"{words}, {format_seconds(planning)} of it planning" if planning else words
