"""Prove one plan: everything that can be shown about it, as a value that prints itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from redist.judge.alive import alive_lines, alive_rows
from redist.judge.claims import THEOREMS, holds_for, list_gaps, rests_on
from redist.judge.faults import figure_fault, replay_fault
from redist.judge.sample import Sample, run_sample
from redist.judge.words import (
    bound_lines,
    claim_text,
    label,
    received_text,
    replay_text,
    sample_text,
    solver_text,
    theorem_lines,
)
from redist.plan.certificate import Certificate
from redist.plan.plan import Plan
from redist.plan.table import format_plan
from redist.plan.topology import FLAT, Topology


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found about a plan; ``print(proof)`` says it in words.

    ``fault`` is what the checker rejects; then nothing else was tried and ``certificate`` is None.
    ``is_tight`` says that one byte less than the bound is refuted; ``formula_bytes`` is what the
    formula of the bound comes to for this array.
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
        """Why it is not proved."""
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
        """The proof as plain data, as ``redist prove --json`` prints it: seconds and bytes."""
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

    ``topology`` says which of several replicas sends in the run. With ``stored``, the JSON text that
    the plan was read from, the figures written there are compared with what the steps add up to.
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
