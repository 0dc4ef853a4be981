"""Lists of strided reductions between buffers of a GPU: what is there is combined with what comes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from redist.errors import RedistError
from redist.layout.dtype import DType
from redist.runtime.cuda_launch import Launch
from redist.runtime.cuda_rows import WORD, tables_of
from redist.runtime.cuda_tiles import Tuning
from redist.runtime.moves import Addresses, Move
from redist.runtime.reduce import check_reduces

_OPS = ("sum", "prod", "max", "min")
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


@dataclass(frozen=True, slots=True, eq=False)
class CudaCombine:
    """``dst = dst op src`` over moves, in order where they meet: one launch, or one for each turn.

    >>> from redist.runtime.strided import Strided
    >>> moves = [Move(0, 0, k, 0, Strided(32, ())) for k in (1, 2)]
    >>> len(CudaCombine.of(moves, "sum", DType.named("f32")).turns)
    2
    """

    turns: tuple[tuple[Move, ...], ...]
    op: str
    dtype: DType
    tuning: Tuning
    _launches: dict[bytes, list[Launch]] = field(default_factory=dict)

    @staticmethod
    def of(
        moves: Iterable[Move], op: str, dtype: DType, tuning: Tuning | None = None
    ) -> CudaCombine:
        """Prepare; moves into the same place become launches one after another."""
        prelude_of(op, dtype)
        kept = [move for move in moves if move.form.n_bytes]
        return CudaCombine(turns_of(kept), op, dtype, tuning or Tuning(waves=(1, 1)))

    def run(self, bases: Addresses, stream: int = 0) -> None:
        """Start the reductions on a stream; ``bases`` has the address of every buffer."""
        phases = bases & np.uintp(WORD - 1)
        key = phases.tobytes()
        if key not in self._launches:
            prelude = prelude_of(self.op, self.dtype)
            least = least_word(self.op, self.dtype)
            self._launches[key] = [
                Launch(tables_of(turn, phases.tolist(), self.tuning, least), self.tuning, prelude)
                for turn in self.turns
            ]
        for launch in self._launches[key]:
            launch(bases, stream)


def least_word(op: str, dtype: DType) -> int:
    """Bytes that are combined as one; the parts of complex numbers are added alone."""
    return dtype.itemsize // (2 if op == "sum" and dtype.name[0] == "c" else 1)


def can_combine(op: str, dtype: DType) -> bool:
    """Whether a GPU can reduce such elements.

    >>> can_combine("sum", DType.named("f32")), can_combine("sum", DType.named("f8e5m2"))
    (True, False)
    """
    return op in _OPS and dtype.name in _ITEMS


@lru_cache(maxsize=1)
def _source() -> str:
    return Path(__file__).with_name("cuda_combine.cu").read_text(encoding="utf-8")


def prelude_of(op: str, dtype: DType) -> str:
    """What stands before the copies' source to make reductions of them.

    >>> prelude_of("max", DType.named("bf16")).splitlines()[:3]
    ['#define OP MAX', '#define ITEM unsigned short', '#define KIND_OF_ITEM 4']
    """
    if dtype.name not in _ITEMS or op not in _OPS:
        raise RedistError(f"cannot take the {op} of {dtype} on the GPU; known: {', '.join(_ITEMS)}")
    check_reduces(op, dtype)
    name = dtype.name
    if op == "sum" and name[0] == "c":
        name = "f32" if name == "c64" else "f64"
    item, kind = _ITEMS[name]
    lines = (f"#define OP {op.upper()}", f"#define ITEM {item}", f"#define KIND_OF_ITEM {kind}")
    return "\n".join((*lines, _source()))


def turns_of(moves: list[Move]) -> tuple[tuple[Move, ...], ...]:
    """Moves in as few turns as keep the order of those that may write to the same bytes."""
    turn = [0] * len(moves)
    for cluster in _clusters(moves):
        for n, k in enumerate(cluster):
            before = [turn[j] + 1 for j in cluster[:n] if _meet(moves[j], moves[k])]
            turn[k] = max(before, default=0)
    last = max(turn, default=-1)
    return tuple(
        tuple(move for move, at in zip(moves, turn, strict=True) if at == number)
        for number in range(last + 1)
    )


def _span(move: Move) -> tuple[int, int]:
    low = high = move.dst_offset
    for count, stride, _ in move.form.dims:
        low += min(0, stride * (count - 1))
        high += max(0, stride * (count - 1))
    return low, high + move.form.block


def _clusters(moves: list[Move]) -> Iterable[list[int]]:
    """Numbers of moves whose spans of destination bytes hang together."""
    spans = sorted((move.dst, *_span(move), k) for k, move in enumerate(moves))
    cluster: list[int] = []
    buffer, end = -1, 0
    for dst, low, high, k in spans:
        if dst != buffer or low >= end:
            yield sorted(cluster)
            cluster, buffer, end = [], dst, high
        cluster.append(k)
        end = max(end, high)
    yield sorted(cluster)


def _meet(a: Move, b: Move) -> bool:
    """Whether two moves into a buffer may write to the same byte."""
    (a_low, a_high), (b_low, b_high) = _span(a), _span(b)
    if a_high <= b_low or b_high <= a_low:
        return False
    step = math.gcd(*(dim[1] for dim in (*a.form.dims, *b.form.dims)))
    if step == 0:
        return True
    rest = (b.dst_offset - a.dst_offset) % step
    return rest < a.form.block or step - rest < b.form.block
