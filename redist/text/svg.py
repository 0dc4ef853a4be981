"""Hand-made SVG: figures with a size that can be placed beside and above each other."""

from __future__ import annotations

import colorsys
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

# Choose a colour for every rank, the same in the whole picture.


def rank_colours(ranks: Iterable[int]) -> dict[int, str]:
    """Hues around the circle, in two shades where there are many ranks.

    >>> sorted(rank_colours([4, 9]))
    [4, 9]
    """
    ordered = sorted(ranks)
    return {rank: nth_colour(place, len(ordered)) for place, rank in enumerate(ordered)}


def nth_colour(place: int, n: int) -> str:
    """The colour number ``place`` of ``n`` that are easy to tell apart.

    >>> nth_colour(0, 2) == nth_colour(1, 2)
    False
    """
    hue = (0.59 + place / n * (1 if n < 8 else 0.94)) % 1
    dark = n > 10 and place % 2 == 1
    red, green, blue = colorsys.hls_to_rgb(hue, 0.40 if dark else 0.57, 0.62)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def text_on(colour: str) -> str:
    """Black or white, whichever reads better on a colour.

    >>> text_on("#ffee00"), text_on("#202060")
    ('#000000', '#ffffff')
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


MONO = 0.61
"""Width of a monospace character in font sizes."""

STYLE = """
.bg{fill:#fbfbfa} .card{fill:#fff;stroke:#dcdcd8} .void{fill:#efefec;stroke:#c9c9c4}
.ink{fill:#1c1e21} .soft{fill:#63676e} .warn{fill:#b3261e} .grid{stroke:#d6d6d2}
.cell{fill:#0b5fd0} .line{stroke:#1c1e21} .softline{stroke:#8a8f98} .limit{stroke:#b3261e}
.dot{fill:#8a8f98} .arrow{fill:#63676e} .hatch{stroke:#fff}
text{font-family:ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif}
.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}
@media (prefers-color-scheme:dark){
.bg{fill:#15171a} .card{fill:#1d2024;stroke:#33373d} .void{fill:#2a2e34;stroke:#454a52}
.ink{fill:#eceef1} .soft{fill:#a3a9b3} .warn{fill:#ff8a80} .grid{stroke:#383c43}
.cell{fill:#6cb2ff} .line{stroke:#eceef1} .softline{stroke:#7b828d} .limit{stroke:#ff8a80}
.dot{fill:#7b828d} .arrow{fill:#a3a9b3} .hatch{stroke:#15171a}
}
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A piece of a picture: its size and its elements, drawn from (0, 0)."""

    width: float
    height: float
    body: str

    def at(self, x: float, y: float) -> str:
        """The elements, moved."""
        return f'<g transform="translate({_n(x)} {_n(y)})">{self.body}</g>'


def column(figures: Sequence[Figure], gap: float) -> Figure:
    """Figures above each other, at the left edge."""
    y, parts = 0.0, []
    for figure in figures:
        parts.append(figure.at(0, y))
        y += figure.height + gap
    width = max((figure.width for figure in figures), default=0)
    return Figure(width, max(0.0, y - gap), "".join(parts))


def row(figures: Sequence[Figure], gap: float) -> Figure:
    """Figures beside each other, at the top edge."""
    x, parts = 0.0, []
    for figure in figures:
        parts.append(figure.at(x, 0))
        x += figure.width + gap
    height = max((figure.height for figure in figures), default=0)
    return Figure(max(0.0, x - gap), height, "".join(parts))


def card(figure: Figure, pad: float, width: float = 0) -> Figure:
    """A figure on a card, at least ``width`` wide."""
    w, h = max(width, figure.width + 2 * pad), figure.height + 2 * pad
    frame = rect(0.5, 0.5, w - 1, h - 1, "card", rx="8")
    return Figure(w, h, frame + figure.at(pad, pad))


def lines(
    items: Sequence[str], size: float, cls: str = "ink", chars: int = 0, weight: int = 400
) -> Figure:
    """Lines of text; those longer than ``chars`` (0: none) are wrapped."""
    shown = [part for item in items for part in (_wrap(item, chars) if chars else [item])]
    step = size * 1.45
    body = "".join(
        text(0, size + number * step, item, size, cls, weight=weight)
        for number, item in enumerate(shown)
    )
    width = max((len(item) for item in shown), default=0) * size * _advance(cls, weight)
    return Figure(width, len(shown) * step, body)


def text(
    x: float,
    y: float,
    content: str,
    size: float,
    cls: str = "ink",
    anchor: str = "start",
    weight: int = 400,
    fill: str | None = None,
) -> str:
    """One line of text; ``anchor`` says which point of it is at (x, y)."""
    more = f' font-weight="{weight}"' if weight != 400 else ""
    more += f' text-anchor="{anchor}"' if anchor != "start" else ""
    look = f'fill="{fill}"' if fill else f'class="{escape(cls)}"'
    where = f'x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}"'
    return f"<text {where} {look}{more}>{escape(content)}</text>"


def rect(x: float, y: float, w: float, h: float, cls: str = "", **attributes: str) -> str:
    """A rectangle."""
    return (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}"{_rest(cls, attributes)}/>'
    )


def line(x1: float, y1: float, x2: float, y2: float, cls: str, **attributes: str) -> str:
    """A straight line."""
    ends = f'x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"'
    return f"<line {ends}{_rest(cls, attributes)}/>"


def boxes(places: Sequence[tuple[float, float, float, float]], cls: str, **attributes: str) -> str:
    """Many rectangles (x, y, width, height) of the same look as one element."""
    d = "".join(f"M{_n(x)} {_n(y)}h{_n(w)}v{_n(h)}h{_n(-w)}z" for x, y, w, h in places)
    return f'<path d="{d}"{_rest(cls, attributes)}/>'


def with_title(body: str, title: str) -> str:
    """Elements with a text that appears under the mouse."""
    return f"<g><title>{escape(title)}</title>{body}</g>"


def document(figure: Figure, title: str) -> str:
    """A whole SVG file."""
    w, h = _n(figure.width), _n(figure.height)
    hatch = (
        '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse">'
        '<path d="M-1 1L1 -1M0 5L5 0M4 6L6 4" class="hatch" stroke-width="1.3"/></pattern>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" '
        f'viewBox="0 0 {w} {h}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n<defs>{hatch}</defs>\n"
        f"{rect(0, 0, figure.width, figure.height, 'bg')}\n{figure.body}\n</svg>\n"
    )


def _advance(cls: str, weight: int) -> float:
    return MONO if "mono" in cls else 0.6 if weight > 400 else 0.55


def _wrap(item: str, chars: int) -> list[str]:
    return textwrap.wrap(item, chars, break_long_words=True, break_on_hyphens=False) or [""]


def _rest(cls: str, attributes: dict[str, str]) -> str:
    named = {"class": cls, **attributes} if cls else attributes
    return "".join(f' {key.replace("_", "-")}="{escape(value)}"' for key, value in named.items())


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def write_if(text: str, path: str | os.PathLike[str] | None) -> str:
    """Write a text to ``path`` if one is given, and return the text."""
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text
