"""Tiles between steps that lie in the memory of a target: never in each other's way, nor in the target's."""

from __future__ import annotations

from random import Random

import pytest

import redist
from redist.plan.rates import FLAT
from redist.plan.topology import Level, Topology
from redist.runtime.schedule.stages import TransferStages
from tests.tiers import sample

SLOW = Topology(
    (Level("node", 2, 10**6, 10**5), Level("net", None, 5 * 10**7, 8 * 10**6, 8 * 10**6))
)


def alive(schedule: TransferStages, item: int, buffer: int) -> set[int]:
    """The stages in which a buffer is written or read."""
    return {
        number
        for number, parts in enumerate(schedule.stages)
        for part in parts
        if part.item == item and buffer in (part.source, part.target)
    }


def check(schedule: TransferStages) -> int:
    """How many tiles lie in targets; each alone in its place while it is needed."""
    placed_tiles = schedule.placed_tiles()
    for (item, buffer), start in placed_tiles.items():
        last = schedule.last(item)
        size = schedule.type_of(item, buffer).tile_bytes
        assert start >= 0 and start + size <= schedule.plans[item].target.tile_bytes
        here = alive(schedule, item, buffer)
        assert max(here) < min(alive(schedule, item, last))
        for other in range(1, buffer):
            if (item, other) in placed_tiles and here & alive(schedule, item, other):
                low = placed_tiles[item, other]
                high = low + schedule.type_of(item, other).tile_bytes
                assert start + size <= low or high <= start
    if placed_tiles:
        assert schedule.is_tight
    return len(placed_tiles)


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_sums_between_nodes_need_no_memory_of_their_own(ranks: int) -> None:
    ends = f"f64[{ranks * 4096}] sum{{x}}", f"f64[{ranks * 4096}]"
    plan = redist.synthesize(*ends, mesh=redist.Mesh(x=ranks), topology=SLOW)
    schedule = TransferStages.of([plan], 0, SLOW)
    assert len(plan.steps) > 2 and check(schedule) > 0
    assert schedule.is_tight and not schedule.is_tight_beside(schedule.placed_tiles())


def test_values_lie_in_larger_tiles_where_they_can() -> None:
    """A slice is read in its source and a last gather fills its target, unless the source is donated."""
    ends, mesh = ("f32[6{a}]", "f32[6{b}]"), redist.Mesh(a=2, b=3)
    kept, donated = (
        redist.synthesize(*ends, mesh=mesh, strategy="collectives", donate=donate)
        for donate in (False, True)
    )
    assert [step.op for step in kept.steps] == ["slice", "all_permute", "all_gather"]
    schedule = TransferStages.of([kept], 0, FLAT)
    assert schedule.homes == ((0, 0, 3, 3),)
    assert [(part.source, part.target) for (part,) in schedule.stages] == [(0, 3), (3, 3)]
    (gather,) = schedule.stages[-1]
    assert all(piece.sender != piece.receiver for piece in gather.step.pieces)
    assert TransferStages.of([donated], 0, FLAT).homes == ((0, 1, 2, 3),)


def test_placed_tiles_are_never_in_the_way() -> None:
    rng, found = Random(7), 0
    for _ in range(sample(3, of=60)):
        mesh = redist.Mesh(x=2, y=2, z=rng.choice([1, 2, 4]))
        cuts = ["{}", "{x}", "{y}", "{y,z}", "{z}"]
        size = 64 * rng.choice([1, 3, 100])
        source = (
            f"f32[{size}, 64{rng.choice(['{}', '{z}'])}] sum{{{rng.choice(['x,y', 'y', 'x'])}}}"
        )
        target = f"f32[{size}{rng.choice(cuts)}, 64]"
        plans = [redist.synthesize(source, target, mesh=mesh, topology=SLOW)]
        if rng.random() < 0.3:
            plans.append(redist.synthesize(target, f"f32[{size}, 64]", mesh=mesh, topology=SLOW))
        found += check(TransferStages.of(plans, 0, SLOW))
    assert found > 0
