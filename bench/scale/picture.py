"""Draw time against ranks for the three ways, a panel for each chart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redist.text.svg import Figure, card, column, document, line, lines, rect, row, text

COLOURS = {"direct": "#0b5fd0", "level by level": "#1b8a5a", "naive": "#c2571a"}
"""Told apart also by those who see few colours: blue, green, orange; and by their marks."""
WIDTH, HEIGHT = 168.0, 128.0
LEFT, BOTTOM = 38.0, 20.0
SIZE = 10.0
PANELS = 5
"""In a line."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Milliseconds over ranks, both logarithmic."""

    title: str
    curves: tuple[Curve, ...]


def draw(charts: Sequence[Chart]) -> str:
    """An SVG file of charts, five in a line, all with the same scales."""
    values = [value for chart in charts for curve in chart.curves for value in curve.y]
    low, high = (
        edge(math.log10(value))
        for edge, value in ((math.floor, min(values)), (math.ceil, max(values)))
    )
    panels = [_panel(chart, low, high) for chart in charts]
    rows: list[Figure] = []
    for start in range(0, len(panels), PANELS):
        name = charts[start].title.partition(":")[0]
        rows += [lines([name], 13, weight=600), row(panels[start : start + PANELS], 12)]
    body = column([*rows, _legend()], 10)
    title = "Milliseconds of a transfer against the number of ranks, three ways, on two machines"
    return document(card(body, 16), title)


def _legend() -> Figure:
    parts, x = [], 0.0
    for name, colour in COLOURS.items():
        parts.append(line(x, 8, x + 22, 8, "", stroke=colour, stroke_width="2"))
        parts.append(_mark(name, x + 11, 8, colour))
        parts.append(text(x + 28, 12, name, 11))
        x += 60 + 7 * len(name)
    parts.append(
        text(x, 12, "milliseconds against ranks, tiles of 64 MiB; no naive: no room", 11, "soft")
    )
    return Figure(x + 380, 18, "".join(parts))


def _panel(chart: Chart, low: int, high: int) -> Figure:
    """One chart: a title, decades as lines, ranks below."""
    top = 20.0
    ranks = sorted({x for curve in chart.curves for x in curve.x})
    first, last = math.log2(ranks[0]), math.log2(ranks[-1])

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log2(x) - first) / max(1e-9, last - first)
        up = (math.log10(y) - low) / max(1, high - low)
        return LEFT + 6 + across * (WIDTH - LEFT - 14), top + (1 - up) * HEIGHT

    name = chart.title.partition(": ")[2].partition(",")[0]
    parts = [text(0, 11, name, 11.5, weight=600)]
    for decade in range(low, high + 1):
        _, y = at(ranks[0], 10.0**decade)
        parts.append(line(LEFT, y, WIDTH, y, "grid"))
        parts.append(text(LEFT - 5, y + 3.5, _number(10.0**decade), SIZE, "soft", "end"))
    for n in ranks:
        x, _ = at(n, 1.0)
        parts.append(text(x, top + HEIGHT + 14, _ranks(n), SIZE, "soft", "middle"))
    for curve in chart.curves:
        parts.append(_curve(curve, at))
    return Figure(WIDTH, top + HEIGHT + BOTTOM, "".join(parts))


def _curve(curve: Curve, at: Callable[[float, float], tuple[float, float]]) -> str:
    colour = COLOURS[curve.name]
    points = [at(x, y) for x, y in zip(curve.x, curve.y, strict=True)]
    parts = [
        line(*a, *b, "", stroke=colour, stroke_width="2") for a, b in itertools.pairwise(points)
    ]
    return "".join([*parts, *(_mark(curve.name, x, y, colour) for x, y in points)])


def _mark(name: str, x: float, y: float, colour: str) -> str:
    """A circle, a square or a diamond."""
    if name == "direct":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}"/>'
    if name == "naive":
        return f'<path d="M{x:.1f} {y - 4.2:.1f}l4.2 4.2l-4.2 4.2l-4.2 -4.2z" fill="{colour}"/>'
    return rect(x - 3, y - 3, 6, 6, fill=colour)


def _number(value: float) -> str:
    """A power of ten.

    >>> [_number(v) for v in (0.1, 10.0, 10000.0)]
    ['0.1', '10', '10 k']
    """
    return f"{value:g}" if value < 1e4 else f"{value / 1e3:g} k"


def _ranks(n: float) -> str:
    """A power of two.

    >>> [_ranks(n) for n in (64, 4096, 65536)]
    ['64', '4 Ki', '64 Ki']
    """
    return f"{n:g}" if n < 1024 else f"{n / 1024:g} Ki"
