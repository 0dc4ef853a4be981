"""A round of a stage for the GPU: the same copies and reductions as on the host, each list one launch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from redist.errors import RedistError
from redist.layout.dtype import DType
from redist.runtime.copies.addresses import Addresses
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.copies.reduce import check_reduces, combine, combines_on_gpu
from redist.runtime.cuda.kernels.blocking import Tuning
from redist.runtime.cuda.kernels.chains import ReductionChain, chain_copies, turns_of
from redist.runtime.cuda.kernels.launch import Key, Launch, Start, phases, remembered
from redist.runtime.cuda.kernels.tables import Tables, tables_of
from redist.runtime.schedule.compiler import Message, Round

_ITEMS = {
    "bool": ("unsigned char", 2),
    "i8": ("signed char", 1),
    "i16": ("short", 1),
    "i32": ("int", 1),
    "i64": ("long long", 1),
    "u8": ("unsigned char", 1),
    "u16": ("unsigned short", 1),
    "u32": ("unsigned int", 1),
    "u64": ("unsigned long long", 1),
    "f16": ("unsigned short", 3),
    "bf16": ("unsigned short", 4),
    "f32": ("float", 0),
    "f64": ("double", 0),
    "c64": ("Complex64", 5),
    "c128": ("Complex128", 5),
}


_TABULATED = 6
"""The kind of elements of one byte: a table has the result for every two of them."""


@dataclass(frozen=True, slots=True, eq=False)
class CudaReductionList:
    """``dst = dst op src`` over moves, in order where they meet: one launch, or one for each turn.

    ``chains`` come first, in a launch of their own.

    >>> from redist.runtime.copies.strided import Strided
    >>> moves = [BufferCopy(0, 0, k, 0, Strided(32, ())) for k in (1, 2, 3)]
    >>> len(CudaReductionList.of(moves, "sum", DType.parse("f32")).turns)
    3
    >>> made = CudaReductionList.of(moves[1:], "sum", DType.parse("f32"), copies=moves[:1])
    >>> len(made.chains), len(made.turns)
    (1, 0)
    """

    chains: tuple[ReductionChain, ...]
    turns: tuple[tuple[BufferCopy, ...], ...]
    op: str
    dtype: DType
    tuning: Tuning
    _launches: dict[Key, list[Launch]] = field(default_factory=dict)
    _bound: dict[Key, list[Start]] = field(default_factory=dict)

    @staticmethod
    def of(
        moves: Iterable[BufferCopy],
        op: str,
        dtype: DType,
        tuning: Tuning | None = None,
        copies: Iterable[BufferCopy] = (),
    ) -> CudaReductionList:
        """Prepare; moves into the same place become launches one after another.

        Those of ``copies`` that begin a chain are made here, and must not be made elsewhere.
        """
        prelude_of(op, dtype)
        chains, rest = chain_copies(copies, [move for move in moves if move.form.n_bytes])
        turns = turns_of(list(rest))
        return CudaReductionList(chains, turns, op, dtype, tuning or Tuning(waves=(1, 1, 1)))

    def run(self, bases: Addresses, stream: int = 0) -> None:
        """Start the reductions on a stream; ``bases`` has the address of every buffer."""
        for start in remembered(self._bound, bases, stream, partial(self.bind, bases, stream)):
            start()

    def bind(self, bases: Addresses, stream: int = 0) -> list[Start]:
        """What starts the reductions of buffers that lie there, on a stream, one after another."""
        lie = phases(bases)

        def make() -> list[Launch]:
            prelude = prelude_of(self.op, self.dtype)
            return [Launch(tables, self.tuning, prelude) for tables in self.tables(lie.tolist())]

        launches = remembered(self._launches, lie, stream, make)
        return [launch.bind(bases, stream) for launch in launches]

    def tables(self, phases: Sequence[int]) -> list[Tables]:
        """What the kernel reads, launch by launch."""
        least = least_word(self.op, self.dtype)
        lists: list[Sequence[BufferCopy | ReductionChain]] = [self.chains, *self.turns]
        return [tables_of(one, phases, self.tuning, least, folds=True) for one in lists if one]


def least_word(op: str, dtype: DType) -> int:
    """Bytes that are combined as one; the parts of complex numbers are added alone."""
    return dtype.itemsize // (2 if op == "sum" and dtype.name[0] == "c" else 1)


@lru_cache(maxsize=1)
def _source() -> str:
    return Path(__file__).with_name("combine.cu").read_text(encoding="utf-8")


def _table(op: str, dtype: DType) -> str:
    """The result for every two bytes, as computed on the host: 8 to a word."""
    values = np.arange(2**8, dtype=np.uint8)
    with np.errstate(all="ignore"):
        results = combine(op, dtype, np.repeat(values, 2**8), np.tile(values, 2**8))
    words = ",".join(map(hex, results.view(np.uint64).tolist()))
    return f"__device__ const unsigned long long TABLE[] = {{{words}}};"


@lru_cache(maxsize=64)
def prelude_of(op: str, dtype: DType) -> str:
    """What stands before the copies' source to make reductions of them.

    >>> prelude_of("max", DType.parse("bf16")).splitlines()[:3]
    ['#define OP MAX', '#define ITEM unsigned short', '#define KIND_OF_ITEM 4']
    """
    if not combines_on_gpu(op, dtype):
        known = ", ".join(_ITEMS)
        raise RedistError(f"cannot take the {op} of {dtype} on the GPU; known: {known}, f8...")
    check_reduces(op, dtype)
    name = dtype.name
    if op == "sum" and name[0] == "c":
        name = "f32" if name == "c64" else "f64"
    item, kind = _ITEMS.get(name, ("unsigned char", _TABULATED))
    lines = [f"#define OP {op.upper()}", f"#define ITEM {item}", f"#define KIND_OF_ITEM {kind}"]
    if kind == _TABULATED:
        lines.append(_table(op, dtype))
    return "\n".join((*lines, _source()))


# Lists of strided copies between buffers of a GPU, prepared once and run many times.


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
    _bound: dict[Key, list[Start]] = field(default_factory=dict)

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
        for start in remembered(self._bound, bases, stream, partial(self.bind, bases, stream)):
            start()

    def bind(self, bases: Addresses, stream: int = 0) -> list[Start]:
        """What starts the copies of buffers that lie there, on a stream: nothing, or one call."""
        if not self.moves:
            return []
        if len(self.moves) == 1 and not self.moves[0].form.dims:
            return [partial(self._copy_run, bases.copy(), stream)]
        return [self.prepared(bases, stream).bind(bases, stream)]

    def prepared(self, bases: Addresses, stream: int = 0) -> Launch:
        """The launch for buffers that lie like these in words of 16 bytes; made once."""
        lie = phases(bases)

        def make() -> Launch:
            return Launch(tables_of(self.moves, lie.tolist(), self.tuning), self.tuning)

        return remembered(self._launches, lie, stream, make)

    def _copy_run(self, bases: Addresses, stream: int) -> None:
        from cupy.cuda import runtime

        move = self.moves[0]
        to = int(bases[move.dst]) + move.dst_offset
        of = int(bases[move.src]) + move.src_offset
        runtime.memcpyAsync(to, of, move.form.block, _DEFAULT, stream)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Equal messages of every rank of a group to all others of it, side by side in one buffer."""

    ranks: tuple[int, ...]
    base: int
    n_bytes: int
    """Of one rank."""


