"""Draw who holds what: one thumbnail of the array for each device, arranged like the mesh."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from redist.draw.flows import DrawnBox
from redist.draw.view import Seats, View
from redist.layout.array_type import ArrayType
from redist.layout.tiles import grid
from redist.text.svg import Figure, boxes, column, lines, rect, text, text_on, with_title
from redist.text.units import format_bytes

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
    lo, hi = grid(t).boxes()
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
        box = ([int(v) for v in lo[place]], [int(v) for v in hi[place]])
        own = () if pieces is None else pieces.get(rank, ())
        parts.append(Figure(w, h, _thumbnail(t, view, rank, box, own, colours, w, h)).at(x, y))
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
    box: tuple[list[int], list[int]],
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
    held = view.place(*box, w, h)
    if held[2] > 0:
        inside += rect(*held, fill=colour)
        sent: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
        for piece in pieces:
            sent[colours.get(piece.sender, _OTHER)].append(view.place(piece.lo, piece.hi, w, h))
        for sender_colour, places in sent.items():
            inside += boxes(places, "", fill=sender_colour)
        if t.pending_op is not None:
            inside += rect(*held, fill="url(#hatch)")
        if min(held[2:]) > 6:
            inside += rect(*held, "line", fill="none", stroke_width="0.7")
    return with_title(badge + Figure(w, h, inside).at(0, _BADGE), _tooltip(rank, box, pieces))


def _tooltip(rank: int, box: tuple[list[int], list[int]], pieces: Sequence[DrawnBox]) -> str:
    spans = ", ".join(f"{a}:{b}" for a, b in zip(*box, strict=True))
    out = f"device {rank} holds [{spans}]"
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
