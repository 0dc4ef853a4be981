"""A range of a dim, digit by digit.

The dim counts with digits, and a range of it is a few boxes of them::

    digits 3 * 4, range 2 to 11       0 1 2 3 | 4 5 6 7 | 8 9 10 11
                                          ^^^   ^^^^^^^   ^^^^^^
                                         head    whole     tail
"""

from __future__ import annotations

from collections.abc import Sequence

Digit = tuple[int, int]
"""The size of a digit, and how far one step of it goes along its dim."""
Counted = tuple[tuple[int, int], ...]
"""Of each digit the first and how many."""


def boxes_in(lo: int, hi: int, digits: Sequence[Digit]) -> list[Counted]:
    """The boxes of digits, larger steps first, whose places lie from ``lo`` up to ``hi``.

    >>> boxes_in(2, 11, [(3, 4), (4, 1)])
    [((0, 1), (2, 2)), ((1, 1), (0, 4)), ((2, 1), (0, 3))]
    >>> boxes_in(0, 12, [(3, 4), (4, 1)])
    [((0, 3), (0, 4))]
    """
    if not digits:
        return [()] if lo <= 0 < hi else []
    (size, step), *inner = digits
    extent = 1 + sum((n - 1) * s for n, s in inner)
    first = max(0, -(-lo // step))
    last = min(size, (hi - extent) // step + 1 if hi >= extent else 0)
    tail = max(first, last)
    found = _below(first - 1, lo, hi, step, inner) if 0 < first <= size else []
    if first < last:
        found.append(((first, last - first), *((0, n) for n, _ in inner)))
    return found + (_below(tail, lo, hi, step, inner) if tail < size else [])


def _below(i: int, lo: int, hi: int, step: int, inner: Sequence[Digit]) -> list[Counted]:
    return [((i, 1), *box) for box in boxes_in(lo - i * step, hi - i * step, inner)]
