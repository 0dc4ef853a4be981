"""Draw lanes over time: one row each, with bars that show a description under the pointer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from redist.text.svg import Figure, document, line, rect, text, with_title
from redist.text.units import format_seconds

WIDTH, LEFT, TOP, GAP = 960, 130, 44, 6
HINT = "a bar says what it is when the pointer is on it"


@dataclass(frozen=True, slots=True)
class LaneBar:
    """What a lane did, from when and for how long; the bar takes a ``share`` of the lane's height."""

    begin_s: float
    seconds: float
    colour: str
    words: str
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of bars; ``remarks`` appear in small letters below its name."""

    name: str
    bars: Sequence[LaneBar]
    height: float = 16
    remarks: Sequence[str] = ()


def draw_lanes(
    title: str, lanes: Sequence[Lane], seconds: float, legend: Sequence[tuple[str, str]] = ()
) -> str:
    """The lanes as the text of an SVG file, with ``legend`` below, which explains some colours in words.

    >>> "load w" in draw_lanes("A run", [Lane("load", [LaneBar(0.0, 0.1, "#123456", "load w")])], 0.2)
    True
    """
    scale = (WIDTH - LEFT - 20) / max(seconds, 1e-9)
    body, y = [text(16, 24, title, 13)], float(TOP)
    for lane in lanes:
        body.append(text(16, y + 12, lane.name, 11))
        for number, remark in enumerate(lane.remarks):
            body.append(text(16, y + 24 + 11 * number, remark, 9, "soft"))
        body.append(rect(LEFT, y, WIDTH - LEFT - 20, lane.height, "void", style="stroke:none"))
        for bar in lane.bars:
            x, high = LEFT + bar.begin_s * scale, lane.height * bar.share
            wide = max(bar.seconds * scale, 0.7)
            shape = rect(x, y + lane.height - high, wide, high, fill=bar.colour)
            body.append(with_title(shape, bar.words))
        y += lane.height + GAP
    for at_s in ticks(seconds):
        x = LEFT + at_s * scale
        body.append(line(x, TOP - 6, x, y, "grid"))
        anchor = "end" if x > WIDTH - 60 else "middle"
        body.append(text(x, y + 12, format_seconds(at_s), 10, "soft", anchor))
    for number, (colour, words) in enumerate(legend):
        below = y + 34 + 18 * number
        body.append(rect(LEFT, below - 9, 11, 11, fill=colour))
        body.append(text(LEFT + 18, below, words, 11, "soft"))
    below = y + 34 + 18 * len(legend)
    body.append(text(16, below, HINT, 10, "soft"))
    return document(Figure(WIDTH, below + 12, "\n".join(body)), title)


def ticks(length: float) -> list[float]:
    """Between four and ten round numbers from 0 to a length.

    >>> ticks(0.46)
    [0.0, 0.1, 0.2, 0.3, 0.4]
    """
    power = 10.0 ** math.floor(math.log10(max(length, 1e-9)))
    step = next(k * power for k in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if length <= 9 * k * power)
    step = step if length >= 3 * step else step / 2
    return [round(k * step, 12) for k in range(int(length / step) + 1)]
