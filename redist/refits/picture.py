"""A refit as a picture: who sends to whom, what each rank has to do, and how full the rounds are."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from redist.layout.axes import Ints
from redist.text.svg import (
    Figure,
    boxes,
    card,
    column,
    document,
    line,
    lines,
    rect,
    row,
    text,
    with_title,
)
from redist.text.units import format_bytes

if TYPE_CHECKING:
    from redist.refits.plan import RefitPlan

SIDE, MOST, GAP, PAD = 340.0, 64, 16.0, 14.0
"""Width of a chart; ranks or rounds that have a mark of their own: more are put together."""


def draw_refit(plan: RefitPlan) -> str:
    """The whole picture as SVG."""
    title = f"Refit of {len(plan.names)} tensors"
    facts = [
        f"{len(plan.source.stored)} stored tensors on {len(plan.source.ranks)} ranks to "
        f"{len(plan.target.stored)} on {len(plan.target.ranks)}: {format_bytes(plan.received_bytes)} in "
        f"{plan.rounds} round{'' if plan.rounds == 1 else 's'}",
    ]
    head = column([lines([title], 19, weight=700), lines(facts, 12, "soft")], 2)
    charts = row(
        [
            card(_matrix(plan), PAD),
            column([card(_loads(plan), PAD), card(_rounds(plan), PAD)], GAP),
        ],
        GAP,
    )
    whole = column([head, charts], GAP)
    framed = Figure(whole.width + 2 * GAP, whole.height + 2 * GAP, whole.at(GAP, GAP))
    return document(framed, title)


def _folded(n: int) -> Ints:
    """For each of n things the mark that it belongs to."""
    return np.arange(n) * min(n, MOST) // max(1, n)


def _matrix(plan: RefitPlan) -> Figure:
    """Rows are senders, columns receivers; the darker a cell the more bytes."""
    senders, receivers = plan.source.ranks, plan.target.ranks
    rows, columns = _folded(len(senders)), _folded(len(receivers))
    cells = np.zeros((rows.max(initial=0) + 1, columns.max(initial=0) + 1), dtype=np.int64)
    of_sender = {rank: int(k) for rank, k in zip(senders, rows, strict=True)}
    of_receiver = {rank: int(k) for rank, k in zip(receivers, columns, strict=True)}
    for (sender, receiver), n_bytes in plan.bytes_between().items():
        cells[of_sender[sender], of_receiver[receiver]] += n_bytes
    size = min(24.0, SIDE / max(cells.shape))
    h, w = (n * size for n in cells.shape)
    largest = max(1, int(cells.max()))
    shades: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    for i, j in np.argwhere(cells).tolist():
        shade = 0.15 + 0.85 * round(cells[i, j] / largest, 1)
        shades[f"{shade:.2f}"].append(
            (16 + j * size + 0.3, 16 + i * size + 0.3, size - 0.6, size - 0.6)
        )
    body = rect(16, 16, w, h, "void", stroke_width="0.7")
    body += "".join(boxes(places, "cell", fill_opacity=shade) for shade, places in shades.items())
    body += text(
        16,
        10,
        f"receiver: ranks {receivers[0]} to {receivers[-1]}" if receivers else "",
        10,
        "soft",
    )
    label = text(
        0, 0, f"sender: ranks {senders[0]} to {senders[-1]}" if senders else "", 10, "soft"
    )
    body += f'<g transform="translate(10 {16 + h:.1f}) rotate(-90)">{label}</g>'
    own = Figure(max(w + 16, 190), h + 16, body)
    return column([lines(["Who sends to whom"], 13, weight=600), own,
                   lines([f"darkest: {format_bytes(largest)}"], 10, "soft")], 6)  # fmt: skip


def _bars(title: str, series: dict[str, Ints], limit: int | None, caption: str) -> Figure:
    """Bars of equal width, a row for each series; those of one mark are shown by the largest."""
    height, parts = 70.0, []
    top = max([1, limit or 0, *(int(values.max(initial=0)) for values in series.values())])
    for name, values in series.items():
        marks = _folded(len(values))
        n = int(marks.max(initial=0)) + 1
        most = np.zeros(n, dtype=np.int64)
        np.maximum.at(most, marks, values)
        step = SIDE / n
        places = [
            (
                k * step + 0.15 * min(step, 6),
                15 + height * (1 - value / top),
                step - 0.3 * min(step, 6),
                height * value / top,
            )
            for k, value in enumerate(most.tolist())
            if value
        ]
        body = text(0, 8, f"{name}: at most {format_bytes(int(values.max(initial=0)))}", 10, "soft")
        body += with_title(boxes(places, "cell", fill_opacity="0.8"), name)
        body += line(0, 15 + height, SIDE, 15 + height, "softline", stroke_width="0.8")
        if limit is not None:
            y = 15 + height * (1 - limit / top)
            body += line(0, y, SIDE, y, "limit", stroke_width="1.2", stroke_dasharray="4 3")
        parts.append(Figure(SIDE, height + 18, body))
    return column([lines([title], 13, weight=600), *parts, lines([caption], 10, "soft")], 6)


def _loads(plan: RefitPlan) -> Figure:
    sent, received = plan.sent_bytes, plan.received_by_rank
    series = {
        "sent": np.array([sent.get(rank, 0) for rank in plan.source.ranks], dtype=np.int64),
        "received": np.array([received.get(rank, 0) for rank in plan.target.ranks], dtype=np.int64),
    }
    least = f"the busiest sender must send {format_bytes(plan.least_sent_bytes)} at least"
    return _bars("What each rank sends and receives", series, None, least)


def _rounds(plan: RefitPlan) -> Figure:
    caption = (
        f"busiest rank of each round{'' if plan.limit_bytes is None else '; dashed: the limit'}"
    )
    return _bars("Rounds", {"sent and received": plan.turns.busiest}, plan.limit_bytes, caption)
