"""What is alive during each step of a plan: bytes by what they are, as rows and as lines with bars."""

from __future__ import annotations

from redist.plan.memory import HOLDERS, alive_events, holder_classes, worst_class
from redist.plan.plan import Plan
from redist.text.columns import table
from redist.text.units import format_bytes

BAR = 32
LETTERS = {"source": "s", "middle": "m", "target": "t", "staging": "+"}
"""What a device can hold, in the order of the columns, with its letter in a bar."""

AliveRow = tuple[str, str, dict[str, int]]


def alive_rows(plan: Plan) -> list[AliveRow]:
    """For every step its name, the worst kind of device, and bytes alive there by what they are.

    >>> import redist
    >>> alive_rows(redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2)))
    [('1 all_gather', '', {'source': 16, 'middle': 0, 'target': 32, 'staging': 16})]
    """
    classes = holder_classes(plan.source.mesh, plan.target.mesh)
    rows = []
    for number in range(max(1, len(plan.steps))):
        name = f"{number + 1} {plan.steps[number].op}" if plan.steps else "nothing to do"
        kind = worst_class(plan.events, number, classes)
        alive = dict.fromkeys(LETTERS, 0)
        for event in alive_events(plan.events, number, kind):
            alive[event.what] += event.n_bytes
        rows.append((name, HOLDERS[kind] if len(classes) > 1 else "", alive))
    return rows


def alive_lines(plan: Plan) -> list[str]:
    """A line for each step, with a bar as long as what is alive."""
    rows = alive_rows(plan)
    used = [what for what in LETTERS if any(alive[what] for _, _, alive in rows)]
    out = [("step", *used, "live", "")]
    for name, who, alive in rows:
        parts = (format_bytes(alive[what]) if alive[what] else "-" for what in used)
        live = format_bytes(sum(alive.values()))
        out.append((name, *parts, live, f"{_bar(alive, plan.peak_bytes)} {who}".strip()))
    return table(out, left=(0, len(used) + 2), indent="  ")


def _bar(alive: dict[str, int], peak_bytes: int) -> str:
    """``sssstttt+``: as long as what is alive, of the whole at the peak; parts end where they do."""
    out, reached = "", 0
    for what, letter in LETTERS.items():
        reached += alive[what]
        upto = round(BAR * reached / peak_bytes) if peak_bytes else 0
        out += letter * max(upto - len(out), 1 if alive[what] else 0)
    return out
