"""Theorem allocations speaks of what runs: staging is divided so, and buffers die when it says so."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import redist
from proofs.theorems.allocations import staging_taken
from redist.layout.dtype import DType
from redist.plan.pieces import Piece
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.runtime.host import staging as staging_module
from redist.runtime.host.executor import HostExecutor, OwnTiles
from redist.runtime.ranks.control_page import LEAST_POOL_BYTES
from redist.runtime.schedule.pieces import StepPieces
from redist.runtime.schedule.rounds import make_rounds
from redist.runtime.schedule.stages import StagePart, TransferStages
from tests.fakes.ranks import random_groups, staged
from tests.problems.strategies import random_pair
from tests.tiers import sample


def random_loads(rng: Random, n: int) -> list[list[StagePart]]:
    """Random pieces between random ranks, some of them partial values."""
    pieces = []
    for _ in range(rng.randint(1, 12)):
        shape = tuple(rng.randint(1, rng.choice([3, 40])) for _ in range(rng.randint(1, 2)))
        sender, receiver = rng.randrange(n), rng.randrange(n)
        tile = tuple(k + 3 for k in shape)
        lo = (rng.randrange(3),) * len(shape)
        pieces.append(Piece(sender, receiver, rng.randrange(2), lo, lo, shape, tile, tile))
    dtype = DType.parse(rng.choice(["u8", "f32", "c128"]))
    return [
        [
            StagePart(
                StepPieces(
                    tuple(p for p in pieces if rank in (p.sender, p.receiver)),
                    "sum", False, False, False, (9, 9),
                ),
                dtype,
            )
        ]
        for rank in range(n)
    ]  # fmt: skip


def test_staging_is_divided_as_the_theorem_says(monkeypatch: pytest.MonkeyPatch) -> None:
    slots: list[int] = []
    real = make_rounds

    def spy(weights: Any, parts: Any, slot_bytes: int) -> Any:
        slots.append(slot_bytes)
        return real(weights, parts, slot_bytes)

    monkeypatch.setattr(staging_module, "make_rounds", spy)
    rng = Random(1)
    points = within = sides = 0
    while points < sample(300, of=3000):
        n = rng.randint(2, 5)
        groups, limited = random_groups(rng, n), rng.random() < 0.5
        budget = rng.choice([0, 100, 8191, 8192, rng.randrange(40_000), rng.randrange(2**22)])
        slots.clear()
        got = staged(random_loads(rng, n), groups, budget, limited)
        one_node, shared = len(set(groups)) == 1, len(set(groups)) < n
        for each in got:
            messages = each.halves * (each.send_bytes + each.receive_bytes)
            taken = 2 * each.slot_bytes + messages
            one_sided = 0 in (each.send_bytes, each.receive_bytes) and not one_node
            combined = each.receive_bytes
            if one_sided and combined <= 2 * slots[0]:
                combined = (
                    0  # what is not sent leaves room for what is received, and the other way round
                )
            said = staging_taken(
                budget, limited, one_node, shared, each.slot_bytes, combined, each.halves
            )
            assert said == (slots[0], taken) or (one_sided and taken <= said[1])
            sides += one_sided and taken > 0
            assert each.slot_bytes % 64 == 0 and (shared or each.slot_bytes == 0)
            fits = each.slot_bytes <= slots[0] + 63 and combined <= max(0, slots[0])
            if budget >= LEAST_POOL_BYTES and fits:
                assert taken <= budget
                within += 1
            points += 1
        assert len(set(slots)) == 1
    assert within > sample(67, of=1000) and sides > sample(3, of=20)


def walked(
    plan: Plan, schedule: TransferStages, keep: bool
) -> Iterator[tuple[StagePart, set[int], bool]]:
    """Stage by stage, the buffers that exist, by the executor's own bookkeeping; whether all stay."""
    buffers = OwnTiles(schedule, plan.donate, keep)
    executor: Any = SimpleNamespace(
        schedule=schedule,
        donates=plan.donate,
        keeps_tiles=buffers.keeps,
        placed_tiles=buffers.placed_tiles,
        wait_for_readers=lambda: None,
        free=lambda *tile: None,
    )
    held: dict[tuple[int, int], Any] = {(0, 0): None, (0, schedule.last(0)): None}
    for number, (part,) in enumerate(schedule.stages):
        held.setdefault((0, part.source), None)
        held.setdefault((0, part.target), None)
        yield part, {buffer for _, buffer in held}, buffers.keeps
        if number + 1 < len(schedule.stages):
            HostExecutor._free_tiles(executor, number, held, False)


def test_buffers_live_as_the_model_says() -> None:
    """On every rank, at every stage: the tiles that exist, the target's from its own stage on."""
    rng = Random(2)
    stages, several, keeping, early, views = 0, 0, 0, 0, 0
    while stages < sample(250, of=2500):
        source, target = random_pair(rng, max_devices=8, max_elems=200)
        strategy = rng.choice(["auto", "collectives", "no_permute"])
        plan = redist.synthesize(source, target, strategy=strategy, donate=rng.random() < 0.5)
        if not plan.steps:
            continue
        for rank in {*source.mesh.ranks, *target.mesh.ranks}:
            schedule = TransferStages.of([plan], rank, FLAT)
            shapes = [schedule.shape_of(0, k) for k in range(schedule.last(0) + 1)]
            sizes = [0 if s is None else math.prod(s) * source.dtype.itemsize for s in shapes]
            placed_tiles = (
                schedule.placed_tiles()
            )  # while they are there, the target's other pages need not be
            own = [0 if (0, k) in placed_tiles else size for k, size in enumerate(sizes)]
            for part, buffers, keeps in walked(plan, schedule, rng.random() < 0.5):
                step = plan.steps[part.step_number]
                needed = buffers - ({schedule.last(0)} - {part.target})
                held = sum(sizes[k] for k in needed) + step.staging_bytes
                as_modelled = schedule.homes[0] == tuple(range(len(plan.types)))
                assert held <= (step.peak_bytes if as_modelled and not keeps else plan.peak_bytes)
                views += not as_modelled
                if keeps:
                    assert sum(own) + step.staging_bytes <= plan.peak_bytes
                if not schedule.is_tight_beside(placed_tiles):
                    assert sum(own[k] for k in buffers) + step.staging_bytes <= plan.peak_bytes
                stages += 1
                several += len(plan.steps) > 1
                keeping += keeps and len(plan.steps) > 1
                early += len(buffers) > len(needed)
    assert min(several, keeping, early, views) > sample(5, of=100)
