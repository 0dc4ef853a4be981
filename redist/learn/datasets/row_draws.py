"""Random numbers by row: those of row i are the same whoever makes them, and however rows are cut.

>>> draws = RowDraws(seed=7, number=0)
>>> bool((draws.normal(0, 9, 2)[4:] == draws.normal(4, 9, 2)).all())
True
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.learn.ranks.totals import one_random_state
from redist.pgas.random.philox import Stream
from redist.runtime.ranks.world import Comm, comm_or_world

Values = NDArray[Any]


class RowDraws:
    """A stream of a seed, so many numbers a row; ``number`` tells streams of one seed apart."""

    def __init__(self, seed: int, number: int) -> None:
        self._stream = Stream(seed, number)

    def uniform(self, lo: int, hi: int, width: int) -> Values:
        """**Local.** Rows ``lo`` to ``hi`` of ``width`` numbers in [0, 1)."""
        words = self._stream.words(lo * width, (hi - lo) * width)
        return np.ldexp((words >> np.uint64(11)).astype(np.float64), -53).reshape(hi - lo, width)

    def normal(self, lo: int, hi: int, width: int) -> Values:
        """**Local.** Rows ``lo`` to ``hi`` of ``width`` normal numbers, by Box and Muller."""
        pairs = self.uniform(lo, hi, 2 * width)
        out: Values = np.sqrt(-2.0 * np.log1p(-pairs[:, 0::2])) * np.cos(2 * np.pi * pairs[:, 1::2])
        return out

    def alike(self) -> np.random.Generator:
        """**Local.** A generator for what is small, and the same on every rank: centres, mixtures."""
        words = self._stream.words(0, 4)
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(words.tolist())))


def seed_of(random_state: Any, comm: Comm | None) -> int:
    """**Local** for an int; else **collective**: a seed drawn from a generator, of None by rank 0."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        return int(random_state)
    return int(one_random_state(comm_or_world(comm), random_state).randint(2**31 - 1))
