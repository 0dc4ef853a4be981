"""What a step asks of ranks: pieces that fit together, fill every tile and give its values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from redist import Mesh, Topology, synthesize
from redist.layout.array_type import ArrayType
from redist.layout.tiles import tile_shapes
from redist.plan.pieces import Piece
from redist.plan.rates import FLAT
from redist.plan.request import Request
from redist.plan.steps import Step
from redist.plan.topology import Level
from redist.runtime.copies.reduce import combine, identity
from redist.runtime.schedule.pieces import StepPieces, pieces_of_copy, pieces_of_step, split
from redist.runtime.simulator import random_tiles, simulate
from redist.synth.find import find_plan
from tests.problems.problems import problems
from tests.tiers import sample

NODES = Topology((Level("node", 4, 0, 100_000), Level("network", None, 2_000_000, 100_000)))


def box(lo: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    return (..., *(slice(a, a + n) for a, n in zip(lo, shape, strict=True)))


def steps_of(n: int, seed: int, **options: Any) -> Iterator[tuple[Step, ArrayType, Topology]]:
    for number, problem in enumerate(problems(n, seed, devices=(4, 6, 8))):
        if problem.source.global_elems > 3000:
            continue
        topology = (FLAT, NODES)[number % 2]
        plan = find_plan(Request(problem.source, problem.target, topology=topology, **options))
        for step, before in zip(plan.steps, plan.types, strict=False):
            yield step, before, topology


def phases_by_rank(step: Step, before: ArrayType, topology: Topology) -> dict[int, Any]:
    ranks = {*before.mesh.ranks, *step.after.mesh.ranks}
    return {rank: pieces_of_step(step, before, rank, topology) for rank in ranks}


def run(step: Step, before: ArrayType, tiles: Any, phases: dict[int, Any]) -> dict[int, Any]:
    """A step, piece by piece."""
    dtype = before.dtype
    after = {
        rank: np.zeros(shape, dtype.to_numpy()) for rank, shape in tile_shapes(step.after).items()
    }
    for k in range(max(map(len, phases.values()))):
        source = after if next(iter(phases.values()))[k].again else tiles
        source = {rank: tile.copy() for rank, tile in source.items()}
        for rank in after:
            phase: StepPieces = phases[rank][k]
            if phase.fills:
                after[rank][...] = identity(phase.op or "", dtype)
            for p in phase.pieces:
                if p.receiver != rank:
                    continue
                data = source[p.sender][box(p.src_lo, p.shape)]
                to = after[rank][box(p.dst_lo, p.shape)]
                to[...] = (
                    combine(phase.op or "", dtype, to.copy(), data.copy()) if p.order else data
                )
    return after


@pytest.mark.parametrize("strategy", ["auto", "collectives", "no_permute", "direct"])
def test_pieces_give_what_the_simulator_gives(strategy: str) -> None:
    checked = set()
    for number, problem in enumerate(problems(sample(10, of=40), seed=5, devices=(4, 6, 8))):
        if problem.source.global_elems > 3000:
            continue
        topology = (FLAT, NODES)[number % 2]
        request = Request(problem.source, problem.target, strategy=strategy, topology=topology)
        plan = find_plan(request)
        here: Any = random_tiles(problem.source, number)
        want = simulate(plan, here, topology).tiles
        for step, before in zip(plan.steps, plan.types, strict=False):
            with np.errstate(over="ignore"):
                here = run(step, before, here, phases_by_rank(step, before, topology))
            checked.add(step.op)
        assert {r: t.tobytes() for r, t in here.items()} == {
            r: t.tobytes() for r, t in want.items()
        }
    assert len(checked) >= (2 if strategy == "direct" else 4), checked


@pytest.mark.parametrize("strategy", ["auto", "collectives"])
def test_pieces_cover_every_tile_once_and_both_ends_know_them(strategy: str) -> None:
    n = 0
    for step, before, topology in steps_of(sample(10, of=50), 6, strategy=strategy):
        phases = phases_by_rank(step, before, topology)
        count = max(map(len, phases.values()))
        for k in range(count):
            told: dict[Piece, int] = {}
            for rank, own in phases.items():
                for piece in own[k].pieces:
                    assert rank in (piece.sender, piece.receiver)
                    assert 0 not in piece.shape
                    told[piece] = told.get(piece, 0) + 1
                assert len(set(own[k].pieces)) == len(own[k].pieces)
            assert all(told[p] == (1 if p.sender == p.receiver else 2) for p in told)
            for rank, shape in tile_shapes(step.after).items():
                check_cover(phases[rank][k], rank, shape, count)
            n += 1
    assert n > sample(5, of=35)


def check_cover(phase: StepPieces, rank: int, shape: tuple[int, ...], n_phases: int) -> None:
    """Pieces of order 0 fill the tile but where it says so; those of later orders lie on them."""
    seen: dict[int, Any] = {}
    for p in phase.pieces:
        if p.receiver == rank:
            assert p.dst_shape == shape
            over = seen.setdefault(p.order, np.zeros(shape, int))
            over[box(p.dst_lo, p.shape)] += 1
    assert all((over <= 1).all() for over in seen.values())
    first = seen.get(0, np.zeros(shape, int))
    if n_phases == 1:
        assert phase.fills == (first.sum() < math.prod(shape))
    orders = sorted(seen)
    assert orders == list(range(len(orders)))
    assert all((seen[order] <= first).all() for order in orders)


def test_bytes_received_are_those_of_the_plan() -> None:
    n = 0
    for step, before, topology in steps_of(sample(20, of=40), 7):
        if step.op == "all_reduce":
            continue
        phases = phases_by_rank(step, before, topology)
        got = sum(
            math.prod(p.shape)
            for rank, own in phases.items()
            for p in own[0].pieces
            if p.receiver == rank != p.sender
        )
        assert got * before.dtype.itemsize == step.received_bytes
        assert all(own[0].is_local == (got == 0) for own in phases.values())
        n += 1
    assert n > 20


def test_all_reduce_scatters_then_gathers() -> None:
    plan = synthesize("f64[5, 3] sum{x}", "f64[5, 3]", mesh=Mesh(x=4), strategy="direct")
    (step,) = plan.steps
    assert step.op == "all_reduce"
    phases = phases_by_rank(step, plan.source, FLAT)
    for rank, (scatter, gather) in phases.items():
        assert not scatter.again and gather.again
        own = [p for p in scatter.pieces if p.receiver == rank]
        assert [p.order for p in own] == sorted(p.order for p in own)
        kept = np.zeros((5, 3), int)
        for p in (p for p in own if p.order == 0):
            kept[box(p.dst_lo, p.shape)] += 1
        for p in (p for p in gather.pieces if p.receiver == rank):
            kept[box(p.dst_lo, p.shape)] += 1
        assert (kept == 1).all()


def test_a_plan_without_steps_copies() -> None:
    t = ArrayType.parse("f32[5{x}, 2]", Mesh(x=2))
    assert [p.shape for p in pieces_of_copy(t, 1).pieces] == [(2, 2)]
    assert pieces_of_copy(t, 1).is_local
    assert pieces_of_copy(t, 7).pieces == ()


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 5), (3, 1, 4)])
@pytest.mark.parametrize("parts", [1, 2, 3, 8, 100])
def test_split_covers_a_box_with_enough_boxes(shape: tuple[int, ...], parts: int) -> None:
    seen = np.zeros(shape, int)
    boxes = list(split(shape, parts))
    for lo, size in boxes:
        seen[box(lo, size)] += 1
    assert (seen == 1).all()
    assert len(boxes) >= min(parts, math.prod(shape))
