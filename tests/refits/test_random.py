"""Random refits: literal tiles = runs carried out = what the judge says, also of runs that were changed."""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np
import pytest

import redist
from redist import Mesh, Weights
from redist.check.run_rows import RUN
from redist.check.verdict import Verdict
from redist.layout.array_type import ArrayType
from tests.problems.refits import (
    Machine,
    Memory,
    Moves,
    Refit,
    Side,
    places_of,
    random_refit,
)
from tests.tiers import THOROUGH


@lru_cache(maxsize=256)
def _type_of(text: str, mesh: str) -> ArrayType:
    return ArrayType.parse(text, Mesh.parse(mesh))


def weights_of(side: Side, turned: bool = False) -> Weights:
    items = [(name, _type_of(*texts)) for name, texts in side.types.items()]
    return Weights(dict(reversed(items) if turned else items), names=side.rules)


def plan_of(problem: Refit) -> redist.RefitPlan:
    source, target = weights_of(problem.source), weights_of(problem.target)
    return redist.refit(source, target, limit_bytes=problem.limit)


def refit_of(seed: int) -> Refit:
    """50 weights: all different, or several layers that are alike."""
    return random_refit(seed, alike=1 if seed % 40 == 0 else 8)


TOGETHER = 20 if THOROUGH else 1
"""Cases of one item of pytest."""


@pytest.mark.parametrize("first", range(0, 2000 if THOROUGH else 10, TOGETHER))
def test_random(first: int) -> None:
    refuted = 0
    for seed in range(first, first + TOGETHER):
        problem = refit_of(seed)
        plan = plan_of(problem)
        machine = Machine(problem.source.tiles, problem.target.tiles)
        moves = machine.carry_out(plan, plan.ranks)
        for key, tile in problem.target.tiles.items():
            assert np.array_equal(machine.tiles[key], tile.reshape(-1).view(np.uint8)), (seed, key)
        judge = Judge(problem, plan)
        assert judge.is_right(moves), seed
        assert machine.received == plan.received_bytes == plan.lower_bound_bytes
        assert plan.received_bytes == problem.lacking_bytes
        assert plan.staging_bytes == max(machine.loads.values(), default=0)
        if problem.limit is not None:
            assert plan.staging_bytes <= problem.limit
        assert max(plan.sent_bytes.values(), default=0) >= plan.least_sent_bytes
        verdict = judge.verdict(moves, plan.limit_bytes)
        assert verdict.is_right, (seed, verdict)
        assert verdict.received_bytes == verdict.lower_bound_bytes == problem.lacking_bytes
        assert verdict.peak_bytes == plan.staging_bytes
        changed = mutant(random.Random(seed), moves, plan)
        assert judge.verdict(changed).is_right == judge.is_right(changed), (seed, changed)
        refuted += not judge.is_right(changed)
    assert refuted >= TOGETHER // 4  # some changes do no harm


class Judge:
    """Judges moves: by :func:`redist.check_runs`, and by what they bring to every byte."""

    def __init__(self, problem: Refit, plan: redist.RefitPlan) -> None:
        sides = plan.source, plan.target
        self.boxes = [side.boxes() for side in sides]
        self.numbers = [np.full((1 + max(plan.ranks), len(side.stored)), -1) for side in sides]
        for side, boxes, numbers in zip(sides, self.boxes, self.numbers, strict=True):
            place = {name: k for k, name in enumerate(side.stored)}
            numbers[boxes.ranks, [place[name] for name in boxes.names]] = range(len(boxes.names))
        tiles = problem.source.tiles, problem.target.tiles
        self.memories = [Memory(t, side.stored) for t, side in zip(tiles, sides, strict=True)]
        self.tags = [m.tags(t) for m, t in zip(self.memories, tiles, strict=True)]

    def verdict(self, moves: Moves, limit: int | None = None) -> Verdict:
        rows = np.empty(len(moves), RUN)
        for name, numbers, where in (
            ("source", self.numbers[0], ("sender", "there", "there_offset", "there_step")),
            ("target", self.numbers[1], ("receiver", "tensor", "offset", "step")),
        ):
            rank, tensor, rows[f"{name}_offset"], rows[f"{name}_step"] = (moves[w] for w in where)
            rows[name] = numbers[rank, tensor]
        for name in ("round", "bytes", "count"):
            rows[name] = moves[name]
        return redist.check_runs(rows, *self.boxes, limit_bytes=limit)

    def is_right(self, moves: Moves) -> bool:
        try:
            a, b = places_of(moves, *self.memories)
        except IndexError:
            return False
        wanted = self.tags[1]
        got, times = np.full(len(wanted), -1), np.zeros(len(wanted), np.int64)
        got[b] = self.tags[0][a]
        np.add.at(times, b, 1)
        return np.array_equal(got, wanted) and np.array_equal(times, wanted >= 0)


def mutant(rng: random.Random, moves: Moves, plan: redist.RefitPlan) -> Moves:
    """One run is changed, left out, or there twice. Some changes do no harm: another copy may send."""
    k = rng.randrange(len(moves))
    out = moves.copy()
    run = out[k]
    match rng.choice(
        ("out", "twice", "from", "to", "shorter", "longer", "fewer", "step", "sender")
    ):
        case "twice":
            return np.append(moves, moves[k])
        case "from":
            run["there_offset"] += rng.choice((-8, -2, -1, 1, 2, 8))
        case "to":
            run["offset"] += rng.choice((-8, -2, -1, 1, 2, 8))
        case "shorter" if run["bytes"] > 1:
            run["bytes"] -= 1
        case "longer":
            run["bytes"] += rng.choice((1, 2, 8))
        case "fewer" if run["count"] > 1:
            run["count"] -= 1
        case "step" if run["count"] > 1:
            run[rng.choice(("step", "there_step"))] += rng.choice((-1, 1, 2))
        case "sender":
            others = [r for r in plan.source.ranks if r in plan.source.types[
                plan.source.stored[run["there"]]].mesh.ranks]  # fmt: skip
            run["sender"] = rng.choice(others)
        case _:
            return np.delete(moves, k)
    return out


def test_equal_however_dicts_are_ordered() -> None:
    problem = random_refit(3)
    other = redist.refit(
        weights_of(problem.source, turned=True), weights_of(problem.target, turned=True),
        limit_bytes=problem.limit,
    )  # fmt: skip
    assert plan_of(problem).digest == other.digest
