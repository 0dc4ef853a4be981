"""Lists of strided copies between buffers of a GPU, prepared once and run many times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from redist.runtime.copies.addresses import Addresses
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.cuda.kernels.blocking import Tuning
from redist.runtime.cuda.kernels.launch import Key, Launch, Start, remembered
from redist.runtime.cuda.kernels.pieces import WORD
from redist.runtime.cuda.kernels.tables import tables_of

_DEFAULT = 4
"""cudaMemcpyDefault: the addresses say which memory they are of."""


@dataclass(frozen=True, slots=True, eq=False)
class CudaCopyList:
    """Copies that may be made in any order, all in one launch: a ``CopyList`` on a GPU.

    No destination overlaps another, nor any source. Buffers are memory of this GPU, of a neighbour's
    opened here, or of the host, pinned and mapped.

    >>> from redist.runtime.copies.strided import Strided
    >>> moves = CudaCopyList.of([BufferCopy(0, 0, 1, 16, Strided(8, ((2, 8, 24),)))])
    >>> len(moves), moves.n_bytes
    (1, 16)
    """

    moves: tuple[BufferCopy, ...]
    n_bytes: int
    tuning: Tuning
    _launches: dict[Key, Launch] = field(default_factory=dict)

    @staticmethod
    def of(moves: Iterable[BufferCopy], tuning: Tuning | None = None) -> CudaCopyList:
        """Prepare ``moves``; what the GPU reads is made at the first run."""
        kept = tuple(move for move in moves if move.form.n_bytes)
        n_bytes = sum(move.form.n_bytes for move in kept)
        return CudaCopyList(kept, n_bytes, tuning or Tuning())

    def __len__(self) -> int:
        return len(self.moves)

    def run(self, bases: Addresses, stream: int = 0) -> None:
        """Start the copies on a stream (its handle); ``bases`` has the address of every buffer."""
        for start in self.bind(bases, stream):
            start()

    def bind(self, bases: Addresses, stream: int = 0) -> list[Start]:
        """What starts the copies of buffers that lie there, on a stream: nothing, or one call."""
        if not self.moves:
            return []
        if len(self.moves) == 1 and not self.moves[0].form.dims:
            return [partial(self._copy_run, bases, stream)]
        return [self.prepared(bases, stream).bind(bases, stream)]

    def prepared(self, bases: Addresses, stream: int = 0) -> Launch:
        """The launch for buffers that lie like these in words of 16 bytes; made once."""

        def make() -> Launch:
            phases = (bases & np.uintp(WORD - 1)).tolist()
            return Launch(tables_of(self.moves, phases, self.tuning), self.tuning)

        return remembered(self._launches, bases, stream, make)

    def _copy_run(self, bases: Addresses, stream: int) -> None:
        from cupy.cuda import runtime

        move = self.moves[0]
        to = int(bases[move.dst]) + move.dst_offset
        of = int(bases[move.src]) + move.src_offset
        runtime.memcpyAsync(to, of, move.form.block, _DEFAULT, stream)
