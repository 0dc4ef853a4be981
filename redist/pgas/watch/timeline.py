"""A picture of a trace: a lane for every rank, a bar for every move, a colour for every line."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from redist.text.units import format_bytes, format_time

WIDTH, LEFT, LANE, BAR, TOP = 960, 70, 26, 18, 44
STYLE = """
.bg{fill:#fbfbfa} .lane{fill:#efefec} .ink{fill:#1c1e21} .soft{fill:#63676e} .grid{stroke:#d6d6d2}
text{font-family:ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif}
@media (prefers-color-scheme:dark){
.bg{fill:#15171a} .lane{fill:#2a2e34} .ink{fill:#eceef1} .soft{fill:#a3a9b3} .grid{stroke:#383c43}
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A move on one rank."""

    start_s: float
    seconds: float
    line: str
    types: str
    steps: str
    received_bytes: int


def draw(lanes: Sequence[Sequence[Bar]]) -> str:
    """The lanes of all ranks as an SVG file.

    >>> "rank 1" in draw([[], [Bar(1.0, 0.5, "heat.py:7", "f32[4{x}] -> f32[4]", "all_gather", 8)]])
    True
    """
    bars = [bar for lane in lanes for bar in lane]
    start = min((bar.start_s for bar in bars), default=0.0)
    end = max((bar.start_s + bar.seconds for bar in bars), default=start)
    scale = (WIDTH - LEFT - 20) / max(end - start, 1e-9)
    lines = list(dict.fromkeys(bar.line for bar in bars))
    colours = {line: _colour(place, len(lines)) for place, line in enumerate(lines)}
    bottom = TOP + len(lanes) * LANE
    height = bottom + 34 + 18 * len(lines)
    n_bytes = sum(bar.received_bytes for bar in bars)
    title = (
        f"{len(bars)} moves on {len(lanes)} ranks, {format_bytes(n_bytes)} received, "
        f"{_time(end - start)} from the first to the last"
    )
    body = [_text(16, 24, title, 13, "ink")]
    for rank, lane in enumerate(lanes):
        y = TOP + rank * LANE
        body.append(_text(16, y + 14, f"rank {rank}", 11, "ink"))
        body.append(
            f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 20}" height="{BAR}" class="lane"/>'
        )
        body += [_bar(bar, LEFT + (bar.start_s - start) * scale, y, scale, colours) for bar in lane]
    for at in ticks(end - start):
        x = LEFT + at * scale
        body.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" class="grid"/>')
        anchor = "end" if x > WIDTH - 60 else "middle"
        body.append(_text(x, bottom + 12, _time(at), 10, "soft", anchor))
    for place, line in enumerate(lines):
        y = bottom + 34 + 18 * place
        here = [bar for bar in bars if bar.line == line]
        took = max(sum(b.seconds for b in lane if b.line == line) for lane in lanes)
        body.append(f'<rect x="{LEFT}" y="{y - 9}" width="11" height="11" fill="{colours[line]}"/>')
        words = f"{line}   {here[0].types}   {here[0].steps}   {_time(took)} on the slowest rank"
        body.append(_text(LEFT + 18, y, words, 11, "soft"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img">\n<title>{escape(title)}</title>\n'
        f'<style>{STYLE}</style>\n<rect width="{WIDTH}" height="{height}" class="bg"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


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
    words = (
        f"{bar.line}: {bar.types} ({bar.steps}), {format_bytes(bar.received_bytes)} received "
        f"in {_time(bar.seconds)}"
    )
    shape = f'x="{x:.2f}" y="{y}" width="{max(bar.seconds * scale, 0.7):.2f}" height="{BAR}"'
    return f'<g><title>{escape(words)}</title><rect {shape} fill="{colours[bar.line]}"/></g>'


def _text(x: float, y: float, words: str, size: int, look: str, anchor: str = "start") -> str:
    where = f'x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {where} class="{look}">{escape(words)}</text>'


def _time(seconds: float) -> str:
    return format_time(round(seconds * 1e12))


def _colour(place: int, n: int) -> str:
    red, green, blue = colorsys.hls_to_rgb((0.59 + place / max(1, n)) % 1, 0.55, 0.55)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
