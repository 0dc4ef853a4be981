"""Plans as text: the table that `redist plan` prints."""

from __future__ import annotations

from redist.layout.axes import format_axes
from redist.plan.memory import alive_events, holder_classes, worst_class
from redist.plan.plan import Plan
from redist.plan.portable import larger_tile_reason
from redist.plan.steps import Step
from redist.text.columns import table
from redist.text.units import format_bytes, format_time

LEFT = range(3)
"""Columns of text; the others are figures."""


def format_plan(plan: Plan) -> str:
    """The steps as a table, then totals compared with the lower bound and a naive all-gather."""
    lines = [_headline(plan)]
    if plan.steps:
        head = ("step", "over", "type after", "group", "messages", "received/device", "live")
        rows = [_row(number, step, plan) for number, step in enumerate(plan.steps)]
        lines += table([head, *rows], LEFT, "  ")
    else:
        lines.append("  nothing to do: source and target are the same type")
    lines += [_received_text(plan), _memory(plan), *_larger_tile(plan), _time(plan)]
    if plan.certificate is not None:
        lines.append(f"bound      {plan.certificate.bound}: {plan.certificate.summary()}")
    return "\n".join(lines)


def format_alternatives(plan: Plan) -> str:
    """The alternatives that were considered, the cheapest under the objective first."""
    if not plan.considered:
        return "nothing else was considered: source and target are the same type"
    by_time = plan.objective == "time"
    taken = "; ".join(step.op for step in plan.steps)
    ranked = sorted(
        plan.considered,
        key=lambda a: (
            a.note != "",
            a.time_ps if by_time else a.received_bytes,
            a.messages,
            a.steps != taken,
        ),
    )
    head = ("alternative", "steps", "time", "received", "messages", "live", "")
    rows = [
        (
            a.name,
            a.steps,
            format_time(a.time_ps),
            format_bytes(a.received_bytes),
            str(a.messages),
            format_bytes(a.peak_bytes),
            a.note or ("<- chosen" if a is ranked[0] else ""),
        )
        for a in ranked
    ]
    title = f"considered for objective {plan.objective!r}, strategy {plan.strategy!r} ({_search_text(plan)})"
    origin = [f"planned for {plan.planned_for}"] if plan.planned_for else []
    return "\n".join([title, *table([head, *rows], LEFT, "  "), *origin])


def _headline(plan: Plan) -> str:
    mesh, other = plan.source.mesh, plan.target.mesh
    where = f"mesh {_mesh_text(str(mesh))}: {mesh.n_devices} devices"
    if other != mesh:
        where += f" -> mesh {_mesh_text(str(other))}: {other.n_devices} devices"
    sizes = sorted({plan.source.tile_bytes, plan.target.tile_bytes})
    tiles = " to ".join(dict.fromkeys(map(format_bytes, sizes)))
    return f"{plan.source} -> {plan.target}      {where}, {tiles} each"


def _mesh_text(text: str) -> str:
    shown = text.replace(",", ", ")
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def _row(number: int, step: Step, plan: Plan) -> tuple[str, ...]:
    across = plan.types[number].mesh != step.after.mesh
    over = "two meshes" if across else format_axes(step.after.mesh, step.over).replace(",", ", ")
    least, most = step.received_range_bytes
    return (
        f"{number + 1} {step.op}",
        over or "-",
        str(step.after),
        str(step.group),
        _range(*step.messages_range),
        format_bytes(most) if least == most else _byte_range(least, most),
        format_bytes(step.peak_bytes),
    )


def _range(least: int, most: int) -> str:
    return str(most) if least == most else f"{least}-{most}"


def _byte_range(least: int, most: int) -> str:
    a, b = format_bytes(least), format_bytes(most)
    if a == b:
        return a
    if a.split()[-1] == b.split()[-1]:
        return f"{a.split()[0]}-{b}"
    return f"{a} - {b}" if least else f"0-{b}"


def _larger_tile(plan: Plan) -> list[str]:
    """A line if a tile on the way is larger than both ends: how large, and why."""
    largest = max(t.tile_bytes for t in plan.types)
    if largest <= max(plan.source.tile_bytes, plan.target.tile_bytes):
        return []
    reason = larger_tile_reason(plan.source, plan.target) or "no smaller one is as good"
    return [f"tiles      {format_bytes(largest)} on the way, more than at both ends: {reason}"]


def _ratio(a: int, b: int) -> str:
    if b == 0:
        return "1.00" if a == 0 else "inf"
    return f"{a / b:.2f}"


def _received_text(plan: Plan) -> str:
    got, bound, naive = plan.received_bytes, plan.lower_bound_bytes, plan.naive_received_bytes
    against = f" ({naive / got:.1f}x)" if got else ""
    return (
        f"received   {format_bytes(got)} = {_ratio(got, bound)} x lower bound"
        f"        naive all-gather {format_bytes(naive)}{against}, "
        f"{format_bytes(plan.naive_peak_bytes)} live"
    )


def _memory(plan: Plan) -> str:
    other = plan.peak_bytes_if_kept if plan.donate else plan.peak_bytes_if_donated
    label = "kept" if plan.donate else "donated"
    peak = max(range(len(plan.steps)), key=lambda k: plan.steps[k].peak_bytes, default=0)
    kind = worst_class(plan.events, peak, holder_classes(plan.source.mesh, plan.target.mesh))
    alive = [e for e in alive_events(plan.events, peak, kind) if e.n_bytes]
    parts = " + ".join(f"{e.what} {format_bytes(e.n_bytes)}" for e in alive)
    rounds = max((step.rounds for step in plan.steps), default=1)
    text = f"memory     {format_bytes(plan.peak_bytes)} = {parts or '0'}"
    if rounds > 1:
        text += f" ({rounds} rounds)"
    if plan.limit_bytes is not None:
        text += f", limit {format_bytes(plan.limit_bytes)}"
    if other == plan.peak_bytes:
        return text
    return f"{text}        {format_bytes(other)} if the source is {label}"


def _time(plan: Plan) -> str:
    return (
        f"modelled   {format_time(plan.time_ps)}, at most {plan.messages} message"
        f"{'' if plan.messages == 1 else 's'} per device, "
        f"{_search_text(plan)}"
    )


def _search_text(plan: Plan) -> str:
    """How the plan was searched for, and how far from the best it can be, if that is known."""
    bound = plan.search_bound
    if plan.search == "exact" or not bound:
        return f"{plan.search} search"
    by_time = plan.objective == "time"
    cost = plan.time_ps + len(plan.steps) if by_time else plan.received_bytes
    least = format_time(bound) if by_time else format_bytes(bound)
    return f"{plan.search} search: none in less than {least} ({cost / bound:.2f}x)"
