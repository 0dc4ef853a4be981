"""``redist prove``: the certificate of one plan, in words that a user understands."""

from __future__ import annotations

import argparse
import json
from typing import Any

from redist.cli.files import write_text
from redist.cli.given import Given
from redist.cli.status import FAILED, OK, UNKNOWN
from redist.judge.proof import THEOREMS, Proof, holds_for, not_shown, rests_on
from redist.judge.words import format_proof, live_rows


def run_prove(args: argparse.Namespace) -> int:
    """Print what is bounded, by how much, for which sizes and how it was shown."""
    given = Given.read(args)
    proof = Proof.of(given)
    if args.smt2 is not None and proof.certificate is not None:
        from redist.check.prove import smt2

        write_text(args.smt2, smt2(given.plan), "--smt2")
    print(json.dumps(proof_to_dict(proof), indent=1) if args.json else format_proof(proof))
    return {"proved": OK, "unknown": UNKNOWN}.get(proof.verdict, FAILED)


def proof_to_dict(proof: Proof) -> dict[str, Any]:
    """A proof as plain data; times in seconds, sizes in bytes."""
    plan, certificate, sample = proof.plan, proof.certificate, proof.sample
    out: dict[str, Any] = {
        "verdict": proof.verdict,
        "reason": proof.reason,
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
        "formula_bytes": proof.formula_bytes,
        "one_byte_less_is_refuted": proof.is_tight,
        "alive_bytes": [alive for _, _, alive in live_rows(plan)],
        "received_bytes": plan.received_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "holds_for": holds_for(plan),
        "not_shown": not_shown(plan),
        "shown_by": {
            "z3": {
                "verdict": certificate.verdict,
                "queries": proof.queries,
                "seconds": certificate.seconds,
                "counterexample": dict(certificate.counterexample),
            },
            "replay": {"steps": len(plan.steps), "seconds": proof.replay_s},
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
