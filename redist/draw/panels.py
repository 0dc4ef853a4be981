"""Draw a step: who holds what before and after it, and what moves.

Who holds what is shown by one thumbnail of the array for each device, arranged like the mesh. What moves is
shown by the name of the step, its figures, and a matrix of senders and receivers.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from redist.draw.flows import REST, Arrows, DrawnBox
from redist.draw.view import Seats, View
from redist.layout.array_type import ArrayType
from redist.layout.axes import format_axes
from redist.layout.tiles import Spans, spans_of
from redist.plan.steps import Slice, Step
from redist.text.svg import Figure, boxes, column, lines, rect, text, text_on, with_title
from redist.text.units import format_bytes, format_time

_WIDTH = 330
_BADGE = 13
_GAP = 8
_OTHER = "#8a8f98"


def panel(
    heading: str,
    t: ArrayType,
    view: View,
    colours: Mapping[int, str],
    pieces: Mapping[int, Sequence[DrawnBox]] | None = None,
) -> Figure:
    """Draw a panel; with ``pieces`` the parts that were received have the colour of their sender."""
    seats = Seats.of(t.mesh)
    most = max(20.0, min(66.0, _WIDTH / seats.columns - _GAP))
    w, h = view.size(most)
    row_labels = seats.row_labels()
    left = 8 + max(map(len, (*row_labels, seats.corner()))) * 5.6 if any(row_labels) else 0.0
    top = 16.0 if any(seats.column_labels()) else 0.0
    parts = [text(0, 9, seats.corner(), 9, "soft")] if seats.corner() else []
    for i, label in enumerate(seats.column_labels()):
        if len(label) * 5.2 <= w + _GAP:
            parts.append(text(left + i * (w + _GAP) + w / 2, 9, label, 9, "soft", "middle"))
    for place, rank in enumerate(seats.ranks):
        r, c = divmod(place, seats.columns)
        x, y = left + c * (w + _GAP), top + r * (_BADGE + h + _GAP)
        if c == 0 and row_labels[r]:
            parts.append(text(0, y + _BADGE + h / 2 + 3, row_labels[r], 9, "soft"))
        own = () if pieces is None else pieces.get(rank, ())
        parts.append(Figure(w, h, _thumbnail(t, view, rank, own, colours, w, h)).at(x, y))
    n_rows = math.ceil(seats.n_shown / seats.columns)
    body = Figure(
        left + seats.columns * (w + _GAP) - _GAP,
        top + n_rows * (_BADGE + h + _GAP) - _GAP,
        "".join(parts),
    )
    chars = int(max(_WIDTH, body.width) / 12 / 0.61)
    head = column(
        [
            lines([heading], 11, "soft", int(max(_WIDTH, body.width) / 6), weight=600),
            lines([str(t)], 12, "mono ink", chars, weight=600),
        ],
        2,
    )
    facts = _facts(t, seats)
    if pieces:
        facts.insert(0, "the colour of a part says which device it came from")
    foot = lines(facts, 10.5, "soft", int(max(_WIDTH, body.width) / 5.6))
    figure = column([head, body, foot], 9)
    return Figure(max(_WIDTH, figure.width), figure.height, figure.body)


def _thumbnail(
    t: ArrayType,
    view: View,
    rank: int,
    pieces: Sequence[DrawnBox],
    colours: Mapping[int, str],
    w: float,
    h: float,
) -> str:
    colour = colours.get(rank, _OTHER)
    badge = rect(0, 0, w, _BADGE - 2, fill=colour, rx="2")
    badge += text(
        w / 2, _BADGE - 4.2, str(rank), 8.5, anchor="middle", fill=text_on(colour), weight=700
    )
    inside = rect(0, 0, w, h, "void", stroke_width="0.7")
    spans = spans_of(t, rank)
    assert spans is not None
    held = [view.place(lo, hi, w, h) for lo, hi in _boxes(spans)]
    if any(place[2] > 0 for place in held):
        inside += _fill(held, colour)
        sent: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
        for piece in pieces:
            sent[colours.get(piece.sender, _OTHER)].append(view.place(piece.lo, piece.hi, w, h))
        for sender_colour, places in sent.items():
            inside += boxes(places, "", fill=sender_colour)
        if t.pending_op is not None:
            inside += _fill(held, "url(#hatch)")
        for place in held:
            if min(place[2:]) > 6:
                inside += rect(*place, "line", fill="none", stroke_width="0.7")
    return with_title(badge + Figure(w, h, inside).at(0, _BADGE), _tooltip(rank, spans, pieces))


def _fill(places: Sequence[tuple[float, float, float, float]], colour: str) -> str:
    """One box as a box, many as one element."""
    return rect(*places[0], fill=colour) if len(places) == 1 else boxes(places, "", fill=colour)


_MOST_BOXES = 4096
"""A tile of more boxes is drawn as the box around them."""


def _boxes(spans: Spans) -> list[tuple[list[int], list[int]]]:
    """A tile as boxes: every choice of a range in each dim."""
    if not all(spans):
        return [([0] * len(spans), [0] * len(spans))]
    if math.prod(map(len, spans)) > _MOST_BOXES:
        spans = tuple(((dim[0][0], dim[-1][1]),) for dim in spans)
    chosen = itertools.product(*spans)
    return [([lo for lo, _ in one], [hi for _, hi in one]) for one in chosen]


def _tooltip(rank: int, spans: Spans, pieces: Sequence[DrawnBox]) -> str:
    dims = (" + ".join(f"{a}:{b}" for a, b in dim[:6]) or "nothing" for dim in spans)
    out = f"device {rank} holds [{', '.join(dims)}]"
    senders = sorted({piece.sender for piece in pieces})
    if senders:
        out += f"; parts came from {', '.join(map(str, senders[:16]))}"
    return out


def _facts(t: ArrayType, seats: Seats) -> list[str]:
    tile = f"{' x '.join(map(str, t.tile_shape)) or '1'} element{'s' if t.tile_shape else ''}"
    most = "" if t.is_even else "at most "
    out = [f"{t.mesh.n_devices} devices, {most}{tile} = {format_bytes(t.tile_bytes)} each"]
    copies = t.mesh.n_devices // math.prod([*t.cuts, *(p.size for p in t.pending_axes)])
    if copies > 1:
        out[0] += f"; {copies} copies of everything"
    if t.pending_op is not None:
        g = math.prod(p.size for p in t.pending_axes)
        out.append(f"striped: partial values, the {t.pending_op} of {g} devices is still to come")
    if seats.n_shown < t.mesh.n_devices:
        out.append(f"drawn: the first {seats.n_shown} of {t.mesh.n_devices} devices")
    return out


# What moves in a step.


_STEP_WIDTH = 210
_ROOM = 150

_MEANING = {
    "slice": "every device keeps a part of what it has; nothing moves",
    "all_gather": "every device collects the tiles of its group",
    "all_to_all": "every device swaps parts of its tile within its group",
    "all_permute": "whole tiles change hands",
    "exchange": "every device fetches exactly what it lacks",
    "reduce_scatter": "partial values are sent to their new owner and combined there",
    "all_reduce": "every group combines its partial values; all members get the result",
}


def step_figure(
    number: int, step: Step, before: ArrayType, arrows: Arrows | None, colours: Mapping[int, str]
) -> Figure:
    """Draw the middle of a step's row: arrow, text and matrix."""
    parts = [
        lines([f"step {number + 1}: {step.op}"], 15, "ink", weight=700),
        _arrow(),
        lines([_meaning(step)], 11, "ink", 36),
        lines(_figures(step, before), 10.5, "soft", 38),
    ]
    if arrows is not None and arrows.pairs:
        parts.append(_matrix(arrows, colours))
    elif step.received_bytes:
        parts.append(lines(["(too many pieces to draw who sends what)"], 10.5, "soft", 38))
    figure = column(parts, 7)
    return Figure(_STEP_WIDTH, figure.height, figure.body)


