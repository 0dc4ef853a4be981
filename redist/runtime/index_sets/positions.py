"""Positions along one dim of a tile: evenly spaced, in evenly spaced runs, or listed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from redist.layout.cuts import Ints


@dataclass(frozen=True, slots=True)
class Comb:
    """``teeth`` runs of ``n`` positions each, ``step`` apart.

    >>> list_positions(Comb(1, 5, 2, 3)).tolist()
    [1, 2, 3, 6, 7, 8]
    """

    at: int
    step: int
    teeth: int
    n: int


Positions = range | Comb | Ints
"""The one form of positions: everything that selects elements of a tile is a product of these."""


def count_from(at: int, step: int, n: int) -> range:
    """n positions from ``at`` on; one position if the step is 0.

    >>> count_from(4, -2, 3), count_from(7, 0, 5)
    (range(4, -2, -2), range(7, 8))
    """
    return range(at, at + step * n, step) if step else range(at, at + 1)


def as_slice(positions: range) -> slice:
    """The slice that takes a range of positions.

    >>> "abcdef"[as_slice(range(4, -1, -2))]
    'eca'
    """
    if not positions:
        return slice(0, 0)
    stop = positions.start + len(positions) * positions.step
    return slice(positions.start, None if stop < 0 else stop, positions.step)


def list_positions(positions: Positions) -> Ints:
    """Positions one by one."""
    match positions:
        case range():
            return np.arange(positions.start, positions.stop, positions.step)
        case Comb(at, step, teeth, n):
            starts = at + step * np.arange(teeth)
            return (starts[:, np.newaxis] + np.arange(n)).reshape(-1)
        case _:
            return positions


def take(positions: Positions, lo: int, hi: int) -> Positions:
    """The positions from number lo to number hi.

    >>> take(Comb(1, 5, 4, 3), 3, 9), take(Comb(1, 5, 4, 3), 2, 4).tolist()
    (Comb(at=6, step=5, teeth=2, n=3), [3, 6])
    """
    if not isinstance(positions, Comb):
        return positions[lo:hi]
    if lo % positions.n or hi % positions.n:
        tooth, inside = np.divmod(np.arange(lo, hi), positions.n)
        return positions.at + positions.step * tooth + inside
    first, last = lo // positions.n, hi // positions.n
    return Comb(positions.at + first * positions.step, positions.step, last - first, positions.n)