@dataclass(frozen=True, slots=True, eq=False)
class CudaRound:
    """What a rank does in one round: pack and send, fetch from its node, unpack, combine.

    Where there is something to be ``gathered``, that takes the place of messages.
    """

    pack: CudaCopyList
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
    copies: CudaCopyList
    unpack: CudaCopyList
    combines: tuple[CudaReductionList, ...]
    gathered: Gathered | None = None

    @staticmethod
    def of(*rounds: Round) -> CudaRound:
        """The same round on a GPU; several, of ranks that one moves for, become one.

        Copies that later values are combined with are made by the reductions where they can be.
        """
        assert not any(len(r.publish) or r.reads for r in rounds), (
            "tiles of a GPU are read in place"
        )
        pack, copies, unpack = (
            [move for table in tables for move in table.moves()]
            for tables in zip(*((r.pack, r.copies, r.unpack) for r in rounds), strict=True)
        )
        alike: dict[tuple[str, DType], list[BufferCopy]] = {}
        for one in (one for r in rounds for one in r.combines):
            alike.setdefault((one.op, one.dtype), []).extend(one.moves.moves())
        combines = tuple(
            CudaReductionList.of(moves, *what, copies=[*copies, *unpack])
            for what, moves in alike.items()
        )
        taken = {chain.move for combine in combines for chain in combine.chains}
        return CudaRound(
            CudaCopyList.of(pack),
            tuple(message for r in rounds for message in r.sends),
            tuple(message for r in rounds for message in r.receives),
            CudaCopyList.of(move for move in copies if move not in taken),
            CudaCopyList.of(move for move in unpack if move not in taken),
            combines,
        )

    def fetch(self, table: Addresses, stream: Any) -> None:
        """Start the copies out of the neighbours' tiles."""
        self.copies.run(table, stream.ptr)

    def take_apart(self, table: Addresses, stream: Any) -> None:
        """Start what follows the messages."""
        self.unpack.run(table, stream.ptr)
        for one in self.combines:
            one.run(table, stream.ptr)
