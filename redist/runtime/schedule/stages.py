"""The stages of a transfer: the steps of its plans side by side, and the buffers between them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.tiles import tile_shapes
from redist.plan.pieces import Shape
from redist.plan.plan import Plan
from redist.plan.steps import Action, AllGather, Slice
from redist.plan.topology import Topology
from redist.runtime.schedule.pieces import StepPieces, pieces_of_copy, pieces_of_step, relocate
from redist.text.units import ceil_div


@dataclass(frozen=True, slots=True)
class StagePart:
    """One array of a stage: what moves, and which buffers of the array are read and written.

    ``step_number`` says of which step of the array's plan ``step`` is all, or one of two parts.
    """

    step: StepPieces
    dtype: DType
    item: int = 0
    step_number: int = 0
    source: int = 0
    target: int = 1

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize


Key = tuple[int, int]
"""An array of the transfer, and which of its buffers."""
ALIGNED = 64


@dataclass(frozen=True, slots=True)
class TransferStages:
    """How one rank takes arrays through their plans.

    ``stages`` has the parts that run together, one array each. Buffer k of an array holds
    ``plan.types[k]``, unless that lies in another (:func:`homes_of`); the last is the target, also if a plan
    has no step and the tile is only copied.
    """

    plans: tuple[Plan, ...]
    rank: int
    stages: tuple[tuple[StagePart, ...], ...]
    homes: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(plans: Sequence[Plan], rank: int, topology: Topology) -> TransferStages:
        """The stages of a rank."""
        homes = tuple(map(homes_of, plans))
        parts = [
            _parts_of_plan(item, plan, homes[item], rank, topology)
            for item, plan in enumerate(plans)
        ]
        depth = max(map(len, parts))
        stages = tuple(tuple(own[k] for own in parts if k < len(own)) for k in range(depth))
        return TransferStages(tuple(plans), rank, stages, homes)

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
        for part in self.stages[stage]:
            steps = self.plans[part.item].steps
            grants.append(steps[part.step_number].staging_bytes if steps else 0)
        return min(sum(grants), max(max(grants), 2**20))

    @property
    def is_tight(self) -> bool:
        """Whether a target that is allocated from the start would break the bound of a plan."""
        return self.is_tight_beside(())

    def is_tight_beside(self, placed_tiles: Collection[Key]) -> bool:
        """The same, if some tiles between steps take no memory of their own."""
        return any(
            is_tight(plan, self.homes[item], [k for own, k in placed_tiles if own == item])
            for item, plan in enumerate(self.plans)
        )

    def has_memory(self, item: int, buffer: int) -> bool:
        """Whether a tile of a plan has a buffer of its own, and does not lie in that of a larger one."""
        return self.homes[item][buffer] == buffer

    def placed_tiles(self) -> dict[Key, int]:
        """Tiles between steps that can lie in the memory of the target until it is written: where they start.

        Only where the bound has no room for all of them beside it, and all ranks have tiles of one size.
        """
        found: dict[Key, int] = {}
        if not self.is_tight:
            return found
        for item, plan in enumerate(self.plans):
            if not all(t.is_even and t.mesh == plan.target.mesh for t in plan.types):
                continue
            before = 0, 0
            for buffer in range(1, self.last(item) - 1):  # read before the last step
                if not self.has_memory(item, buffer):
                    before = 0, 0
                    continue
                size = plan.types[buffer].tile_bytes
                start = 0 if size <= before[0] else ceil_div(before[1], ALIGNED) * ALIGNED
                before = 0, 0
                if start + size <= plan.target.tile_bytes:
                    found[item, buffer] = start
                    before = start, start + size
        return found

    def peak_bytes(self) -> int:
        """The certified bound: every plan's tiles at their most, with the staging counted once."""
        if len(self.plans) == 1:
            return self.plans[0].peak_bytes
        bare = 0
        for plan in self.plans:
            tiles = (step.peak_bytes - step.staging_bytes for step in plan.steps)
            bare += max(tiles, default=plan.peak_bytes)
        return bare + max(self.staging_bytes(k) for k in range(len(self.stages)))


def _parts_of_plan(
    item: int, plan: Plan, homes: Sequence[int], rank: int, topology: Topology
) -> list[StagePart]:
    dtype, types = plan.source.dtype, plan.types
    if not plan.steps:
        return [StagePart(pieces_of_copy(plan.source, rank), dtype, item)]
    parts = []
    for number, step in enumerate(plan.steps):
        if is_view(step.action) and homes[number + 1] == homes[number]:
            continue
        for pieces in pieces_of_step(step, types[number], rank, topology):
            first, last = number + pieces.again, number + 1
            ends = homes[first], homes[last]
            inner, outer = (types[first], types[last]), (types[ends[0]], types[ends[1]])
            pieces = relocate(pieces, inner, outer, ends[0] == ends[1])
            parts.append(StagePart(pieces, dtype, item, number, *ends))
    return parts


# Values that lie in the tile of another


def is_view(action: Action) -> bool:
    """Whether what a step makes is part of the tile that it has."""
    return isinstance(action, Slice) and not action.pending


def homes_of(plan: Plan) -> tuple[int, ...]:
    """In which buffer the value after each step lies: its own, or that of a larger tile::

        source --slice--> a --all_to_all--> b --all_gather--> target
        buffer 0          0                 3                 3

    What a slice makes is read in the tile before it, unless it is the target; a donated source is not read
    for longer than it would be otherwise. What a last all_gather gathers lies in the target from the start,
    each rank's own part in its place, if the bound of the plan has room for a target that early.
    """
    n = len(plan.steps)
    views = list(range(n + 1))
    for number, step in enumerate(plan.steps[:-1]):
        if is_view(step.action) and not plan.donate:
            views[number + 1] = views[number]
    gathers = n > 1 and isinstance(plan.steps[-1].action, AllGather)
    has_values = plan.types[n - 1].pending_op is None
    if gathers and has_values and views[n - 1] == n - 1 and not is_tight(plan, views, ()):
        views[n - 1] = n
    return tuple(views)


def is_tight(plan: Plan, homes: Sequence[int], placed: Collection[int]) -> bool:
    """Whether a target that is allocated from the start would break the bound of a plan."""
    last = len(plan.steps)
    for number in range(last - 1):
        held = {homes[number], homes[number + 1], last} - set(placed)
        if number > 0 and not plan.donate:
            held.add(0)
        staging = plan.steps[number].staging_bytes
        if sum(plan.types[buffer].tile_bytes for buffer in held) + staging > plan.peak_bytes:
            return True
    return False
