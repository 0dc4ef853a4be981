"""Prove a plan: everything that can be shown about it, as a value that prints itself."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redist.judge.faults import figure_fault, replay_fault
from redist.judge.simulation import Sample, run_sample
from redist.layout.array_type import ArrayType
from redist.plan.memory import HOLDERS, alive_events, holder_classes, worst_class
from redist.plan.plan import Certificate, Plan
from redist.plan.rates import FLAT
from redist.plan.steps import AllGather, AllPermute, AllToAll, Slice
from redist.plan.table import format_plan
from redist.plan.topology import Topology
from redist.runtime.ranks.control_page import LEAST_POOL_BYTES
from redist.text.columns import table
from redist.text.units import count_of, format_bytes

# What a proof of one plan covers, what it does not say, and which theorems it rests on, in words.


THEOREMS = {
    "tiles": "tiles cover every index; devices that differ on unused axes alone hold the same",
    "factors": "dims with segments: an index lies in one tile of one segment, at one place of it",
    "rules": "every step keeps the global array",
    "exchange": "every device receives exactly what it lacks, and none can do with less",
    "pending": "how many receives combining partial values takes, and that fewer are not enough",
    "senders": "replicas take turns in sending",
    "memory": "what a step keeps alive is what the model says, within the formula",
    "allocations": "what the runtime allocates is within the model",
    "rounds": "rounds pass every byte once, within the staging",
    "pairing": "every send meets its receive, and no ranks wait in a circle",
}
"""What a proof of one plan rests on: theorems of ``proofs/`` by name, in words."""


def holds_for(plan: Plan) -> list[str]:
    """The arrays that the proof covers, in words."""
    from redist.check.families import unit_dims

    units = unit_dims(plan)
    if plan.limit_bytes is not None:
        return ["this array alone: under a limit staging is what the limit leaves"]
    if plan.source.global_elems == 0 or not plan.source.shape:
        return ["this array"]
    if not all(t.is_plain for t in plan.types):
        return ["this array alone: a dim with segments grows in more than one way"]
    if units is not None:
        sizes = " and ".join(_multiples_text(units, k) for k in sorted(set(units), reverse=True))
        return ["this array", f"every array with {sizes}, by the same steps on the same mesh"]
    nests = any(isinstance(s.action, (Slice, AllGather, AllToAll, AllPermute)) for s in plan.steps)
    legal = " where these stay legal" if nests else ""
    grown = [f"dim {i} of any size from {n} on" for i, n in enumerate(plan.source.shape)]
    return ["this array", *(f"{dim}, all else the same, by the same steps{legal}" for dim in grown)]


def list_gaps(plan: Plan) -> list[str]:
    """What the proof does not cover."""
    out = []
    if plan.source.global_elems and plan.source.shape:
        out.append("other sizes: plan them, every plan is proved by itself")
    if plan.steps:
        searched = "search was exact" if plan.search == "exact" else "search was bounded"
        out.append(f"that no plan is better (the {searched}), and the modelled time")
    if plan.target.pending_op is not None:
        out.append("that the lower bound is the least: tested, where a reduction stays pending")
    if plan.steps and not all(t.is_plain for t in plan.types):
        out.append(
            "that segments are right together: theorems speak of one at a time, the rest is tested"
        )
    out.append("memory of Python and MPI, and of a communicator's control pages and tables")
    if any(s.received_bytes and s.staging_bytes < LEAST_POOL_BYTES for s in plan.steps):
        least = format_bytes(LEAST_POOL_BYTES)
        out.append(f"staging of less than {least}: a run takes {least} at least")
    return out


def rests_on(plan: Plan) -> list[str]:
    """Names of the theorems in ``proofs/`` that state the same for every size."""
    needed = {
        "factors": not all(t.is_plain for t in plan.types),
        "rules": bool(plan.steps),
        "exchange": plan.received_bytes > 0,
        "pending": any(t.pending_op is not None for t in plan.types),
        "senders": plan.received_bytes > 0 and any(map(_replicates, plan.types[:-1])),
        "rounds": plan.received_bytes > 0,
        "pairing": plan.received_bytes > 0,
    }
    return [name for name in THEOREMS if needed.get(name, True)]


def _replicates(t: ArrayType) -> bool:
    return math.prod(part.size for part in t.used) < t.mesh.n_devices


def _multiples_text(units: Sequence[int], k: int) -> str:
    """The dims whose unit is k: ``dims 0, 2 multiples of 4``.

    >>> _multiples_text((4, 1, 4), 4), _multiples_text((4, 1, 4), 1)
    ('dims 0, 2 multiples of 4', 'dim 1 of any size')
    """
    dims = [str(i) for i, unit in enumerate(units) if unit == k]
    if len(dims) == 1:
        return f"dim {dims[0]} {'of any size' if k == 1 else f'a multiple of {k}'}"
    return f"dims {', '.join(dims)} {'of any size' if k == 1 else f'multiples of {k}'}"


# Sentences about a plan, its certificate and its run, as ``redist prove`` prints them.


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
    """The bound as a formula and in bytes, with the meaning of its parts."""
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
    """What all devices receive, compared with the lower bound."""
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
    steps = count_of(n, "step") if n else "no step"
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
    """The theorems that state the same for every size, in words."""
    rows = [(name, THEOREMS[name]) for name in rests_on(plan)]
    return [
        "theorems for all sizes, checked by 'python -m proofs' in redist's repository",
        *table(rows, left=(0, 1), indent="  "),
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"


# What is alive during each step of a plan: bytes by what they are, as rows and as lines with bars.


BAR = 32
LETTERS = {"source": "s", "middle": "m", "target": "t", "staging": "+"}
"""What a device can hold, in the order of the columns, with its letter in a bar."""

AliveRow = tuple[str, str, dict[str, int]]


def alive_rows(plan: Plan) -> list[AliveRow]:
    """For every step: its name, the worst kind of device, and the live bytes there, by what they hold.

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
    """A line for each step, with a bar whose length shows the live bytes."""
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


