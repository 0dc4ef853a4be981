"""Run one stage of a move on tensors of any device: boxes as views, messages of the process group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from redist.plan.pieces import Piece, Shape
from redist.runtime.host.staging import Packing, Staging
from redist.runtime.schedule.rounds import RoundPart, part_of
from redist.runtime.schedule.stages import StagePart
from redist.text.units import ceil_div
from redist.torch.combine import combine_tensors
from redist.torch.layouts import to_torch
from redist.torch.ranks import Ranks, Sent

ALIGN = 16
"""Parts begin at multiples of this where tensors are made of them: no element of PyTorch is larger."""
BY_VIEWS = Packing(everything=True, overlaps=False, book_bytes=0, align=ALIGN)
Tiles = Sequence[torch.Tensor | None]
Parts = Mapping[int, list[tuple[int, Piece]]]
"""The parts of a round by rank, each with the array that it belongs to."""


class DeviceStage:
    """Moves the arrays of one stage where they are. Making one is **collective**."""

    def __init__(
        self, ranks: Ranks, parts: Sequence[StagePart], staging_bytes: int, device: str
    ) -> None:
        self.ranks, self.parts, self.device = ranks, tuple(parts), device
        self.is_local = all(part.step.is_local for part in parts)
        self.staging = Staging.none(len(parts))
        if not self.is_local:
            self.staging = Staging.of(ranks, parts, staging_bytes, False, BY_VIEWS)

    pool_bytes = 0

    def run(self, sources: Tiles, targets: Tiles) -> None:
        """**Collective.** Move; all tensors are contiguous."""
        sizes = self.staging.send_bytes, self.staging.receive_bytes
        send, receive = (torch.empty(n, dtype=torch.uint8, device=self.device) for n in sizes)
        for together in self.staging.rounds:
            outgoing, incoming, own = self._parts_of(together)
            for packed, item, piece in self._places(outgoing, send):
                packed.view(piece.shape).copy_(_box(sources[item], piece.src_lo, piece.shape))
            self.ranks.exchange(self._messages(outgoing, send), self._messages(incoming, receive))
            arrived = [
                (piece, item, tensor.view(piece.shape))
                for tensor, item, piece in self._places(incoming, receive)
            ]
            for item, piece in own:
                arrived.append((piece, item, _box(sources[item], piece.src_lo, piece.shape)))
            for piece, item, values in sorted(arrived, key=lambda entry: entry[0].order):
                there = _box(targets[item], piece.dst_lo, piece.shape)
                if piece.order == 0:
                    there.copy_(values)
                else:
                    combine_tensors(self.parts[item].step.op or "", there, values)

    def _parts_of(
        self, together: Sequence[RoundPart]
    ) -> tuple[Parts, Parts, list[tuple[int, Piece]]]:
        """What this rank sends and receives in a round, by rank, and what stays."""
        me = self.ranks.rank
        outgoing: dict[int, list[tuple[int, Piece]]] = {}
        incoming: dict[int, list[tuple[int, Piece]]] = {}
        own: list[tuple[int, Piece]] = []
        for one in together:
            for piece in self.parts[one.item].step.pieces:
                part = part_of(piece, one)
                if part is None or 0 in part.shape:
                    continue
                if part.sender == part.receiver == me:
                    own.append((one.item, part))
                elif part.sender == me:
                    outgoing.setdefault(part.receiver, []).append((one.item, part))
                elif part.receiver == me:
                    incoming.setdefault(part.sender, []).append((one.item, part))
        return outgoing, incoming, own

    def _places(self, parts: Parts, buffer: torch.Tensor) -> list[tuple[torch.Tensor, int, Piece]]:
        """Where every part lies in a buffer, as a flat tensor of its elements."""
        out, at = [], 0
        for peer in sorted(parts):
            for item, piece in parts[peer]:
                n_bytes = math.prod(piece.shape) * self.parts[item].itemsize
                kind = to_torch(self.parts[item].dtype)
                out.append((buffer[at : at + n_bytes].view(kind), item, piece))
                at += _aligned(n_bytes)
        return out

    def _messages(self, parts: Parts, buffer: torch.Tensor) -> list[Sent]:
        """One message for every peer: what lies in a buffer for it, or will."""
        out, at = [], 0
        for peer in sorted(parts):
            sizes = [math.prod(p.shape) * self.parts[item].itemsize for item, p in parts[peer]]
            end = at + sum(map(_aligned, sizes))
            out.append((peer, buffer[at:end]))
            at = end
        return out


def _aligned(n_bytes: int) -> int:
    return ceil_div(n_bytes, ALIGN) * ALIGN


def _box(tile: torch.Tensor | None, lo: Shape, shape: Shape) -> torch.Tensor:
    """A box of a tile, as a view."""
    assert tile is not None, "a rank outside the mesh has no piece"
    return tile[tuple(slice(a, a + n) for a, n in zip(lo, shape, strict=True))]
