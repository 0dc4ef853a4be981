"""Run one stage of a move on tensors.

In memory the compiled copies do it, over pools or messages. On any other device boxes are views, and messages
of the process group carry them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from redist.layout.dtype import DType
from redist.plan.pieces import Piece
from redist.runtime.copies.addresses import Addresses
from redist.runtime.copies.reduce import identity
from redist.runtime.copies.strided import c_strides
from redist.runtime.host.staging import Packing, Staging
from redist.runtime.schedule.compiler import Bases, Combine, Compiler, Message, Round, TileAt
from redist.runtime.schedule.rounds import RoundPart, part_of
from redist.runtime.schedule.stages import StagePart
from redist.text.units import ceil_div
from redist.torch.layouts import to_torch
from redist.torch.ranks import Ranks, Sent, SharedMemory

Tiles = Sequence[torch.Tensor | None]

# Combine partial values in tensors, with the same bits as everywhere else in redist.


HALVES = ("f16", "bf16")
"""PyTorch combines these in memory many times faster than NumPy, and rounds them alike."""


def combine_tensors(op: str, a: torch.Tensor, b: torch.Tensor) -> None:
    """``a = a op b``, in place."""
    if op == "sum":
        a.add_(b)
    elif op == "prod" and a.is_complex():
        # Rounded after every operation, as everywhere else: PyTorch may fuse two of them.
        real = a.real * b.real - a.imag * b.imag
        a.imag.copy_(a.real * b.imag + a.imag * b.real)
        a.real.copy_(real)
    elif op == "prod":
        a.mul_(b)
    elif op == "max":
        torch.maximum(a, b, out=a)
    else:
        torch.minimum(a, b, out=a)


def combine_in_memory(combine: Combine, table: Addresses) -> None:
    """Combine what a list of copies brings; ``table`` has the address of every buffer."""
    if combine.dtype.name not in HALVES:
        combine.run(table)
        return
    kind = to_torch(combine.dtype)
    for to, of in combine.moves.views(table, np.dtype(np.int16)):
        a, b = (torch.from_numpy(array).view(kind) for array in (to, of))
        combine_tensors(combine.op, a, b)


def fill_with_identity(tile: torch.Tensor, op: str, dtype: DType) -> None:
    """Write the value that changes nothing under ``op`` everywhere."""
    if dtype.name in HALVES:
        tile.fill_({"sum": -0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[op])
        return
    raw = bytearray(np.asarray(identity(op, dtype)).tobytes())
    tile.copy_(torch.frombuffer(raw, dtype=torch.uint8).view(to_torch(dtype))[0])


# Tensors in memory.


BY_GROUP = Packing(strided=True, overlaps=False, book_bytes=0)
"""A message of a process group is one run of bytes, and all of a round are waited for together."""


class HostStage:
    """Moves the arrays of one stage in memory. Making one is **collective**.

    With ``memory`` every rank publishes what others read in its pool, round by round; without, messages
    of the process group carry it.
    """

    def __init__(
        self,
        ranks: Ranks,
        memory: SharedMemory | None,
        parts: Sequence[StagePart],
        staging_bytes: int,
    ) -> None:
        self.ranks, self.memory, self.parts = ranks, memory, tuple(parts)
        self.is_local = all(part.step.is_local for part in parts)
        self.staging = Staging.none(len(parts))
        if not self.is_local:
            self.staging = Staging.of(memory or ranks, parts, staging_bytes, False, BY_GROUP)
        self.bases = Bases(len(parts), (memory or ranks).node.ranks)
        self._program: tuple[Round, ...] | None = None

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool that this stage needs: two slots."""
        return 2 * self.staging.slot_bytes

    def run(self, sources: Tiles, targets: Tiles) -> None:
        """**Collective.** Move; all tensors are contiguous."""
        table = np.zeros(self.bases.size, dtype=np.uintp)
        for item, (source, target) in enumerate(zip(sources, targets, strict=True)):
            table[self.bases.source(item)] = 0 if source is None else source.data_ptr()
            table[self.bases.target(item)] = 0 if target is None else target.data_ptr()
        if self.memory is not None or self.is_local:
            self._run_over_pools(table)
            return
        send = torch.empty(self.staging.send_bytes, dtype=torch.uint8)
        receive = torch.empty(self.staging.receive_bytes, dtype=torch.uint8)
        table[self.bases.send], table[self.bases.receive] = send.data_ptr(), receive.data_ptr()
        buffers = {self.bases.send: send, self.bases.receive: receive}
        for item, (source, target) in enumerate(zip(sources, targets, strict=True)):
            ends = (self.bases.source(item), source), (self.bases.target(item), target)
            for base, tile in ends:
                if tile is not None and tile.numel():
                    buffers[base] = tile.reshape(-1).view(torch.uint8)
        for round_ in self._rounds():
            round_.pack.run(table)
            self.ranks.exchange(
                _bytes_of(round_.sends, buffers), _bytes_of(round_.receives, buffers)
            )
            self._fetch(round_, table)

    def _run_over_pools(self, table: Addresses) -> None:
        memory, slot_bytes = self.memory, self.staging.slot_bytes
        for round_ in self._rounds():
            if memory is not None and not self.is_local:
                parity = (memory.meeting.seq + 1) & 1
                for rank in range(self.ranks.size):
                    slot = memory.pages[rank].slot(parity, slot_bytes)
                    first = self.bases.neighbour(rank, 0)
                    table[first : first + len(self.parts)] = slot
                    if rank == self.ranks.rank:
                        table[self.bases.pool] = slot
                round_.publish.run(table)
                memory.meeting.meet_node()
            self._fetch(round_, table)

    def _fetch(self, round_: Round, table: Addresses) -> None:
        round_.copies.run(table)
        round_.unpack.run(table)
        for combine in round_.combines:
            combine_in_memory(combine, table)

    def _rounds(self) -> Iterable[Round]:
        if self._program is not None:
            return self._program
        program = self._compiler().program(self.staging.rounds)
        if isinstance(program, tuple):
            self._program = program
        return program

    def _compiler(self) -> Compiler:
        kinds = {}
        if self.memory is not None and not self.is_local:
            ranks, items = range(self.ranks.size), range(len(self.parts))
            kinds = {(rank, item): TileAt.POOL for rank in ranks for item in items}
        strides = [_strides(part, self.ranks.rank) for part in self.parts]
        return Compiler(
            self.ranks.rank, self.parts, self.bases, kinds, self.staging.offsets,
            [source for source, _ in strides], [target for _, target in strides],
            (self.staging.send_bytes, self.staging.receive_bytes),
        )  # fmt: skip


