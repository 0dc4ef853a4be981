"""Draw a plan: who holds what before and after each step, what moves, and memory."""

from __future__ import annotations

from base64 import b64encode
from html import escape

from redist.draw.flows import arrows_of
from redist.draw.panels import panel, step_figure
from redist.draw.view import Seats, View
from redist.layout.array_type import ArrayType
from redist.plan.memory import HOLDERS, alive_events, holder_classes, worst_class
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.steps import Event
from redist.plan.topology import Topology
from redist.text.svg import (
    MONO,
    Figure,
    card,
    column,
    document,
    line,
    lines,
    rank_colours,
    rect,
    row,
    text,
    with_title,
)
from redist.text.units import format_bytes, format_time

# Write a plan as HTML: a page that needs nothing else, or what a notebook shows.


_STYLE = """
:root{color-scheme:light dark}
body{margin:2rem auto;max-width:1180px;padding:0 1rem;background:#fbfbfa;color:#1c1e21;
font:16px/1.5 ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif}
h1{font-size:1.5rem} h2{font-size:1.15rem;margin-top:2rem}
svg{max-width:100%;height:auto}
pre{overflow-x:auto;padding:1rem;border:1px solid #dcdcd8;border-radius:8px;background:#fff;
font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
@media (prefers-color-scheme:dark){body{background:#15171a;color:#eceef1}
pre{background:#1d2024;border-color:#33373d}}
"""


def make_page(plan: Plan, topology: Topology = FLAT) -> str:
    """Write a page: headline, picture, the plan as text, and the alternatives."""
    inner = f"""{draw(plan, topology)}
<h2>The plan</h2>
<pre>{escape(str(plan))}</pre>
<h2>What else was considered</h2>
<pre>{escape(plan.explain())}</pre>"""
    title = f"{plan.source} -> {plan.target}"
    return page_of(title, inner, f"How to redistribute an array: {title}")


def page_of(title: str, inner: str, headline: str = "") -> str:
    """Write a self-contained page; ``inner`` is HTML below the headline."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width"/>
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(headline or title)}</h1>
{inner}
</body>
</html>
"""


def make_cell(plan: Plan) -> str:
    """Write the plan as text and as a picture for a notebook.

    The picture is a separate image, so that its style cannot affect the rest of the notebook.
    """
    picture = b64encode(draw(plan).encode()).decode()
    name = escape(f"{plan.source} -> {plan.target}")
    return (
        f"<pre>{escape(str(plan))}</pre>\n"
        f'<img alt="{name}" style="max-width:100%" src="data:image/svg+xml;base64,{picture}"/>'
    )


_PAD = 18
_GAP = 26


def draw(plan: Plan, topology: Topology = FLAT) -> str:
    """Draw a plan as the text of an SVG file.

    >>> import redist
    >>> draw(redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2)))[:4]
    '<svg'
    """
    types = plan.types
    view = View.of(types)
    colours = rank_colours({rank for t in types for rank in Seats.of(t.mesh).ranks})
    if plan.steps:
        rows = [_step_row(plan, k, view, colours, topology) for k in range(len(plan.steps))]
    else:
        rows = [panel("source and target are the same type", plan.source, view, colours)]
    width = max(row_.width for row_ in rows) + 2 * _PAD
    width = max(width, 780.0)
    memory = memory_figure(plan, width - 2 * _PAD)
    cards = [card(figure, _PAD, width) for figure in (*rows, memory)]
    body = column([_title(plan, view, width), *cards], 14)
    whole = Figure(width + 2 * _PAD, body.height + 2 * _PAD, body.at(_PAD, _PAD))
    return document(whole, f"{plan.source} -> {plan.target}")


def _step_row(
    plan: Plan, k: int, view: View, colours: dict[int, str], topology: Topology
) -> Figure:
    before, step = plan.types[k], plan.steps[k]
    arrows = arrows_of(step, before, topology)
    hidden = any(before.cuts[i] != step.after.cuts[i] for i in view.hidden_cut)
    pieces = None if arrows is None or hidden else arrows.pieces
    head = "source: what every device holds" if k == 0 else f"before step {k + 1}"
    last = k == len(plan.steps) - 1
    tail = f"after step {k + 1}" + (": the target" if last else "")
    return row(
        [
            panel(head, before, view, colours),
            step_figure(k, step, before, arrows, colours),
            panel(tail, step.after, view, colours, pieces),
        ],
        _GAP,
    )


def _title(plan: Plan, view: View, width: float) -> Figure:
    got, bound = plan.received_bytes, plan.lower_bound_bytes
    ratio = f", {got / bound:.2f} x the lower bound" if bound else ""
    n = len(plan.steps)
    facts = (
        f"{n} step{'' if n == 1 else 's'}; {format_bytes(got)} received in all{ratio}"
        f" (naive all-gather: {format_bytes(plan.naive_received_bytes)}); "
        f"peak {format_bytes(plan.peak_bytes)} on the fullest device; "
        f"modelled time {format_time(plan.time_ps)}"
    )
    key = (
        f"How to read it: {view.caption()}. The filled part is what the device whose number "
        "stands above it holds; every device has its own colour."
    )
    chars, wide_chars = int(width / 6), int(width / 17 / MONO)
    return column(
        [
            lines([f"{plan.source}  ->  {plan.target}"], 17, "mono ink", wide_chars, 700),
            lines([_meshes(plan.source, plan.target), facts], 12, "ink", chars),
            lines([key], 11.5, "soft", chars),
        ],
        5,
    )


def _meshes(source: ArrayType, target: ArrayType) -> str:
    def one(t: ArrayType) -> str:
        text = str(t.mesh).replace(",", ", ")
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        return f"mesh {shown} ({t.mesh.n_devices} devices)"

    return one(source) if source.mesh == target.mesh else f"{one(source)}  ->  {one(target)}"


# Memory over time: what is alive during each step on the worst device.


_COLOURS = {"source": "#3f7fd1", "middle": "#8d66c9", "target": "#3a9b66", "staging": "#d98a2b"}
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
