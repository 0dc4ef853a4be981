"""A prepared move of tensors: the stages of one plan, or of several side by side, on one group."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from redist.plan.pieces import Shape
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.runtime.schedule.stages import TransferStages
from redist.torch.layouts import to_torch
from redist.torch.ranks import Ranks, SharedMemory
from redist.torch.stage import DeviceStage, HostStage, fill_with_identity

# New tiles in memory, asked for in large pages: the system hands these out many times faster.


HUGE_BYTES = 2**21
"""The size of a large page; smaller tiles are left alone."""


def new_tile(shape: Sequence[int], dtype: torch.dtype, device: Any) -> torch.Tensor:
    """**Local.** A tile whose contents are undefined, on any device."""
    tile = torch.empty(tuple(shape), dtype=dtype, device=device)
    if tile.device.type == "cpu" and tile.nbytes >= 2 * HUGE_BYTES:
        advise(tile.data_ptr(), tile.nbytes)
    return tile


def advise(address: int, n_bytes: int) -> None:
    """**Local.** Ask the system for large pages wherever they lie wholly inside a range of bytes.

    The contents of the memory do not change; a system without large pages ignores the request.
    """
    start = -(-address // HUGE_BYTES) * HUGE_BYTES
    end = (address + n_bytes) // HUGE_BYTES * HUGE_BYTES
    if end > start and hasattr(mmap, "MADV_HUGEPAGE"):
        _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_HUGEPAGE)


@lru_cache(maxsize=1)
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


BATCH_BYTES = 2**23
"""Staging that many tensors share: with less, ranks meet more often; with more, it leaves the cache."""
Tensors = Sequence[torch.Tensor | None]
Key = tuple[int, int]
"""A tensor of the transfer, and which of its buffers."""


class TensorTransfer:
    """Moves tensors by their plans. Creating one is **collective**, and so is :meth:`run`.

    Ranks in the plans are numbers in the group. ``device`` is a device type such as ``cpu`` or ``cuda``.
    """

    def __init__(
        self, ranks: Ranks, memory: SharedMemory | None, plans: Sequence[Plan], topology: Topology,
        device: str, by_views: bool = False,
    ) -> None:  # fmt: skip
        self.ranks, self.memory, self.device = ranks, memory, device
        self.schedule = TransferStages.of(plans, ranks.rank, topology)
        self._parts = [
            [part for part in parts if self.plans[part.item].steps]
            for parts in self.schedule.stages
        ]
        self.stages: tuple[HostStage | DeviceStage, ...] = tuple(
            self._stage(number, by_views) for number, parts in enumerate(self._parts) if parts
        )
        if memory is not None:
            memory.reserve(max((stage.pool_bytes for stage in self.stages), default=0))

    def _stage(self, number: int, by_views: bool) -> HostStage | DeviceStage:
        parts, n_bytes = self._parts[number], self._staging_bytes(number)
        if self.device != "cpu" or by_views:
            return DeviceStage(self.ranks, parts, n_bytes, self.device)
        return HostStage(self.ranks, self.memory, parts, n_bytes)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans, one for each tensor."""
        return self.schedule.plans

    @property
    def peak_bytes(self) -> int:
        """The certified bound on the bytes of tiles and staging on any rank, ends included.

        Of many tensors together: every plan's tiles at their most, with the staging counted once.
        """
        if len(self.plans) == 1:
            return self.plans[0].peak_bytes
        numbers = range(len(self.schedule.stages))
        usual = max(map(self.schedule.staging_bytes, numbers))
        return self.schedule.peak_bytes() - usual + max(map(self._staging_bytes, numbers))

    def _staging_bytes(self, number: int) -> int:
        """Staging of a stage: what its plans grant; of many tensors no more than is of use."""
        grants = sum(
            self.plans[part.item].steps[part.step_number].staging_bytes
            for part in self._parts[number]
        )
        return max(self.schedule.staging_bytes(number), min(grants, BATCH_BYTES))

    @property
    def received_bytes(self) -> int:
        """**Local.** The number of bytes that this rank gets from others in a run, counted piece by piece."""
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
        """**Collective.** Move tiles with shapes as :meth:`shape_of` says; returns the tiles of the targets.

        A tile that needs no step is returned as its own target. Sources are not modified.
        """
        tiles = {
            (item, 0): source.detach().contiguous()
            for item, source in enumerate(sources)
            if source is not None and self.plans[item].steps
        }
        if self.memory is not None:
            self.memory.use(max((stage.pool_bytes // 2 for stage in self.stages), default=0))
        for stage, parts in zip(self.stages, self._parts, strict=False):
            for part in parts:
                if (part.item, part.target) not in tiles:
                    self._add_tile(tiles, part.item, part.target)
                target = tiles.get((part.item, part.target))
                if part.step.fills and target is not None:
                    fill_with_identity(target, part.step.op or "", part.dtype)
            ins = [tiles.get((part.item, part.source)) for part in parts]
            outs = [tiles.get((part.item, part.target)) for part in parts]
            stage.run(ins, outs)
            for part in parts:
                if part.source != part.target:
                    tiles.pop((part.item, part.source), None)
        return [
            tiles.get((item, self.schedule.last(item))) if plan.steps else sources[item]
            for item, plan in enumerate(self.plans)
        ]

    def _add_tile(self, tiles: dict[Key, torch.Tensor], item: int, buffer: int) -> None:
        """**Local.** Make a tile, unless this rank is outside its mesh."""
        shape = self.schedule.shape_of(item, buffer)
        if shape is not None:
            dtype = to_torch(self.plans[item].source.dtype)
            tiles[item, buffer] = new_tile(shape, dtype, self.device)
