"""Draw memory over time: what is alive during each step on the worst device."""

from __future__ import annotations

from redist.plan.memory import HOLDERS, alive_events, holder_classes, worst_class
from redist.plan.plan import Plan
from redist.plan.steps import Event
from redist.text.svg import Figure, column, line, lines, rect, row, text, with_title
from redist.text.units import format_bytes

_COLOURS = {
    "source": "#3f7fd1",
    "middle": "#8d66c9",
    "target": "#3a9b66",
    "staging": "#d98a2b",
}
_BAR = 20
_PITCH = 32
_LEFT = 150


def memory_figure(plan: Plan, width: float) -> Figure:
    """Draw a stacked bar for each step, with the bound and the limit as lines."""
    moments = [_worst(plan, k) for k in range(max(1, len(plan.steps)))]
    bound = plan.peak_bytes
    marks = [(bound, "softline", f"peak {format_bytes(bound)}")]
    limit = plan.limit_bytes
    if limit is not None and bound <= limit <= 2 * bound:
        marks.append((limit, "limit", f"limit {format_bytes(limit)}"))
    room = width - _LEFT - 70
    scale = room / max(1, *(n for n, _, _ in marks))
    top = 18.0
    body = ""
    height = top + len(moments) * _PITCH
    for number, (who, events) in enumerate(moments):
        y = top + number * _PITCH
        name = f"step {number + 1}: {plan.steps[number].op}" if plan.steps else "nothing to do"
        body += text(0, y + (10 if who else 14), name, 11.5)
        if who:
            body += text(0, y + 22, who, 9, "soft")
        body += _bar(events, y, scale)
        total = format_bytes(sum(event.n_bytes for event in events))
        body += text(_LEFT + room + 62, y + 14, total, 11, "ink", "end", weight=700)
    for n, cls, _ in marks:
        x = _LEFT + n * scale
        dash = "5 3" if cls == "limit" else "2 3"
        body += line(x, top - 4, x, height - 4, cls, stroke_width="1.4", stroke_dasharray=dash)
    body += _mark_labels(marks, scale)
    title = "Memory: what is alive during each step on the fullest device"
    figure = column(
        [
            lines([title], 13, "ink", weight=700),
            _legend(plan),
            Figure(width, height, body),
            lines(_notes(plan), 10.5, "soft", int(width / 5.6)),
        ],
        8,
    )
    return Figure(width, figure.height, figure.body)


def _mark_labels(marks: list[tuple[int, str, str]], scale: float) -> str:
    """Write the labels so that they end at their lines; that of the peak makes room for the limit's."""
    out = ""
    for n, cls, label in marks:
        x = _LEFT + n * scale
        if cls != "limit" and len(marks) > 1:
            x = min(x, _LEFT + marks[1][0] * scale - len(marks[1][2]) * 5.6 - 8)
        out += text(x, 10, label, 9.5, "warn" if cls == "limit" else "soft", "end")
    return out


def _bar(events: list[Event], y: float, scale: float) -> str:
    out, x = "", float(_LEFT)
    for event in events:
        colour = _COLOURS.get(event.what, "#777777")
        w = event.n_bytes * scale
        label = f"{event.what} {format_bytes(event.n_bytes)}"
        bar = rect(x, y, max(w, 0.8), _BAR, fill=colour)
        if len(label) * 5.6 < w - 6:
            bar += text(x + w / 2, y + 14, label, 9.5, anchor="middle", fill="#ffffff", weight=600)
        out += with_title(bar, label)
        x += w
    return out


def _worst(plan: Plan, moment: int) -> tuple[str, list[Event]]:
    """The kind of device that holds most at a moment, and what it holds."""
    kinds = holder_classes(plan.source.mesh, plan.target.mesh)
    worst = worst_class(plan.events, moment, kinds)
    held = [event for event in alive_events(plan.events, moment, worst) if event.n_bytes]
    order = list(_COLOURS)
    events = sorted(held, key=lambda e: order.index(e.what) if e.what in order else 9)
    return (HOLDERS[worst] if len(kinds) > 1 else ""), events


def _legend(plan: Plan) -> Figure:
    used = {event.what for event in plan.events if event.n_bytes}
    meaning = {
        "source": "source: the array as it was",
        "middle": "middle: results of steps on the way",
        "target": "target: the array as it should be",
        "staging": "staging: buffer for sending and receiving",
    }
    chips = []
    for what, colour in _COLOURS.items():
        if what in used:
            label = lines([meaning[what]], 10, "soft")
            chip = rect(0, 2, 10, 10, fill=colour, rx="2") + label.at(15, 0)
            chips.append(Figure(label.width + 15, 15, chip))
    return row(chips, 14)


def _notes(plan: Plan) -> list[str]:
    kept = "freed after the first step" if plan.donate else "kept to the end"
    naive = format_bytes(plan.naive_peak_bytes)
    out = [f"the source is {kept}; naive all-gather would need {naive}"]
    limit = plan.limit_bytes
    if limit is not None and limit > 2 * plan.peak_bytes:
        out[0] += f"; the limit of {format_bytes(limit)} is far to the right"
    if plan.certificate is not None:
        out.append(f"the bound is {plan.certificate.summary()}")
    return out
