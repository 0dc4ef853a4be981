"""Sentences about a plan, its certificate and its run, as ``redist prove`` prints them."""

from __future__ import annotations

from collections.abc import Sequence

from redist.judge.claims import THEOREMS, rests_on
from redist.judge.sample import Sample
from redist.plan.certificate import Certificate
from redist.plan.plan import Plan
from redist.text.columns import table
from redist.text.units import format_bytes


def label(name: str, items: Sequence[str]) -> list[str]:
    """Put a label before the first line of several.

    >>> label("bound", ["a", "b"])
    ['bound      a', '           b']
    """
    return [f"{name if i == 0 else '':<10} {item}" for i, item in enumerate(items)]


def claim_text(certificate: Certificate) -> str:
    """The claim that a certificate is about."""
    n_bytes = certificate.bound_bytes
    most = format_bytes(n_bytes) + (f" ({n_bytes} bytes)" if n_bytes >= 1024 else "")
    return f"no device ever holds more than {most} of this array, staging included"


def bound_lines(plan: Plan, certificate: Certificate, formula_bytes: int) -> list[str]:
    """The bound as a formula and in bytes, and what its parts are."""
    formula, most, here = certificate.bound, certificate.bound_bytes, format_bytes(formula_bytes)
    if formula_bytes == most:
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


def received_text(plan: Plan) -> str:
    """What all devices receive, against the least."""
    got, least = plan.received_bytes, plan.lower_bound_bytes
    bound = (
        "the least that any plan receives" if plan.target.pending_op is None else "the lower bound"
    )
    text = f"{format_bytes(got)} by all devices together"
    if got == least:
        return f"{text} = {bound}"
    times = f"{got / least:.2f} x" if least else "more than"
    more = "; more bytes for less modelled time" if plan.objective == "time" else ""
    return f"{text} = {times} {bound}, {format_bytes(least)}{more}"


def solver_text(certificate: Certificate, n_queries: int, is_tight: bool) -> str:
    """What Z3 found."""
    found = {"proved": "no counterexample", "refuted": "a counterexample"}
    answer = found.get(certificate.verdict, "no answer")
    less = "; one byte less is refuted" if is_tight else ""
    count = f"{n_queries} {'query' if n_queries == 1 else 'queries'}"
    return f"Z3, which finds {answer}{less} ({count}, {_ms(certificate.seconds)})"


def replay_text(plan: Plan, seconds: float) -> str:
    """What the checker did."""
    n = len(plan.steps)
    steps = "no step" if n == 0 else f"{n} step{'' if n == 1 else 's'}"
    shares = "shares only the definition of tiles with the search"
    return f"a checker that {shares} ({steps} replayed, {_ms(seconds)})"


def sample_text(plan: Plan, sample: Sample) -> str:
    """What was run on data, or why nothing was."""
    if sample.plan is None:
        return f"not by a run on data: {sample.reason}"
    which = "it" if sample.plan is plan else f"the smallest of these, {sample.plan.source},"
    devices = len({*sample.plan.source.mesh.ranks, *sample.plan.target.mesh.ranks})
    went = "every element arrives" if sample.fault is None else "WRONG"
    ran = f"brute force: {which} was moved in one process, {went}"
    return f"{ran} ({devices} devices, {_ms(sample.seconds)})"


def theorem_lines(plan: Plan) -> list[str]:
    """The theorems that say the same for every size, in words."""
    rows = [(name, THEOREMS[name]) for name in rests_on(plan)]
    return [
        "theorems for all sizes, checked by 'python -m proofs' in redist's repository",
        *table(rows, left=(0, 1), indent="  "),
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"