def _meaning(step: Step) -> str:
    match step.action:
        case Slice(pending=pending) if pending:
            return "every value stays once, neutral elements fill the rest; nothing moves"
        case _:
            return _MEANING[step.op]


def _arrow() -> Figure:
    return Figure(
        _STEP_WIDTH,
        14,
        f'<path class="arrow" d="M0 5H{_STEP_WIDTH - 16}V0L{_STEP_WIDTH} 7L{_STEP_WIDTH - 16} 14V9H0Z"/>',
    )


def _figures(step: Step, before: ArrayType) -> list[str]:
    if before.mesh != step.after.mesh:
        over = "between two meshes"
    else:
        axes = format_axes(before.mesh, step.over).replace(",", ", ")
        over = f"over {axes}: groups of {step.group}" if axes else "within each device"
    if not step.received_bytes:
        return [over]
    least, most = (format_bytes(n) for n in step.received_range_bytes)
    each = most if least == most else f"{least} to {most}"
    few, many = step.messages_range
    count = str(many) if few == many else f"{few} to {many}"
    out = [
        over,
        f"received: {format_bytes(step.received_bytes)} in all, {each} per device, "
        f"{count} message{'' if many == 1 else 's'} each",
        f"modelled time: {format_time(step.time_ps)}"
        + (f" in {step.rounds} rounds" if step.rounds > 1 else ""),
    ]
    return out


