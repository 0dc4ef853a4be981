"""Run one stage of a move on tensors in memory: by the compiled copies, over pools or messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from redist.runtime.copies.addresses import Addresses
from redist.runtime.copies.strided import c_strides
from redist.runtime.host.staging import Packing, Staging
from redist.runtime.schedule.compiler import Bases, Compiler, Message, Round, TileAt
from redist.runtime.schedule.stages import StagePart
from redist.torch.combine import combine_in_memory
from redist.torch.memory import SharedMemory
from redist.torch.ranks import Ranks, Sent

Tiles = Sequence[torch.Tensor | None]
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
            for base, tile in (
                (self.bases.source(item), source),
                (self.bases.target(item), target),
            ):
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
            self.ranks.rank,
            self.parts,
            self.bases,
            kinds,
            self.staging.offsets,
            [source for source, _ in strides],
            [target for _, target in strides],
            (self.staging.send_bytes, self.staging.receive_bytes),
        )


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
