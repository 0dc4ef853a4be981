"""``redist prove``: what it says is so, and what is not proved fails."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import z3

from proofs.engine.run import theorems
from redist import Mesh, synthesize
from redist.check.families import unit_dims
from redist.check.replay import check_plan
from redist.judge.proof import THEOREMS, Proof, holds_for, list_gaps, rests_on
from redist.judge.simulation import Sample, run_sample, smallest
from redist.plan.plan import Certificate
from redist.plan.rates import FLAT
from tests.cli.conftest import Run
from tests.cli.test_check_command import REQUESTS as CHECKED
from tests.cli.test_check_command import change
from tests.problems.problems import problems
from tests.tiers import sample

REQUESTS = {
    **CHECKED,
    "limit": ("f32[64{x}, 64]", "f32[64, 64]", "--mesh", "x=8", "--limit", "20KiB"),
    "donated": ("f32[64{x}] sum{y}", "f32[64]", "--mesh", "x=2,y=4", "--donate"),
    "slice": ("f32[64]", "f32[64{x}]", "--mesh", "x=4"),
    "large": ("f32[65536{x}, 65536]", "f32[65536, 65536{x}]", "--mesh", "x=64"),
    "large, uneven": ("f32[65537{x}, 65536]", "f32[65537, 65536{x}]", "--mesh", "x=4"),
    "nothing in it": ("f32[0{x}, 3]", "f32[0, 3]", "--mesh", "x=2"),
    "no dims": ("f32[] sum{x}", "f32[]", "--mesh", "x=2"),
    "stays pending": ("f32[8{x}] sum{y}", "f32[8] sum{y}", "--mesh", "x=2,y=2"),
    "sub-axes": ("i16[24{x:(1)2}]", "i16[24{x:(1)3}]", "--mesh", "x=6"),
}
MESH = Mesh(x=2)
LABELS = ("bound", "received", "holds for", "shown by", "rests on", "not shown")


def timeless(text: str) -> str:
    return re.sub(r"\d+ ms", "TIME", text)


def stored(redist: Run, folder: Path, name: str) -> Path:
    path = folder / "plan.json"
    path.write_text(redist("plan", *REQUESTS[name], "--json").out, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", REQUESTS)
def test_proves_and_says_everything(redist: Run, name: str) -> None:
    done = redist("prove", *REQUESTS[name])
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == redist("plan", *REQUESTS[name]).out.splitlines()[0]
    assert lines[1].startswith("proved     no device ever holds more than ")
    assert [label for label in LABELS if any(line.startswith(label) for line in lines)] == [*LABELS]
    assert not any(word in done.out for word in ("REFUTED", "UNKNOWN", "WRONG"))


@pytest.mark.parametrize("name", REQUESTS)
def test_json_has_the_figures_of_the_plan(redist: Run, name: str) -> None:
    done = redist("prove", *REQUESTS[name], "--json")
    assert (done.status, done.err) == (0, "")
    data = json.loads(done.out)
    plan = json.loads(redist("plan", *REQUESTS[name], "--json").out)
    assert (data["verdict"], data["reason"]) == ("proved", "")
    assert data["steps"] == [step["op"] for step in plan["steps"]]
    same = ("donate", "limit_bytes", "received_bytes", "lower_bound_bytes")
    assert [data[field] for field in same] == [plan[field] for field in same]
    assert data["bound_bytes"] == plan["peak_bytes"] <= data["formula_bytes"]
    live = [sum(alive.values()) for alive in data["alive_bytes"]]
    assert live == ([step["peak_bytes"] for step in plan["steps"]] or [plan["peak_bytes"]])
    assert data["one_byte_less_is_refuted"] is (plan["peak_bytes"] > 0)
    assert data["shown_by"]["z3"]["verdict"] == "proved"
    assert data["shown_by"]["z3"]["queries"] >= 1
    assert data["shown_by"]["run"]["fault"] is None
    assert (data["shown_by"]["run"]["source"] is None) is (name == "large, uneven")
    assert data["holds_for"] and data["not_shown"] and data["rests_on"]


def test_a_stored_plan_is_proved_like_the_request(
    redist: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(redist, tmp_path, "two meshes")
    asked = redist("prove", *REQUESTS["two meshes"])
    assert timeless(redist("prove", str(path)).out) == timeless(asked.out)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert timeless(redist("prove", "-").out) == timeless(asked.out)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("even", "every array with dims 0, 1 multiples of 4, by the same steps"),
        ("replicated", "every array with dim 0 a multiple of 2 and dim 1 of any size"),
        ("uneven", "dim 0 of any size from 10 on, all else the same, by the same steps"),
        ("limit", "this array alone: under a limit"),
        ("limit", "within the limit of 20 KiB"),
        ("nothing to do", "nothing to do"),
        ("nothing to do", "source + target = "),
        ("donated", "max(source, middle) + max(target, middle) + staging"),
        ("two meshes", "a device of both meshes"),
        ("large", "the smallest of these, f32[64{x}, 64],"),
        ("large, uneven", "not by a run on data"),
        ("sub-axes", "the least that any plan receives"),
        ("stays pending", "= the lower bound\n"),
        ("stays pending", "tested, where a reduction stays pending"),
        ("even", "one byte less is refuted"),
        ("even", "a run takes 8 KiB at least"),
        ("nothing in it", "more than 0 B"),
    ],
)
def test_words(redist: Run, name: str, said: str) -> None:
    assert said in redist("prove", *REQUESTS[name]).out


def test_more_bytes_than_the_least_are_owned_up_to(redist: Run) -> None:
    request = ("f32[64{x}, 64]", "f32[64, 64{x}]", "--mesh", "x=8")
    least = "the least that any plan receives"
    traded = redist("prove", *request).out
    assert f"22 KiB by all devices together = 1.57 x {least}, 14 KiB" in traded
    fewest = redist("prove", *request, "--objective", "bytes").out
    assert f"14 KiB by all devices together = {least}\n" in fewest


def test_a_bound_below_its_formula_is_told_apart(redist: Run) -> None:
    """On two meshes no device holds source and target; the formula alone would say so."""
    request = ("bf16[64{x}]", "bf16[64{z}]", "--mesh", "x=4", "--target-mesh", "z=2@8")
    out = redist("prove", *request).out
    data = json.loads(redist("prove", *request, "--json").out)
    assert data["bound_bytes"] < data["formula_bytes"]
    assert "step by step; never above source + target + staging" in out
    assert "a device of the target" in out


# What is not proved.


@pytest.mark.parametrize(
    ("certificate", "status", "said"),
    [
        (
            Certificate("refuted", "source", 8, "", "z3", counterexample=(("n0", 7),)),
            1,
            "with n0 = 7 more is alive than source",
        ),
        (Certificate("unknown", "source", 8, "", "z3", reason="out of time"), 4, "out of time"),
    ],
)
def test_refuted_and_unknown_have_a_status_each(
    redist: Run,
    monkeypatch: pytest.MonkeyPatch,
    certificate: Certificate,
    status: int,
    said: str,
) -> None:
    monkeypatch.setattr("redist.check.prove.certify", lambda plan, **_: certificate)
    done = redist("prove", *REQUESTS["even"])
    assert done.status == status
    line = done.out.splitlines()[1]
    assert line.startswith(certificate.verdict.upper())
    assert said in line
    assert not any(text.startswith(("proved", "holds for")) for text in done.out.splitlines())
    data = json.loads(redist("prove", *REQUESTS["even"], "--json").out)
    assert data["verdict"] == certificate.verdict
    assert said in data["reason"]


def _spoiled(field: str) -> Callable[[Any], Any]:
    def spoil(run: Any) -> Any:
        if field == "tiles":
            rank = max(run.tiles)
            run.tiles[rank] = run.tiles[rank] + 1
        else:
            getattr(run, field)[0] += 10**9
        return run

    return spoil


@pytest.mark.parametrize("name", ["even", "large"])
@pytest.mark.parametrize("field", ["tiles", "received_bytes", "held_bytes"])
def test_a_run_that_goes_wrong_refutes(
    redist: Run, monkeypatch: pytest.MonkeyPatch, field: str, name: str
) -> None:
    from redist.runtime import simulator

    right, spoil = simulator.simulate, _spoiled(field)
    monkeypatch.setattr(simulator, "simulate", lambda *args: spoil(right(*args)))
    done = redist("prove", *REQUESTS[name])
    assert done.status == 1
    assert done.out.splitlines()[1].startswith("REFUTED")
    assert "went wrong" in done.out


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("steps", 0, "received_bytes"), 1),
        (("steps", 0, "events", 0, "n_bytes"), 1),
        (("lower_bound_bytes",), 1),
        (("peak_bytes",), 1),
        (("steps",), []),
    ],
)
def test_changed_plans_are_rejected(
    redist: Run, tmp_path: Path, keys: tuple[Any, ...], value: Any
) -> None:
    path = stored(redist, tmp_path, "even")

    def edit(data: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    change(path, edit)
    done = redist("prove", str(path), "--smt2", str(tmp_path / "never.smt2"))
    assert (done.status, done.err) == (1, "")
    assert done.out.startswith("rejected   ")
    assert done.out.count("\n") == 1
    assert not (tmp_path / "never.smt2").exists()
    data = json.loads(redist("prove", str(path), "--json").out)
    assert data["verdict"] == "rejected"
    assert data["reason"] in done.out


# Wrong requests.


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("f32[8{x}]", "f32[8]"), "--mesh is missing"),
        (("f32[8{x}]", "f32[9]", "--mesh", "x=2"), "TARGET"),
        (("f32[8{w}]", "f32[8]", "--mesh", "x=2"), "SOURCE"),
        (("f32[8{x}]", "f32[8]", "--mesh", "x=2", "--limit", "9Q"), "--limit"),
        (("plan.json", "--mesh", "x=2"), "--mesh goes with SOURCE and TARGET"),
        (("plan.json", "--donate"), "--donate goes with SOURCE and TARGET"),
        (("plan.json",), "No such file"),
        ((), "FILE|SOURCE"),
        (("f32[8]", "f32[8]", "--mesh", "x=2", "--seed", "1"), "--seed"),
    ],
)
def test_wrong_requests_are_one_line(redist: Run, argv: tuple[str, ...], said: str) -> None:
    done = redist("prove", *argv)
    assert done.status == 2
    assert said in done.one_line()


def test_limit_too_small(redist: Run) -> None:
    done = redist("prove", "f32[8{x}]", "f32[8]", "--mesh", "x=2", "--limit", "8")
    assert done.status == 3
    done.one_line()


def test_queries_are_written_and_can_be_solved_again(redist: Run, tmp_path: Path) -> None:
    path = tmp_path / "queries.smt2"
    done = redist("prove", *REQUESTS["uneven"], "--smt2", str(path), "--json")
    assert done.status == 0
    assert "queries.smt2" in done.err
    queries = path.read_text(encoding="utf-8").split("; live bytes")[1:]
    assert len(queries) == json.loads(done.out)["shown_by"]["z3"]["queries"] == 2
    for query in queries:
        solver = z3.Solver()
        solver.from_string("; live bytes" + query)
        assert solver.check() == z3.unsat
    done = redist("prove", *REQUESTS["even"], "--smt2", str(tmp_path / "none" / "queries.smt2"))
    assert done.status == 2
    assert "--smt2" in done.one_line()


# What it is made of.


def test_theorems_that_it_names_are_there() -> None:
    assert set(THEOREMS) <= set(theorems())
    plan = synthesize("f32[8{x}]", "f32[8]", mesh=MESH)
    assert set(rests_on(plan)) <= set(THEOREMS)
    still = rests_on(synthesize("f32[8]", "f32[8{x}]", mesh=MESH))
    assert still == ["tiles", "rules", "memory", "allocations"]
    assert "pending" in rests_on(synthesize("f32[8] sum{x}", "f32[8]", mesh=MESH))
    assert "factors" not in rests_on(plan)
    dealt = synthesize("f32[9{x/2}]", "f32[9]", mesh=MESH)
    assert "factors" in rests_on(dealt)
    assert any("that segments are right together" in gap for gap in list_gaps(dealt))
    assert not any("that segments are right together" in gap for gap in list_gaps(plan))


def test_the_smallest_array_is_right_and_is_covered() -> None:
    """The same steps, accepted by the checker, and the run of a large plan is one of them."""
    shrunk = 0
    for problem in problems(sample(13, of=120), seed=41):
        plan = synthesize(problem.source, problem.target)
        small = smallest(plan, FLAT)
        assert (small is None) is (unit_dims(plan) is None)
        if small is None:
            continue
        check_plan(small)
        assert [s.op for s in small.steps] == [s.op for s in plan.steps]
        times = plan.source.global_elems // small.source.global_elems
        assert small.received_bytes * times == plan.received_bytes
        assert small.lower_bound_bytes * times == plan.lower_bound_bytes
        assert run_sample(small, FLAT).fault is None
        shrunk += times > 1
    assert shrunk > sample(3, of=30)


def test_a_smaller_array_that_receives_out_of_proportion_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = synthesize("f32[65536{x}, 65536]", "f32[65536, 65536{x}]", mesh=MESH)
    assert run_sample(plan, FLAT).fault is None
    sample = run_sample(replace(plan, lower_bound_bytes=plan.lower_bound_bytes + 4), FLAT)
    assert sample.fault is not None and "lower_bound_bytes" in sample.fault


def test_what_cannot_be_computed_is_not_run_and_says_so() -> None:
    plan = synthesize("S5[8] sum{x}", "S5[8]", mesh=MESH)
    sample = run_sample(plan, FLAT)
    assert (sample.plan, sample.fault) == (None, None)
    assert "cannot" in sample.reason


def test_verdict_needs_every_part() -> None:
    plan = synthesize("f32[8{x}]", "f32[8]", mesh=MESH)
    good = Certificate("proved", "source", 8, "", "z3")
    ran = Sample(plan, None, "", 0.0)
    proof = Proof(plan, None, 0.0, good, 1, 8, True, ran)
    assert proof.verdict == "proved"
    assert replace(proof, sample=replace(ran, fault="lost")).verdict == "refuted"
    assert replace(proof, certificate=replace(good, verdict="unknown")).verdict == "unknown"
    assert Proof(plan, "no", 0.0).verdict == "rejected"


def test_arrays_of_the_family_keep_to_the_formula() -> None:
    """Dims that ``holds_for`` names, planned for themselves with the same steps."""
    grown = 0
    for problem in problems(sample(10, of=60), seed=42, kinds=("even", "uneven")):
        plan = synthesize(problem.source, problem.target, strategy="direct")
        units = unit_dims(plan)
        assert holds_for(plan)[0] == "this array"
        if not plan.steps or plan.source.global_elems == 0:
            continue
        for dim, n in enumerate(plan.source.shape):
            size = n + 1 if units is None else units[dim] * 3
            shape = tuple(size if i == dim else m for i, m in enumerate(plan.source.shape))
            ends = [replace(t, shape=shape) for t in (plan.source, plan.target)]
            again = synthesize(*ends, strategy="direct")
            if [s.op for s in again.steps] != [s.op for s in plan.steps]:
                continue
            larger = max(t.tile_bytes for t in ends)
            staging = max(larger // 8, min(2**20, larger // 2))
            assert again.peak_bytes <= sum(t.tile_bytes for t in ends) + staging
            grown += 1
    assert grown > sample(9, of=60)
