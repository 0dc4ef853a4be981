"""A proof as text: what is bounded, by how much, for which sizes, how it was shown."""

from __future__ import annotations

from collections.abc import Sequence

from redist.judge.proof import THEOREMS, Proof, holds_for, not_shown, rests_on
from redist.plan.memory import alive_events, holder_classes, worst_class
from redist.plan.plan import Plan
from redist.plan.table import format_plan
from redist.text.units import format_bytes

BAR = 32
_COLUMNS = {"source": ("source", "s"), "out": ("middle", "m"), "target": ("target", "t")}
_COLUMNS["staging"] = ("staging", "+")
_WHO = {
    "both": "a device of both meshes",
    "source": "a device of the source",
    "target": "a device of the target",
}


def format_proof(proof: Proof) -> str:
    """The whole certificate in words."""
    if proof.certificate is None:
        return f"rejected   {proof.reason}"
    plan = proof.plan
    return "\n".join(
        [
            format_plan(plan).partition("\n")[0],
            _verdict(proof),
            *_alive(plan),
            *_labelled("bound", _bound(proof)),
            *_labelled("received", _received(plan)),
            *_labelled("holds for" if proof.verdict == "proved" else "asked for", holds_for(plan)),
            *_labelled("shown by", _shown(proof)),
            *_labelled("rests on", _theorems(plan)),
            *_labelled("not shown", not_shown(plan)),
        ]
    )


def _verdict(proof: Proof) -> str:
    assert proof.certificate is not None
    n_bytes = proof.certificate.bound_bytes
    most = format_bytes(n_bytes) + (f" ({n_bytes} bytes)" if n_bytes >= 1024 else "")
    claim = f"no device ever holds more than {most} of this array, staging included"
    if proof.verdict == "proved":
        return f"proved     {claim}"
    return f"{proof.verdict.upper().ljust(10)} {claim}: {proof.reason}"


def live_rows(plan: Plan) -> list[tuple[str, str, dict[str, int]]]:
    """For every step its name, the worst kind of device, and bytes alive there by what they are."""
    classes = holder_classes(plan.source.mesh, plan.target.mesh)
    rows = []
    for number in range(max(1, len(plan.steps))):
        name = f"{number + 1} {plan.steps[number].op}" if plan.steps else "nothing to do"
        kind = worst_class(plan.events, number, classes)
        alive = dict.fromkeys((label for label, _ in _COLUMNS.values()), 0)
        for event in alive_events(plan.events, number, kind):
            alive[_COLUMNS[event.what][0]] += event.n_bytes
        rows.append((name, _WHO[kind] if len(classes) > 1 else "", alive))
    return rows


def _alive(plan: Plan) -> list[str]:
    rows = live_rows(plan)
    used = [label for label, _ in _COLUMNS.values() if any(alive[label] for _, _, alive in rows)]
    table = [("step", *used, "live", "")]
    for name, who, alive in rows:
        parts = (format_bytes(alive[label]) if alive[label] else "-" for label in used)
        live = format_bytes(sum(alive.values()))
        table.append((name, *parts, live, f"{_bar(alive, plan.peak_bytes)} {who}".strip()))
    return _aligned(table)


def _bar(alive: dict[str, int], peak_bytes: int) -> str:
    """``sssstttt+``: as long as what is alive, of the whole at the peak; parts end where they do."""
    out, reached = "", 0
    for label, letter in _COLUMNS.values():
        reached += alive[label]
        upto = round(BAR * reached / peak_bytes) if peak_bytes else 0
        out += letter * max(upto - len(out), 1 if alive[label] else 0)
    return out


def _bound(proof: Proof) -> list[str]:
    assert proof.certificate is not None
    plan, formula = proof.plan, proof.certificate.bound
    most, here = proof.certificate.bound_bytes, format_bytes(proof.formula_bytes)
    if proof.formula_bytes == most:
        out = [f"{formula} = {here}"]
    else:
        out = [f"{format_bytes(most)}, step by step; never above {formula} = {here}"]
    if plan.limit_bytes is not None:
        out[0] += f", within the limit of {format_bytes(plan.limit_bytes)}"
    if any(step.staging_bytes for step in plan.steps):
        room = ", what the limit leaves" if plan.limit_bytes is not None else ""
        rule = f"min(2 x received, max(larger end / 8, min(1 MiB, larger end / 2)){room})"
        rounds = max(step.rounds for step in plan.steps)
        times = f", filled up to {rounds} times" if rounds > 1 else ""
        out.append(f"staging of a step = {rule}{times}")
    if len(plan.types) > 2:
        two = "; two may be alive at once" if len(plan.types) > 3 else ""
        out.append(f"middle = the largest tile between the steps{two}")
    return out


def _received(plan: Plan) -> list[str]:
    got, least = plan.received_bytes, plan.lower_bound_bytes
    bound = (
        "the least that any plan receives" if plan.target.pending_op is None else "the lower bound"
    )
    text = f"{format_bytes(got)} by all devices together"
    if got == least:
        return [f"{text} = {bound}"]
    times = f"{got / least:.2f} x" if least else "more than"
    more = "; more bytes for less modelled time" if plan.objective == "time" else ""
    return [f"{text} = {times} {bound}, {format_bytes(least)}{more}"]


def _shown(proof: Proof) -> list[str]:
    assert proof.certificate is not None and proof.sample is not None
    count = f"{proof.queries} {'query' if proof.queries == 1 else 'queries'}"
    found = {"proved": "no counterexample", "refuted": "a counterexample"}
    asked = found.get(proof.certificate.verdict, "no answer")
    less = "; one byte less is refuted" if proof.is_tight else ""
    n = len(proof.plan.steps)
    steps = "no step" if n == 0 else f"{n} step{'' if n == 1 else 's'}"
    out = [
        f"Z3, which finds {asked}{less} ({count}, {_ms(proof.certificate.seconds)})",
        f"a checker that shares no code with the search ({steps} replayed, {_ms(proof.replay_s)})",
    ]
    sample = proof.sample
    if sample.plan is None:
        return [*out, f"not by a run on data: {sample.reason}"]
    which = "it" if sample.plan is proof.plan else f"the smallest of these, {sample.plan.source},"
    devices = len({*sample.plan.source.mesh.ranks, *sample.plan.target.mesh.ranks})
    went = "every element arrives" if sample.fault is None else "WRONG"
    ran = f"brute force: {which} was moved in one process, {went}"
    return [*out, f"{ran} ({devices} devices, {_ms(sample.seconds)})"]


def _theorems(plan: Plan) -> list[str]:
    names = rests_on(plan)
    width = max(map(len, names))
    return [
        "theorems for all sizes, checked by 'python -m proofs' in redist's repository",
        *(f"  {name.ljust(width)}   {THEOREMS[name]}" for name in names),
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"


def _labelled(label: str, items: Sequence[str]) -> list[str]:
    return [f"{label if i == 0 else '':<10} {item}" for i, item in enumerate(items)]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    last = len(widths) - 1
    return [
        (
            "  "
            + "   ".join(
                cell.ljust(width) if i in (0, last) else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        ).rstrip()
        for row in rows
    ]
