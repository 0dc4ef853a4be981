"""The random problems: the same everywhere, of every kind, and all of them can be planned."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

import redist
from bench.problems.judge import judge
from tests.problems.problems import DEVICES, KINDS, is_of_its_kind, problems
from tests.tiers import sample

DIGEST = "4afb11db2f561fce"


def test_the_first_problems_are_those_they_always_were() -> None:
    text = "\n".join(f"{p.kind}: {p}" for p in problems(50))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGEST, text[:500]


def test_a_seed_decides_everything() -> None:
    assert list(problems(30, seed=7)) == list(problems(30, seed=7))
    assert list(problems(30, seed=7)) != list(problems(30, seed=8))
    assert list(problems(30, seed=7))[:10] == list(problems(10, seed=7))


def test_every_kind_has_a_fifth_and_is_what_it_says() -> None:
    found = list(problems(1000, seed=3))
    count = Counter(p.kind for p in found)
    assert set(count) == set(KINDS) and min(count.values()) >= len(found) // 5
    assert all(map(is_of_its_kind, found))
    for p in found:
        assert p.source != p.target
        if p.kind not in ("two meshes", "pending"):
            assert p.source.mesh == p.target.mesh
            assert p.source.pending_op is None and p.target.pending_op is None


def test_ranks_and_devices_are_as_stated() -> None:
    found = list(problems(500, seed=4))
    assert {p.source.ndim for p in found} == {1, 2, 3, 4}
    assert {p.source.mesh.n_devices for p in found} == set(DEVICES)
    few = list(problems(50, kinds=("even",), devices=(8, 12), most_dims=2))
    assert {p.source.mesh.n_devices for p in few} == {8, 12}
    assert {p.source.ndim for p in few} == {1, 2} and {p.kind for p in few} == {"even"}


@pytest.mark.parametrize("objective", ["time", "bytes"])
def test_every_problem_can_be_planned(objective: str) -> None:
    for p in problems(sample(17, of=50), seed=5):
        plan = judge(redist.synthesize(p.source, p.target, objective=objective))
        assert plan.certificate is not None and plan.certificate.verdict == "proved", str(p)
        assert plan.received_bytes >= plan.lower_bound_bytes, str(p)
