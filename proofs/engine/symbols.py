"""The formulas of tiles, on numbers and on symbols alike.

Tests compare each on numbers with the function that the program runs; theorems put symbols in.
"""

from __future__ import annotations

from typing import Any

import z3

Num = Any
"""An int, or an integer symbol."""
Fact = Any
"""A bool, or a constraint on symbols."""


def least(a: Num, b: Num) -> Num:
    """The smaller of two.

    >>> least(3, 2), z3.simplify(least(z3.IntVal(3), 2))
    (2, 2)
    """
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else z3.If(a <= b, a, b)


def most(a: Num, b: Num) -> Num:
    """The larger of two."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else z3.If(a >= b, a, b)


def below(i: Num, k: Num) -> tuple[Fact, ...]:
    """i is one of 0, 1, ..., k - 1."""
    return i >= 0, i < k


def between(low: Num, i: Num, high: Num) -> tuple[Fact, ...]:
    """i is one of low, ..., high."""
    return i >= low, i <= high


def is_tile(n: Num, k: Num, c: Num) -> tuple[Fact, ...]:
    """c is the size of a full tile of a dim of size n cut into k: n / k rounded up.

    >>> [c for c in range(9) if all(is_tile(10, 4, c))], [c for c in range(9) if all(is_tile(0, 4, c))]
    ([3], [0])
    """
    return (n >= 0, k >= 1, (c - 1) * k < n, n <= c * k)


def start(n: Num, c: Num, i: Num) -> Num:
    """Start of tile i."""
    return least(i * c, n)


def end(n: Num, c: Num, i: Num) -> Num:
    """End of tile i, as :meth:`redist.layout.cuts.EvenCut.range_of` computes it.

    >>> [(start(10, 3, i), end(10, 3, i)) for i in range(4)]
    [(0, 3), (3, 6), (6, 9), (9, 10)]
    """
    return least(start(n, c, i) + c, n)


def holds(n: Num, c: Num, i: Num, j: Num) -> Fact:
    """Index j lies in tile i."""
    low, high = start(n, c, i) <= j, j < end(n, c, i)
    return (low and high) if isinstance(low, bool) else z3.And(low, high)


def quotient(j: Num, c: Num, q: Num, r: Num) -> tuple[Fact, ...]:
    """j divided by c is q, and r is left.

    >>> all(quotient(7, 3, 2, 1))
    True
    """
    return (j == q * c + r, *below(r, c))
