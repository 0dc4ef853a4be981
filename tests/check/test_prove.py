"""Certificates: what must be proved is, what must be refuted is, and unknown is neither."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import z3

from redist import ArrayType, Mesh, Plan, synthesize
from redist.check import prove
from redist.check.prove import certify, count_queries, formula_bytes, smt2
from redist.plan.request import Request
from redist.synth.find import find_plan
from tests.problems.problems import problems
from tests.tiers import sample


def plans(n: int, seed: int) -> list[Plan]:
    out = []
    for i, problem in enumerate(problems(n, seed=seed)):
        base = problem.source.tile_bytes + problem.target.tile_bytes
        request = Request(
            problem.source,
            problem.target,
            donate=i % 2 == 0,
            strategy=("auto", "auto", "collectives")[i % 3],
            limit_bytes=base + 1024 if i % 3 == 1 else None,
        )
        out.append(find_plan(request))
    return out


def test_every_plan_is_proved_with_its_peak_as_the_bound():
    for plan in plans(sample(10, of=100), seed=31):
        certificate = certify(plan)
        assert certificate.verdict == "proved", f"{plan}\n{certificate}"
        assert certificate.bound_bytes == plan.peak_bytes <= formula_bytes(plan)
        assert certificate.counterexample == ()


def test_even_tiles_are_proved_for_all_multiples():
    plan = synthesize("f32[64{x}, 64{y}]", "f32[64, 64]", mesh=Mesh(x=2, y=4))
    assert plan.certificate is not None
    assert "every multiple" in plan.certificate.scope
    uneven = synthesize("f32[7{x}, 64]", "f32[7, 64{x}]", mesh=Mesh(x=2))
    assert uneven.certificate is not None and "larger" in uneven.certificate.scope


def test_one_byte_less_than_the_peak_is_refuted():
    for plan in plans(sample(10, of=60), seed=32):
        assert certify(plan, bound_bytes=plan.peak_bytes).verdict == "proved"
        if plan.peak_bytes:
            refuted = certify(plan, bound_bytes=plan.peak_bytes - 1)
            assert refuted.verdict == "refuted"
            sizes = [n for _, n in refuted.counterexample]
            assert sizes == list(plan.source.shape)


def peak_moments(plan: Plan) -> list[int]:
    return [k for k, step in enumerate(plan.steps) if step.peak_bytes == plan.peak_bytes]


def with_event(plan: Plan, number: int, i: int, **changes: Any) -> Plan:
    step = plan.steps[number]
    events = list(step.events)
    events[i] = replace(events[i], **changes)
    changed = replace(step, events=tuple(events))
    return replace(plan, steps=(*plan.steps[:number], changed, *plan.steps[number + 1 :]))


def one_set(plan: Plan) -> bool:
    return plan.source.mesh.ranks == plan.target.mesh.ranks


def test_enlarging_any_event_alive_at_the_peak_is_refuted():
    enlarged = 0
    for plan in filter(one_set, plans(sample(15, of=80), seed=33)):
        for moment in peak_moments(plan):
            for number, step in enumerate(plan.steps):
                for i, event in enumerate(step.events):
                    if event.born <= moment <= event.freed:
                        larger = with_event(plan, number, i, n_bytes=event.n_bytes + 1)
                        assert certify(larger).verdict == "refuted", f"{plan}\n{event}"
                        enlarged += 1
    assert enlarged > sample(13, of=80)


def test_delaying_any_release_across_the_peak_is_refuted():
    delayed = 0
    for plan in filter(one_set, plans(sample(20, of=200), seed=34)):
        for moment in peak_moments(plan):
            for number, step in enumerate(plan.steps):
                for i, event in enumerate(step.events):
                    if event.freed < moment and event.n_bytes:
                        late = with_event(plan, number, i, freed=moment)
                        assert certify(late).verdict == "refuted", f"{plan}\n{event}"
                        delayed += 1
    assert delayed > sample(2, of=20)


def test_bringing_an_allocation_forward_to_the_peak_is_refuted():
    early = 0
    for plan in filter(one_set, plans(sample(40, of=200), seed=35)):
        moment = peak_moments(plan)[0] if plan.steps else 0
        for number, step in enumerate(plan.steps):
            for i, event in enumerate(step.events):
                if event.what == "middle" and event.born > moment and event.n_bytes:
                    sooner = with_event(plan, number, i, born=moment)
                    assert certify(sooner).verdict == "refuted", f"{plan}\n{event}"
                    early += 1
    assert early > sample(0, of=5)


def test_on_two_meshes_an_event_on_every_rank_enlarged_at_the_peak_is_refuted():
    enlarged = 0
    for plan in plans(sample(40, of=200), seed=37):
        if one_set(plan):
            continue
        for moment in peak_moments(plan):
            i = next(i for i, e in enumerate(plan.steps[moment].events) if e.what == "staging")
            staging = plan.steps[moment].events[i]
            larger = with_event(plan, moment, i, n_bytes=staging.n_bytes + 1)
            assert certify(larger).verdict == "refuted", f"{plan}"
            enlarged += 1
    assert enlarged > sample(3, of=20)


def test_a_refutation_names_sizes_of_the_family():
    plan = synthesize("f32[64{x}, 64{y}]", "f32[64, 64]", mesh=Mesh(x=2, y=4))
    last = len(plan.steps) - 1
    refuted = certify(with_event(plan, last, 0, n_bytes=plan.target.tile_bytes + 4))
    assert refuted.verdict == "refuted"
    sizes = dict(refuted.counterexample)
    assert sizes["n0"] % 2 == 0 and sizes["n1"] % 4 == 0


def test_no_proof_is_vacuous():
    """What a proof assumes is possible for this very array."""
    for plan in plans(sample(10, of=120), seed=38):
        for claim in prove._claims(plan):
            assert claim.scale is not None
            solver = z3.Solver()
            solver.add(*claim.negation[:-1], claim.scale.variable == claim.scale.here)
            assert solver.check() == z3.sat, f"{plan}\n{claim.name}"


def test_multiples_of_even_dims_stay_within_the_formula():
    """Plan the same steps for larger arrays: their peaks are what the certificate promised."""
    compared = 0
    for problem in problems(sample(14, of=80), seed=39, kinds=("even", "sub-axes")):
        plan = synthesize(problem.source, problem.target, strategy="direct")
        if not all(t.is_even for t in plan.types) or not plan.steps:
            continue
        for factor in (2, 5, 64):
            larger = [
                ArrayType(t.mesh, t.dtype, (t.shape[0] * factor, *t.shape[1:]), t.dims)
                for t in (plan.source, plan.target)
            ]
            again = synthesize(*larger, strategy="direct")
            tiles = sum(t.tile_bytes for t in larger)
            widest = max(t.tile_bytes for t in larger)
            assert again.peak_bytes <= tiles + max(widest // 8, min(2**20, widest // 2))
            compared += 1
    assert compared > sample(9, of=60)


def test_with_a_limit_the_proof_is_about_this_array():
    ends = "f32[4096{x}, 4096{y}]", "f32[4096{y}, 4096{x}]"
    plan = synthesize(*ends, mesh=Mesh(x=2, y=4), limit_bytes=2**24 + 4096)
    assert plan.certificate is not None
    assert plan.certificate.verdict == "proved" and plan.certificate.scope == "this array"


def test_unknown_is_not_proved(monkeypatch):
    plan = synthesize("f32[64{x}]", "f32[64]", mesh=Mesh(x=2))
    monkeypatch.setattr(z3.Solver, "check", lambda self: z3.unknown)
    monkeypatch.setattr(z3.Solver, "reason_unknown", lambda self: "timeout")
    certificate = certify(plan)
    assert certificate.verdict == "unknown"
    assert "timeout" in certificate.reason
    assert "proved" not in certificate.summary()


def test_the_dump_can_be_solved_again():
    for plan in plans(10, seed=36):
        queries = smt2(plan).split("; live bytes")[1:]
        assert len(queries) == count_queries(plan) > 0
        for query in queries:
            solver = z3.Solver()
            solver.from_string("; live bytes" + query)
            assert solver.check() == z3.unsat


@pytest.mark.parametrize("donate", [False, True])
def test_doing_nothing_needs_a_copy_unless_donated(donate):
    plan = synthesize("f32[8{x}]", "f32[8{x}]", mesh=Mesh(x=2), donate=donate)
    assert plan.steps == ()
    assert plan.peak_bytes == (16 if donate else 32)
    assert plan.certificate is not None and plan.certificate.verdict == "proved"
