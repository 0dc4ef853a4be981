"""Divide a stage into rounds, so that what is packed, or lies in a pool, fits the staging of its plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from redist.plan.pieces import Piece
from redist.runtime.copies.strided import is_run
from redist.runtime.schedule.rounds import (
    Export,
    Exports,
    Rounds,
    make_rounds,
    part_elems,
    parts_needed,
    place_exports,
)
from redist.runtime.schedule.stages import StagePart
from redist.text.units import ceil_div
from redist.torch.ranks import Ranks

LEAST_BYTES = 8192
"""Staging is never smaller: where a plan leaves none at all, data trickles through this."""
ALIGN = 16
"""Parts begin at multiples of this where tensors are made of them: no element of PyTorch is larger."""


@dataclass(frozen=True, slots=True)
class TensorStaging:
    """The rounds of a stage, and the bytes they need on this rank.

    ``offsets`` has for each (rank, item) where the boxes that this rank reads lie in that rank's pool.
    """

    rounds: Rounds
    slot_bytes: int = 0
    send_bytes: int = 0
    receive_bytes: int = 0
    offsets: dict[tuple[int, int], dict[Export, int]] = field(default_factory=dict)


def for_messages(
    ranks: Ranks, parts: Sequence[StagePart], staging_bytes: int, packs_all: bool
) -> TensorStaging:
    """**Collective.** Rounds in which one half of the staging holds what is sent, the other what comes.

    What is one contiguous part of a tile needs no staging unless ``packs_all``, and is its own message if
    there is but one array.
    """
    slot = max(staging_bytes, LEAST_BYTES) // 2
    needs = [
        _MessageNeeds(part, ranks.rank, packs_all or len(parts) > 1, packs_all) for part in parts
    ]
    weights, counts = _agree(
        ranks,
        [own.bytes_for(1) for own in needs],
        [
            1 if own.bytes_for(1) <= slot else parts_needed(own.bytes_for, slot, _most(part))
            for own, part in zip(needs, parts, strict=True)
        ],
    )
    rounds = make_rounds(weights, counts, slot)
    send = max(sum(needs[p.item].sent(p.parts) for p in own) for own in rounds)
    receive = max(sum(needs[p.item].received(p.parts) for p in own) for own in rounds)
    return TensorStaging(rounds, 0, send, receive)


def for_pools(ranks: Ranks, parts: Sequence[StagePart], staging_bytes: int) -> TensorStaging:
    """**Collective.** Rounds in which what every rank publishes fits one of the two slots of its pool."""
    slot = max(staging_bytes, LEAST_BYTES) // 2
    node = range(ranks.size)
    exports = [Exports.of(p.step.pieces, ranks.rank, node, p.itemsize, slot) for p in parts]
    weights, counts = _agree(
        ranks,
        [own.bytes_for(1) for own in exports],
        [
            1 if own.bytes_for(1) <= slot else parts_needed(own.bytes_for, slot, _most(part))
            for own, part in zip(exports, parts, strict=True)
        ],
    )
    rounds = make_rounds(weights, counts, slot)
    mine, need = place_exports(exports, weights, counts, rounds)
    told = ranks.gather((need, _asked(ranks, parts, mine)))
    offsets = {(ranks.rank, item): own for item, own in enumerate(mine)}
    for rank, (_, asked) in enumerate(told):
        if rank != ranks.rank:
            offsets |= {(rank, item): own for item, own in enumerate(asked[ranks.rank])}
    return TensorStaging(rounds, ceil_div(max(n for n, _ in told), 64) * 64, offsets=offsets)


def _asked(
    ranks: Ranks, parts: Sequence[StagePart], mine: Sequence[dict[Export, int]]
) -> list[list[dict[Export, int]]]:
    """For every rank and array, where the boxes that it reads lie in this rank's pool."""
    asked: list[list[dict[Export, int]]] = [[{} for _ in parts] for _ in range(ranks.size)]
    for item, part in enumerate(parts):
        for p in part.step.pieces:
            if p.sender == ranks.rank != p.receiver:
                asked[p.receiver][item][p.src_lo, p.shape] = mine[item][p.src_lo, p.shape]
    return asked


def _agree(
    ranks: Ranks, weights: Sequence[int], counts: Sequence[int]
) -> tuple[list[int], list[int]]:
    """**Collective.** The largest of all ranks: bytes of every array, and its number of parts."""
    both = ranks.all_max(np.array([weights, counts], dtype=np.int64))
    return both[0].tolist(), both[1].tolist()


def _most(part: StagePart) -> int:
    return max(1, max((math.prod(p.shape) for p in part.step.pieces), default=1))


class _MessageNeeds:
    """Bytes that one array's messages take in staging, by the number of parts."""

    def __init__(self, part: StagePart, rank: int, packs: bool, aligns: bool) -> None:
        self._itemsize, self._align = part.itemsize, ALIGN if aligns else 1
        given = [p for p in part.step.pieces if p.sender == rank != p.receiver]
        got = [p for p in part.step.pieces if p.receiver == rank != p.sender]
        self._sent = [p for p in given if packs or not is_run(p.shape, p.src_shape, part.itemsize)]
        self._received = [
            p for p in got if packs or p.order or not is_run(p.shape, p.dst_shape, part.itemsize)
        ]

    def sent(self, parts: int) -> int:
        """Bytes that are packed to be sent."""
        return self._bytes(self._sent, parts)

    def received(self, parts: int) -> int:
        """Bytes that are taken apart, or combined, after they came."""
        return self._bytes(self._received, parts)

    def bytes_for(self, parts: int) -> int:
        """The larger of the two."""
        return max(self.sent(parts), self.received(parts))

    def _bytes(self, pieces: Sequence[Piece], parts: int) -> int:
        sizes = (part_elems(p.shape, parts) * self._itemsize for p in pieces)
        return sum(ceil_div(n, self._align) * self._align for n in sizes)
