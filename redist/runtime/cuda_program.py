"""A round of a stage for the GPU: the same copies as on the host, each list one launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from redist.runtime.cuda_combine import CudaCombine
from redist.runtime.cuda_moves import CudaMoves
from redist.runtime.kernels import MAX_DIMS
from redist.runtime.moves import Addresses, Move, Moves
from redist.runtime.program import Message, Round
from redist.runtime.strided import Strided

_HEAD = 6


def moves_of(table: Moves) -> Iterator[Move]:
    """The moves that a table of rows was made of.

    >>> moves = [Move(0, 8, 1, 16, Strided(8, ((2, 8, 24),)))]
    >>> list(moves_of(Moves.of(moves))) == moves
    True
    """
    for dst, dst_offset, src, src_offset, block, n_dims, *rest in table.rows.tolist():
        counts, to, of = (rest[k * MAX_DIMS : k * MAX_DIMS + n_dims] for k in range(3))
        form = Strided(block, tuple(zip(counts, to, of, strict=True)))
        yield Move(dst, dst_offset, src, src_offset, form)


@dataclass(frozen=True, slots=True, eq=False)
class CudaRound:
    """What a rank does in one round: pack and send, fetch from its node, unpack, combine."""

    pack: CudaMoves
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
    copies: CudaMoves
    unpack: CudaMoves
    combines: tuple[CudaCombine, ...]

    @staticmethod
    def of(round_: Round) -> CudaRound:
        """The same round on a GPU."""
        assert not len(round_.stage) and not round_.reads, "tiles of a GPU are read in place"
        return CudaRound(
            CudaMoves.of(moves_of(round_.pack)),
            round_.sends,
            round_.receives,
            CudaMoves.of(moves_of(round_.copies)),
            CudaMoves.of(moves_of(round_.unpack)),
            tuple(CudaCombine.of(moves_of(c.moves), c.op, c.dtype) for c in round_.combines),
        )

    def fetch(self, table: Addresses, stream: Any) -> None:
        """Start the copies out of the neighbours' tiles."""
        self.copies.run(table, stream.ptr)

    def take_apart(self, table: Addresses, stream: Any) -> None:
        """Start what follows the messages."""
        self.unpack.run(table, stream.ptr)
        for combine in self.combines:
            combine.run(table, stream.ptr)
