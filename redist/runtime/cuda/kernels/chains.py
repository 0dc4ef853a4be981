"""The order of reductions: what is folded on the way, and what waits for what was written before."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from redist.runtime.copies.copy_list import BufferCopy


@dataclass(frozen=True, slots=True)
class ReductionChain:
    """A copy and what is combined with it, in order: all is read once, and the result written once.

    ``more`` are the buffers and offsets of further sources; they lie as the first one does.

    >>> from redist.runtime.copies.strided import Strided
    >>> first = BufferCopy(0, 0, 1, 0, Strided(32, ()))
    >>> [move.src for move in ReductionChain(first, ((2, 0), (3, 8))).moves()]
    [1, 2, 3]
    """

    move: BufferCopy
    more: tuple[tuple[int, int], ...]

    def moves(self) -> tuple[BufferCopy, ...]:
        """The copy, and what would be combined with it one after another."""
        first = self.move
        further = (BufferCopy(first.dst, first.dst_offset, *at, first.form) for at in self.more)
        return first, *further


def chain_copies(
    copies: Iterable[BufferCopy], moves: Iterable[BufferCopy]
) -> tuple[tuple[ReductionChain, ...], tuple[BufferCopy, ...]]:
    """Chains that begin with some of the copies, and the moves that are in none.

    A move is of a chain if it is like its copy in all but the source, and if no move before it that
    is in no chain may write to the same bytes. The chains come first, then the other moves.

    >>> from redist.runtime.copies.strided import Strided
    >>> one, two = Strided(32, ()), Strided(8, ((4, 8, 16),))
    >>> moves = [BufferCopy(0, 0, 2, 0, one), BufferCopy(0, 0, 3, 0, two), BufferCopy(0, 0, 4, 0, one)]
    >>> chains, rest = chain_copies([BufferCopy(0, 0, 1, 0, one)], moves)
    >>> [chain.more for chain in chains], [move.src for move in rest]
    ([((2, 0),)], [3, 4])
    """
    more: dict[tuple[int, int, object], list[tuple[int, int]]] = {}
    heads = [(move, (move.dst, move.dst_offset, move.form)) for move in copies]
    for _, key in heads:
        more[key] = []
    rest: dict[int, list[BufferCopy]] = {}
    for move in moves:
        found = more.get((move.dst, move.dst_offset, move.form))
        apart = rest.setdefault(move.dst, [])
        if found is None or any(_meet(other, move) for other in apart):
            apart.append(move)
        else:
            found.append((move.src, move.src_offset))
    chains = tuple(ReductionChain(move, tuple(more[key])) for move, key in heads if more[key])
    return chains, tuple(move for apart in rest.values() for move in apart)


def turns_of(moves: list[BufferCopy]) -> tuple[tuple[BufferCopy, ...], ...]:
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


def _span(move: BufferCopy) -> tuple[int, int]:
    low = high = move.dst_offset
    for count, stride, _ in move.form.dims:
        low += min(0, stride * (count - 1))
        high += max(0, stride * (count - 1))
    return low, high + move.form.block


def _clusters(moves: list[BufferCopy]) -> Iterable[list[int]]:
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


def _meet(a: BufferCopy, b: BufferCopy) -> bool:
    """Whether two moves into a buffer may write to the same byte."""
    (a_low, a_high), (b_low, b_high) = _span(a), _span(b)
    if a_high <= b_low or b_high <= a_low:
        return False
    step = math.gcd(*(dim[1] for dim in (*a.form.dims, *b.form.dims)))
    if step == 0:
        return True
    rest = (b.dst_offset - a.dst_offset) % step
    return rest < a.form.block or step - rest < b.form.block
