"""Draw time against ranks for the three ways: a line of charts for each machine, a chart for each case."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from redist.text.svg import Figure, card, column, document, line, lines, rect, row, text

COLOURS = {"direct": "#0b5fd0", "level by level": "#1b8a5a", "naive": "#c2571a"}
"""Told apart also by those who see few colours: blue, green, orange; and by their marks."""
WIDTH, HEIGHT, TOP = 168.0, 128.0, 20.0
LEFT, BOTTOM = 38.0, 20.0
SIZE = 10.0
Curves = Mapping[str, Sequence[tuple[float, float]]]
"""Ranks and milliseconds, by way."""


def draw(machines: Mapping[str, Mapping[str, Curves]]) -> str:
    """An SVG file of charts by machine and case, all with the same scales, both logarithmic."""
    charts = [curves for cases in machines.values() for curves in cases.values()]
    values = [ms for curves in charts for points in curves.values() for _, ms in points]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    rows: list[Figure] = []
    for name, cases in machines.items():
        panels = [_panel(case, curves, low, high) for case, curves in cases.items()]
        rows += [lines([name], 13, weight=600), row(panels, 12)]
    title = "Milliseconds of a transfer against the number of ranks, three ways, on two machines"
    return document(card(column([*rows, _legend()], 10), 16), title)


def _legend() -> Figure:
    parts, x = [], 0.0
    for name, colour in COLOURS.items():
        parts.append(line(x, 8, x + 22, 8, "", stroke=colour, stroke_width="2"))
        parts += [_mark(name, x + 11, 8), text(x + 28, 12, name, 11)]
        x += 60 + 7 * len(name)
    said = "milliseconds against ranks, tiles of 64 MiB; no naive: no room"
    return Figure(x + 380, 18, "".join([*parts, text(x, 12, said, 11, "soft")]))


def _panel(case: str, curves: Curves, low: int, high: int) -> Figure:
    """One chart: a title, decades as lines, ranks below."""
    ranks = sorted({x for points in curves.values() for x, _ in points})
    first, last = math.log2(ranks[0]), math.log2(ranks[-1])

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log2(x) - first) / max(1e-9, last - first)
        up = (math.log10(y) - low) / max(1, high - low)
        return LEFT + 6 + across * (WIDTH - LEFT - 14), TOP + (1 - up) * HEIGHT

    parts = [text(0, 11, case, 11.5, weight=600)]
    for decade in range(low, high + 1):
        _, y = at(ranks[0], 10.0**decade)
        parts.append(line(LEFT, y, WIDTH, y, "grid"))
        said = f"{10.0**decade:g}" if decade < 4 else f"{10.0 ** (decade - 3):g} k"
        parts.append(text(LEFT - 5, y + 3.5, said, SIZE, "soft", "end"))
    for n in ranks:
        said = f"{n:g}" if n < 1024 else f"{n / 1024:g} Ki"
        parts.append(text(at(n, 1.0)[0], TOP + HEIGHT + 14, said, SIZE, "soft", "middle"))
    for way, points in curves.items():
        places = [at(*point) for point in points]
        for a, b in itertools.pairwise(places):
            parts.append(line(*a, *b, "", stroke=COLOURS[way], stroke_width="2"))
        parts += [_mark(way, *place) for place in places]
    return Figure(WIDTH, TOP + HEIGHT + BOTTOM, "".join(parts))


def _mark(way: str, x: float, y: float) -> str:
    """A circle, a square or a diamond."""
    colour = COLOURS[way]
    if way == "direct":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}"/>'
    if way == "naive":
        return f'<path d="M{x:.1f} {y - 4.2:.1f}l4.2 4.2l-4.2 4.2l-4.2 -4.2z" fill="{colour}"/>'
    return rect(x - 3, y - 3, 6, 6, fill=colour)
