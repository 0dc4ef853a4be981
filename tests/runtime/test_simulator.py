"""The simulator against the brute-force oracle: values, bytes received, bytes held."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import pytest

from redist import Mesh, RedistError, synthesize
from redist.layout.dtype import DType
from redist.plan.request import Request
from redist.runtime.copies.reduce import combine, identity
from redist.runtime.simulator import global_value, is_correct, random_tiles, simulate
from redist.synth.find import find_plan
from tests.problems import oracle
from tests.problems.problems import Problem, problems
from tests.tiers import sample

REDUCE: dict[str, Any] = {"sum": operator.add, "prod": operator.mul, "max": max, "min": min}


def whole(problem: Problem, tiles) -> dict[tuple[int, ...], object]:
    """The value of every index, by the oracle alone."""
    t = problem.source
    held, labels = oracle.holdings(t), oracle.labels(t)
    values: dict[tuple[int, ...], dict[tuple[int, ...], object]] = {}
    for rank, indices in held.items():
        for index, value in zip(sorted(indices), tiles[rank].reshape(-1), strict=True):
            values.setdefault(index, {})[labels[rank]] = value
    return {
        index: functools.reduce(REDUCE[t.pending_op or "sum"], [part[k] for k in sorted(part)])
        for index, part in values.items()
    }


def small(problem: Problem) -> bool:
    return problem.source.global_elems <= 2000


@pytest.mark.parametrize("strategy", ["auto", "collectives", "no_permute", "direct"])
def test_simulated_plans_agree_with_the_oracle(strategy):
    checked = 0
    for number, problem in enumerate(filter(small, problems(sample(19, of=110), seed=41))):
        plan = find_plan(Request(problem.source, problem.target, strategy=strategy))
        tiles = random_tiles(problem.source, number)
        before = {rank: tile.copy() for rank, tile in tiles.items()}
        done = simulate(plan, tiles)
        assert all((before[rank] == tiles[rank]).all() for rank in tiles), "source was changed"
        assert sum(done.received_bytes.values()) == plan.received_bytes, str(problem)
        assert max(done.held_bytes.values()) <= plan.peak_bytes, str(problem)
        assert is_correct(plan, tiles, done.tiles), str(problem)
        if problem.target.pending_op is None:
            with np.errstate(over="ignore"):
                expected = whole(problem, tiles)
            for rank, indices in oracle.holdings(problem.target).items():
                values = done.tiles[rank].reshape(-1).tolist()
                assert values == [np.asarray(expected[i]).item() for i in sorted(indices)], rank
        checked += 1
    assert checked > sample(8, of=60)


def test_received_bytes_reach_the_lower_bound_rank_by_rank():
    for problem in filter(
        small, problems(sample(10, of=60), seed=42, kinds=("even", "uneven", "two meshes"))
    ):
        plan = find_plan(Request(problem.source, problem.target, objective="bytes"))
        done = simulate(plan, random_tiles(problem.source))
        itemsize = problem.source.dtype.itemsize
        for rank, n in oracle.lacking(problem.source, problem.target).items():
            assert done.received_bytes[rank] == n * itemsize


@pytest.mark.parametrize("dtype", ["bool", "u8", "i64", "f16", "f64", "c128", "S5", "V3"])
def test_every_dtype_moves(dtype):
    plan = synthesize(f"{dtype}[6{{x}}, 4]", f"{dtype}[6, 4{{x}}]", mesh=Mesh(x=2))
    tiles = random_tiles(plan.source, 1)
    assert is_correct(plan, tiles, simulate(plan, tiles).tiles)


@pytest.mark.parametrize("dtype", ["bf16", "f8e4m3fn", "f8e5m2"])
def test_small_floats_move_as_bytes_and_reduce_with_ml_dtypes(dtype):
    plan = synthesize(f"{dtype}[6{{x}}, 4]", f"{dtype}[6, 4{{x}}]", mesh=Mesh(x=2))
    tiles = random_tiles(plan.source, 1)
    assert is_correct(plan, tiles, simulate(plan, tiles).tiles)
    pytest.importorskip("ml_dtypes", reason="reducing bf16 and f8 needs the package ml_dtypes")
    plan = synthesize(f"{dtype}[6, 4] sum{{x}}", f"{dtype}[6{{x}}, 4]", mesh=Mesh(x=2))
    tiles = random_tiles(plan.source, 1)
    assert is_correct(plan, tiles, simulate(plan, tiles).tiles)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["bool", "u8", "i32", "f16", "f64"])
def test_the_identity_changes_nothing(op, dtype):
    kind = DType.parse(dtype)
    values = np.array([0, 1, 1, 0], dtype=kind.to_numpy())
    blank = np.full_like(values, identity(op, kind))
    assert (combine(op, kind, values, blank) == values).all()


def test_complex_numbers_have_no_order():
    with pytest.raises(RedistError, match="order"):
        identity("max", DType.parse("c64"))


def test_wrong_tiles_are_refused():
    plan = synthesize("f32[8{x}]", "f32[8]", mesh=Mesh(x=2))
    with pytest.raises(RedistError, match="rank 1 has no tile"):
        simulate(plan, {0: np.zeros(4, "f4")})
    with pytest.raises(RedistError, match="rank 0 has"):
        simulate(plan, {0: np.zeros(5, "f4"), 1: np.zeros(4, "f4")})


def test_replicas_that_disagree_are_noticed():
    plan = synthesize("f32[8{x}]", "f32[8]", mesh=Mesh(x=2))
    with pytest.raises(RedistError, match="other values"):
        global_value(plan.target, {0: np.zeros(8, "f4"), 1: np.ones(8, "f4")})
