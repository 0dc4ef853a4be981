"""The stages of a transfer: the phases of its plans side by side, and the buffers between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redist.layout.array_type import ArrayType
from redist.layout.tiles import tile_shapes
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.runtime.schedule.pieces import Shape, StepPieces, copy_phase, phases_of


@dataclass(frozen=True, slots=True)
class StagePart:
    """One phase of one array: which of its buffers is read, which is written, for which step."""

    item: int
    step: int
    phase: StepPieces
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class TransferStages:
    """How one rank takes arrays through their plans.

    ``stages`` has the legs that run together. Buffer k of an array holds ``plan.types[k]``; the last
    is the target, also where a plan has no step and the tile is only copied.
    """

    plans: tuple[Plan, ...]
    rank: int
    stages: tuple[tuple[StagePart, ...], ...]

    @staticmethod
    def of(plans: Sequence[Plan], rank: int, topology: Topology) -> TransferStages:
        """The route of a rank."""
        legs = [_legs(item, plan, rank, topology) for item, plan in enumerate(plans)]
        depth = max(map(len, legs))
        stages = tuple(tuple(own[k] for own in legs if k < len(own)) for k in range(depth))
        return TransferStages(tuple(plans), rank, stages)

    def type_of(self, item: int, buffer: int) -> ArrayType:
        """The type of a buffer."""
        types = self.plans[item].types
        return types[min(buffer, len(types) - 1)]

    def shape_of(self, item: int, buffer: int) -> Shape | None:
        """The shape of this rank's tile in a buffer, None where it has none."""
        return tile_shapes(self.type_of(item, buffer)).get(self.rank)

    def last(self, item: int) -> int:
        """The number of the target's buffer."""
        return max(1, len(self.plans[item].steps))

    def staging_bytes(self, stage: int) -> int:
        """Staging that the plans grant to a stage: of many arrays together about as for one."""
        grants = []
        for leg in self.stages[stage]:
            steps = self.plans[leg.item].steps
            grants.append(steps[leg.step].staging_bytes if steps else 0)
        return min(sum(grants), max(max(grants), 2**20))

    @property
    def is_tight(self) -> bool:
        """Whether a target that is allocated from the start would break the bound of a plan."""
        for plan in self.plans:
            for number in range(len(plan.steps) - 1):
                held = [plan.types[number], plan.types[number + 1], plan.target]
                if number > 0 and not plan.donate:
                    held.append(plan.source)
                staging = plan.steps[number].staging_bytes
                if sum(t.tile_bytes for t in held) + staging > plan.peak_bytes:
                    return True
        return False

    def peak_bytes(self) -> int:
        """The certified bound: every plan's tiles at their most, with the staging counted once."""
        if len(self.plans) == 1:
            return self.plans[0].peak_bytes
        bare = 0
        for plan in self.plans:
            tiles = (step.peak_bytes - step.staging_bytes for step in plan.steps)
            bare += max(tiles, default=plan.peak_bytes)
        return bare + max(self.staging_bytes(k) for k in range(len(self.stages)))


def _legs(item: int, plan: Plan, rank: int, topology: Topology) -> list[StagePart]:
    if not plan.steps:
        return [StagePart(item, 0, copy_phase(plan.source, rank), 0, 1)]
    legs = []
    for number, step in enumerate(plan.steps):
        for phase in phases_of(step, plan.types[number], rank, topology):
            legs.append(StagePart(item, number, phase, number + phase.again, number + 1))
    return legs