def _strides(part: StagePart, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Strides of this rank's source and target: those of any of its pieces, as tiles are in C order."""
    source = next((p.src_shape for p in part.step.pieces if p.sender == rank), ())
    target = next((p.dst_shape for p in part.step.pieces if p.receiver == rank), ())
    return c_strides(source, part.itemsize), c_strides(target, part.itemsize)


def _bytes_of(messages: Iterable[Message], buffers: dict[int, torch.Tensor]) -> list[Sent]:
    """The bytes that messages take, or fill."""
    out = []
    for message in messages:
        assert not message.forms, "a message found no room to be packed"
        if message.n_bytes:
            there = buffers[message.base][message.offset : message.offset + message.n_bytes]
            out.append((message.peer, there))
    return out


# Tensors of any device.


ALIGN = 16
"""Parts begin at multiples of this where tensors are made of them: no element of PyTorch is larger."""
BY_VIEWS = Packing(everything=True, overlaps=False, book_bytes=0, align=ALIGN)
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
                packed.view(piece.shape).copy_(_view(sources[item], piece, sending=True))
            self.ranks.exchange(self._messages(outgoing, send), self._messages(incoming, receive))
            arrived = [
                (piece, item, tensor.view(piece.shape))
                for tensor, item, piece in self._places(incoming, receive)
            ]
            for item, piece in own:
                arrived.append((piece, item, _view(sources[item], piece, sending=True)))
            for piece, item, values in sorted(arrived, key=lambda entry: entry[0].order):
                there = _view(targets[item], piece, sending=False)
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


def _view(tile: torch.Tensor | None, piece: Piece, sending: bool) -> torch.Tensor:
    """A piece in its source or its target, as a view."""
    assert tile is not None, "a rank outside the mesh has no piece"
    lo = piece.src_lo if sending else piece.dst_lo
    own = tile.stride()
    strides = piece.src_strides(own) if sending else piece.dst_strides(own)
    start = tile.storage_offset() + sum(a * s for a, s in zip(lo, strides, strict=True))
    return tile.as_strided(piece.shape, strides, start)
