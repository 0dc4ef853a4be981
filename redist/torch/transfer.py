"""A prepared move of tensors: the stages of one plan, or of several side by side, on one group."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from redist.errors import RequestError
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.runtime.schedule.pieces import Shape
from redist.runtime.schedule.stages import TransferStages
from redist.torch.combine import fill_with_identity
from redist.torch.device_stage import DeviceStage
from redist.torch.dtypes import to_torch
from redist.torch.host_stage import HostStage
from redist.torch.huge_pages import new_tile
from redist.torch.memory import SharedMemory
from redist.torch.ranks import Ranks

Tensors = Sequence[torch.Tensor | None]


class TensorTransfer:
    """Moves tensors by their plans. Making one is **collective**, and so is :meth:`run`.

    Ranks in the plans are numbers in the group. ``device`` is a kind of device: ``cpu``, ``cuda``.
    """

    def __init__(
        self,
        ranks: Ranks,
        memory: SharedMemory | None,
        plans: Sequence[Plan],
        topology: Topology,
        device: str,
        by_views: bool = False,
    ) -> None:
        self.ranks, self.memory, self.device = ranks, memory, device
        self.schedule = TransferStages.of(plans, ranks.rank, topology)
        self.stages: tuple[HostStage | DeviceStage, ...] = tuple(
            self._stage(number, by_views) for number in range(len(self.schedule.stages))
        )
        pool_bytes = max(stage.pool_bytes for stage in self.stages)
        if memory is not None and memory.pool_bytes < pool_bytes and not memory.reserve(pool_bytes):
            raise RequestError("cannot share memory between the ranks any more; transport='messages'")

    def _stage(self, number: int, by_views: bool) -> HostStage | DeviceStage:
        parts, n_bytes = self.schedule.stages[number], self.schedule.staging_bytes(number)
        if self.device != "cpu" or by_views:
            return DeviceStage(self.ranks, parts, n_bytes, self.device)
        return HostStage(self.ranks, self.memory, parts, n_bytes)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans, one for each tensor."""
        return self.schedule.plans

    @property
    def peak_bytes(self) -> int:
        """The certified bound on the bytes of tiles and staging on any rank, ends included."""
        return self.schedule.peak_bytes()

    @property
    def received_bytes(self) -> int:
        """**Local.** What this rank gets from others in a run, counted piece by piece."""
        total = 0
        for part in (part for parts in self.schedule.stages for part in parts):
            for piece in part.step.pieces:
                if piece.receiver == self.ranks.rank != piece.sender:
                    total += math.prod(piece.shape) * part.itemsize
        return total

    @property
    def rounds(self) -> int:
        """How often ranks exchange messages, or meet, in a run."""
        return sum(len(s.staging.rounds) for s in self.stages if not s.is_local)

    def shape_of(self, item: int, is_target: bool) -> Shape | None:
        """**Local.** The shape of this rank's tile at either end; None outside the mesh."""
        return self.schedule.shape_of(item, self.schedule.last(item) if is_target else 0)

    def run(self, sources: Tensors) -> list[torch.Tensor | None]:
        """**Collective.** Move tiles, which are as :meth:`shape_of` says; the tiles of the targets.

        A tile that needs no step is its own target. Sources are not modified.
        """
        tiles = {(item, 0): _contiguous(source) for item, source in enumerate(sources)}
        uses = self._last_uses()
        for number, parts in enumerate(self.schedule.stages):
            for part in parts:
                if not self.plans[part.item].steps:
                    tiles[part.item, 1] = sources[part.item]
                elif (part.item, part.target) not in tiles:
                    tiles[part.item, part.target] = self._new_tile(part.item, part.target)
                target = tiles[part.item, part.target]
                if part.step.fills and target is not None:
                    fill_with_identity(target, part.step.op or "", part.dtype)
            moving = [part if self.plans[part.item].steps else None for part in parts]
            ins = [None if p is None else tiles[p.item, p.source] for p in moving]
            outs = [None if p is None else tiles[p.item, p.target] for p in moving]
            self.stages[number].run(ins, outs)
            for key in [key for key, last in uses.items() if last == number and key in tiles]:
                if key[1] != self.schedule.last(key[0]):
                    del tiles[key]
        return [tiles[item, self.schedule.last(item)] for item in range(len(self.plans))]

    def _new_tile(self, item: int, buffer: int) -> torch.Tensor | None:
        shape = self.schedule.shape_of(item, buffer)
        if shape is None:
            return None
        return new_tile(shape, to_torch(self.plans[item].source.dtype), self.device)

    def _last_uses(self) -> dict[tuple[int, int], int]:
        """The last stage that reads or writes each buffer."""
        last: dict[tuple[int, int], int] = {}
        for number, parts in enumerate(self.schedule.stages):
            for part in parts:
                last[part.item, part.source] = last[part.item, part.target] = number
        return last


def _contiguous(tile: torch.Tensor | None) -> torch.Tensor | None:
    return None if tile is None else tile.detach().contiguous()
