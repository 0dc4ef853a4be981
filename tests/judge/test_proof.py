"""``redist.prove``: verdict, words and plain data of one plan."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import redist
from redist.cli.main import main
from redist.plan.plan import Certificate

MESH = redist.Mesh(x=2, y=4)
REQUEST = ("f32[64{x}, 64{y}]", "f32[64{y}, 64{x}]")


def plan_of() -> redist.Plan:
    return redist.synthesize(*REQUEST, mesh=MESH)


def test_it_says_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    import re

    assert main(["prove", *REQUEST, "--mesh", "x=2,y=4"]) == 0
    printed, said = capsys.readouterr().out, str(redist.prove(plan_of()))
    assert re.sub(r"\d+ ms", "", printed) == re.sub(r"\d+ ms", "", said) + "\n"


def test_a_right_plan_is_proved_tight() -> None:
    proof = redist.prove(plan_of())
    assert (proof.verdict, proof.fault, proof.reason, proof.is_tight) == ("proved", None, "", True)
    assert proof.certificate is not None and proof.sample is not None
    assert proof.certificate.bound_bytes == proof.plan.peak_bytes
    assert proof.sample.plan is proof.plan and proof.sample.fault is None


def test_the_data_is_plain_and_complete() -> None:
    data = redist.prove(plan_of()).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["verdict"] == "proved"
    assert data["alive_bytes"][0].keys() == {"source", "middle", "target", "staging"}
    assert sum(data["alive_bytes"][0].values()) == data["bound_bytes"]


def test_a_wrong_plan_is_rejected_and_nothing_else_is_tried() -> None:
    plan = plan_of()
    wrong = replace(plan, steps=(replace(plan.steps[0], received_bytes=1),))
    proof = redist.prove(wrong)
    assert proof.verdict == "rejected" and proof.certificate is None
    assert str(proof).startswith("rejected   step 1: ")
    assert set(proof.to_dict()) == {"verdict", "reason", "source", "target", "meshes", "steps"}


def test_stored_figures_are_compared_with_the_steps() -> None:
    plan = plan_of()
    text = plan.to_json()
    assert redist.prove(plan, stored=text).verdict == "proved"
    stored = text.replace(
        f'"lower_bound_bytes": {plan.lower_bound_bytes}', '"lower_bound_bytes": 1'
    )
    assert stored != text
    proof = redist.prove(plan, stored=stored)
    assert proof.verdict == "rejected" and "lower_bound_bytes is written as 1" in proof.reason


@pytest.mark.parametrize("verdict", ["refuted", "unknown"])
def test_what_is_not_proved_is_said_loudly(verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Certificate(verdict, "source", 8, "", "z3", reason="why", counterexample=(("n0", 7),))
    monkeypatch.setattr("redist.check.prove.certify", lambda plan, **_: found)
    proof = redist.prove(plan_of())
    assert proof.verdict == verdict
    assert f"\n{verdict.upper():<10} no device ever holds" in str(proof)
    assert "\nasked for" in str(proof)
