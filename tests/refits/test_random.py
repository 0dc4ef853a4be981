"""Random refits: literal tiles = runs carried out, bytes = bound, rounds within the limit."""

from __future__ import annotations

import numpy as np
import pytest

import redist
from redist import Mesh, Weights
from redist.layout.array_type import ArrayType
from tests.problems.refits import PADDING, Machine, Refit, Side, random_refit
from tests.tiers import sample


def weights_of(side: Side, turned: bool = False) -> Weights:
    items = [(n, ArrayType.parse(t, Mesh.parse(m))) for n, (t, m) in side.types.items()]
    return Weights(dict(reversed(items) if turned else items), names=side.rules)


def plan_of(problem: Refit) -> redist.RefitPlan:
    source, target = weights_of(problem.source), weights_of(problem.target)
    return redist.refit(source, target, limit_bytes=problem.limit)


@pytest.mark.parametrize("seed", range(sample(10, of=2000)))
def test_random(seed: int) -> None:
    problem = random_refit(seed)
    plan = plan_of(problem)
    machine = Machine(problem.source.tiles, problem.target.tiles)
    machine.carry_out(plan, plan.ranks)
    for key, tile in problem.target.tiles.items():
        got = machine.tiles[key].view(tile.dtype).reshape(tile.shape)
        assert np.array_equal(got, tile), key
        wanted = np.repeat(tile.reshape(-1) != PADDING, tile.itemsize)
        assert np.array_equal(machine.written[key], wanted), key
    assert machine.received == plan.received_bytes == plan.lower_bound_bytes
    assert plan.received_bytes == problem.lacking_bytes
    assert plan.staging_bytes == max(machine.loads.values(), default=0)
    if problem.limit is not None:
        assert plan.staging_bytes <= problem.limit
    assert max(plan.sent_bytes.values(), default=0) >= plan.least_sent_bytes


def test_equal_however_dicts_are_ordered() -> None:
    problem = random_refit(3)
    other = redist.refit(
        weights_of(problem.source, turned=True), weights_of(problem.target, turned=True),
        limit_bytes=problem.limit,
    )  # fmt: skip
    assert plan_of(problem).digest == other.digest