def _matrix(arrows: Arrows, colours: Mapping[int, str]) -> Figure:
    """Rows are senders, columns receivers; the darker a cell the more bytes."""
    n = max(len(arrows.senders), len(arrows.receivers))
    size = max(2.3, min(17.0, _ROOM / n))
    strip = min(size, 11.0)
    left, top = 14.0 + strip + 2, 14.0 + strip + 2
    w, h = len(arrows.receivers) * size, len(arrows.senders) * size
    body = rect(left, top, w, h, "void", stroke_width="0.7")
    body += text(left, 9, "receiver", 9, "soft")
    label = text(0, 0, "sender", 9, "soft")
    body += f'<g transform="translate(9 {top + h:.1f}) rotate(-90)">{label}</g>'
    for j, rank in enumerate(arrows.receivers):
        body += _key(rank, left + j * size, 14, size, strip, size, colours)
    for i, rank in enumerate(arrows.senders):
        body += _key(rank, 14, top + i * size, strip, size, size, colours)
    body += Figure(w, h, _cells(arrows, size)).at(left, top)
    notes = [arrows.note, "dot: the device has a part already"]
    if REST in arrows.senders:
        notes.append("last row: senders that are not drawn")
    caption = lines(notes if arrows.keeps else notes[:1], 9.5, "soft")
    return column([Figure(left + w, top + h, body), caption], 4)


def _cells(arrows: Arrows, size: float) -> str:
    """Cells of one shade are one element, so that large pictures stay small files."""
    largest = max((n for (rank, _), n in arrows.pairs.items() if rank != REST), default=1)
    seam = 0.4 if size > 5 else 0.0
    columns = {rank: j for j, rank in enumerate(arrows.receivers)}
    rows = {rank: i for i, rank in enumerate(arrows.senders)}
    shades: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    for (sender, receiver), amount in arrows.pairs.items():
        shade = 0.18 + 0.82 * min(1.0, round(amount / largest, 1))
        place = (columns[receiver] * size + seam, rows[sender] * size + seam)
        shades[f"{shade:.2f}"].append((*place, size - 2 * seam, size - 2 * seam))
    out = "".join(boxes(places, "cell", fill_opacity=shade) for shade, places in shades.items())
    r = max(0.7, min(2.2, size / 5))
    for rank in sorted(arrows.keeps):
        if rank in rows and rank in columns and (rank, rank) not in arrows.pairs:
            x, y = (columns[rank] + 0.5) * size, (rows[rank] + 0.5) * size
            out += f'<circle class="dot" cx="{x:.2f}" cy="{y:.2f}" r="{r:.2f}"/>'
    return out


def _key(
    rank: int, x: float, y: float, w: float, h: float, size: float, colours: Mapping[int, str]
) -> str:
    colour = colours.get(rank, _OTHER)
    out = rect(x, y, w, h, fill=colour)
    if size >= 11 and len(str(rank)) <= 2:
        label = "..." if rank == REST else str(rank)
        out += text(
            x + w / 2, y + h / 2 + 2.8, label, 8, anchor="middle", fill=text_on(colour), weight=700
        )
    return out