@dataclass(frozen=True, slots=True)
class Proof:
    """Everything that was found out about a plan; ``print(proof)`` says it in words.

    ``fault`` says why the checker rejects the plan, or is None. After a fault nothing else is tried, and
    ``certificate`` is None. ``is_tight`` tells whether a bound one byte lower is refuted. ``formula_bytes``
    is the value of the bound's formula for this array.
    """

    plan: Plan
    fault: str | None
    replay_s: float
    certificate: Certificate | None = None
    queries: int = 0
    formula_bytes: int = 0
    is_tight: bool = False
    sample: Sample | None = None

    @property
    def verdict(self) -> str:
        """``proved``, ``unknown``, ``refuted`` (by Z3 or by a run), or ``rejected`` by the checker."""
        if self.certificate is None:
            return "rejected"
        if self.sample is not None and self.sample.fault is not None:
            return "refuted"
        return self.certificate.verdict

    @property
    def reason(self) -> str:
        """Why the plan is not proved."""
        if self.fault is not None:
            return self.fault
        if self.sample is not None and self.sample.fault is not None and self.sample.plan:
            return f"moving {self.sample.plan.source} went wrong: {self.sample.fault}"
        assert self.certificate is not None
        if self.certificate.verdict == "refuted":
            sizes = ", ".join(f"{name} = {n}" for name, n in self.certificate.counterexample)
            return f"with {sizes} more is alive than {self.certificate.bound}"
        return self.certificate.reason

    def __str__(self) -> str:
        plan, certificate, sample = self.plan, self.certificate, self.sample
        if certificate is None or sample is None:
            return f"rejected   {self.reason}"
        proved = self.verdict == "proved"
        claim = claim_text(certificate)
        verdict = f"{'proved':<10} {claim}"
        if not proved:
            verdict = f"{self.verdict.upper():<10} {claim}: {self.reason}"
        shown = [
            solver_text(certificate, self.queries, self.is_tight),
            replay_text(plan, self.replay_s),
            sample_text(plan, sample),
        ]
        return "\n".join(
            [
                format_plan(plan).partition("\n")[0],
                verdict,
                *alive_lines(plan),
                *label("bound", bound_lines(plan, certificate, self.formula_bytes)),
                *label("received", [received_text(plan)]),
                *label("holds for" if proved else "asked for", holds_for(plan)),
                *label("shown by", shown),
                *label("rests on", theorem_lines(plan)),
                *label("not shown", list_gaps(plan)),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """The proof as plain data, as ``redist prove --json`` prints it; units are seconds and bytes."""
        plan, certificate, sample = self.plan, self.certificate, self.sample
        out: dict[str, Any] = {
            "verdict": self.verdict,
            "reason": self.reason,
            "source": str(plan.source),
            "target": str(plan.target),
            "meshes": [str(plan.source.mesh), str(plan.target.mesh)],
            "steps": [step.op for step in plan.steps],
        }
        if certificate is None or sample is None:
            return out
        ran = sample.plan
        return {
            **out,
            "donate": plan.donate,
            "limit_bytes": plan.limit_bytes,
            "bound_bytes": certificate.bound_bytes,
            "formula": certificate.bound,
            "formula_bytes": self.formula_bytes,
            "one_byte_less_is_refuted": self.is_tight,
            "alive_bytes": [alive for _, _, alive in alive_rows(plan)],
            "received_bytes": plan.received_bytes,
            "lower_bound_bytes": plan.lower_bound_bytes,
            "holds_for": holds_for(plan),
            "not_shown": list_gaps(plan),
            "shown_by": {
                "z3": {
                    "verdict": certificate.verdict,
                    "queries": self.queries,
                    "seconds": certificate.seconds,
                    "counterexample": dict(certificate.counterexample),
                },
                "replay": {"steps": len(plan.steps), "seconds": self.replay_s},
                "run": {
                    "source": None if ran is None else str(ran.source),
                    "target": None if ran is None else str(ran.target),
                    "fault": sample.fault,
                    "not_run": sample.reason or None,
                    "seconds": sample.seconds,
                },
            },
            "rests_on": {name: THEOREMS[name] for name in rests_on(plan)},
        }


def prove(plan: Plan, *, topology: Topology = FLAT, stored: str | None = None) -> Proof:
    """**Local.** Replay a plan, prove its memory bound with Z3 and run it on random data.

    >>> import redist
    >>> plan = redist.synthesize("f32[64{x}, 64]", "f32[64, 64{x}]", mesh=redist.Mesh(x=8))
    >>> proof = redist.prove(plan)
    >>> proof.verdict, proof.is_tight
    ('proved', True)
    >>> print(str(proof).splitlines()[1])
    proved     no device ever holds more than 7 KiB (7168 bytes) of this array, staging included

    ``topology`` determines which of several replicas sends in the run. If ``stored`` is given, the JSON text
    that the plan was read from, its figures are compared with what the steps add up to.
    """
    from redist.check.prove import certify, count_queries, formula_bytes

    started = time.perf_counter()
    fault = replay_fault(plan)
    if fault is None and stored is not None:
        fault = figure_fault(plan, stored)
    replay_s = time.perf_counter() - started
    if fault is not None:
        return Proof(plan, fault, replay_s)
    certificate = certify(plan)
    less = certificate.bound_bytes - 1
    return Proof(
        plan,
        None,
        replay_s,
        certificate,
        count_queries(plan),
        formula_bytes(plan),
        less >= 0 and certify(plan, bound_bytes=less).verdict == "refuted",
        run_sample(plan, topology),
    )
