"""Find all-gathers among the messages of a stage, by all ranks together, and pack them once.

Where every rank of a group sends all others of it the same bytes, and as many as it gets from each,
its messages are an all-gather in the sense of MPI. NCCL has that as one call, out of one packed copy
instead of one for each receiver. Partial values may pass so too, but are combined here, of integers
as well: NCCL combines in an order of its own, and results have the same bits on every transport.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from redist.plan.pieces import Shape
from redist.runtime.copies.copy_list import CopyList
from redist.runtime.cuda.kernels.rounds import CudaRound, Gathered
from redist.runtime.host.staging import GRAIN_BYTES, Staging
from redist.runtime.ranks.world import World
from redist.runtime.schedule.compiler import Round
from redist.runtime.schedule.rounds import Export, export_of
from redist.runtime.schedule.stages import StagePart
from redist.text.units import ceil_div

LEAST_RANKS = 3
"""Of two, each packs for one other: nothing would be saved."""

Ranks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GatherClaim:
    """The claim that this rank's messages are its part of an all-gather of these boxes among these ranks."""

    ranks: Ranks
    boxes: tuple[tuple[int, Shape], ...]

    @property
    def digest(self) -> str:
        """Short, and the same on all ranks that claim the same."""
        return hashlib.sha256(repr((self.ranks, self.boxes)).encode()).hexdigest()


def claim_of(parts: Sequence[StagePart], rank: int, node: Sequence[int]) -> GatherClaim | None:
    """**Local.** The all-gather that this rank's messages to other nodes may be; None if they are none.

    >>> from redist.layout.dtype import DType
    >>> from redist.plan.pieces import Piece
    >>> from redist.runtime.schedule.pieces import StepPieces
    >>> def piece(a, b):
    ...     return Piece(a, b, 0, (0,), (2 * a,), (2,), (2,), (6,))
    >>> pieces = [piece(a, b) for a, b in [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2)]]
    >>> part = StagePart(StepPieces(tuple(pieces), None, False, False, False, (2,)), DType.parse("f32"))
    >>> claim_of([part], 0, [0])
    GatherClaim(ranks=(0, 1, 2), boxes=((0, (2,)),))
    >>> claim_of([part], 0, [0, 1]) is None
    True
    """
    given: dict[int, list[tuple[int, Export]]] = {}
    got: dict[int, list[tuple[int, Shape]]] = {}
    for item, part in enumerate(parts):
        for p in part.step.pieces:
            if p.sender == rank and p.receiver not in node:
                given.setdefault(p.receiver, []).append((item, export_of(p)))
            elif p.receiver == rank and p.sender not in node:
                got.setdefault(p.sender, []).append((item, p.shape))
    ranks = tuple(sorted({rank, *given, *got}))
    if len(ranks) < LEAST_RANKS or not len(given) == len(got) == len(ranks) - 1:
        return None
    first = next(iter(given.values()))
    boxes = [(item, shape) for item, (_, shape, _) in first]
    if any(own != first for own in given.values()) or any(own != boxes for own in got.values()):
        return None
    return GatherClaim(ranks, tuple(boxes))


def agree(world: World, claim: GatherClaim | None, is_new: bool) -> tuple[Ranks, bool]:
    """**Collective.** Find out whether all ranks of a claimed group claim the same.

    ``is_new`` says that the group has no communicator yet. The group of this rank, empty if it has none;
    and whether any group, anywhere, is a new one.
    """
    mine = None if claim is None else (len(claim.ranks), claim.digest)
    told = world.gather((mine, is_new))
    counts = Counter(one for one, _ in told if one is not None)
    held = {one for one, n in counts.items() if n == one[0]}
    ranks = claim.ranks if claim is not None and mine in held else ()
    return ranks, any(new and one in held for one, new in told)


def room_for(ranks: Ranks, staging: Staging) -> tuple[int, int]:
    """Bytes to send and to receive that a half needs: one part for each rank, in place.

    Parts were cut so that one for each other rank fits ``send_bytes``: together this is no more than
    messages would take.

    >>> room_for((0, 1, 2, 3), Staging((), send_bytes=3000, receive_bytes=3000))
    (0, 4096)
    """
    n_bytes = len(ranks) * (staging.send_bytes // (len(ranks) - 1))
    return 0, ceil_div(n_bytes, GRAIN_BYTES) * GRAIN_BYTES


def pack_once(round_: Round, ranks: Ranks, rank: int, receive: int) -> CudaRound:
    """The round for a GPU, with its messages as an all-gather in buffer ``receive``."""
    if not round_.sends:
        return CudaRound.of(round_)
    n_bytes = round_.sends[0].n_bytes
    assert all(m.n_bytes == n_bytes for m in (*round_.sends, *round_.receives))
    own = ranks.index(rank) * n_bytes

    def shift(table: CopyList) -> CopyList:
        """Make room for the own part: those of higher ranks lie behind it."""
        behind = (
            replace(move, src_offset=move.src_offset + n_bytes)
            if move.src == receive and move.src_offset >= own
            else move
            for move in table.moves()
        )
        return CopyList.of(behind, table.streams)

    pack = (
        replace(move, dst=receive, dst_offset=own + move.dst_offset)
        for move in round_.pack.moves()
        if move.dst_offset < n_bytes  # the others are packed for other ranks
    )
    gathered = replace(
        round_,
        pack=CopyList.of(pack),
        sends=(),
        receives=(),
        unpack=shift(round_.unpack),
        combines=tuple(replace(one, moves=shift(one.moves)) for one in round_.combines),
    )
    return replace(CudaRound.of(gathered), gathered=Gathered(ranks, receive, n_bytes))
