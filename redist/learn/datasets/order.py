"""Numbers shuffled without a list of them: the place of each comes from a seed and its number alone.

>>> sorted(Shuffled(10, seed=3)(np.arange(10)).tolist()) == list(range(10))
True

A Feistel network permutes the numbers of 2 b bits; those that land outside go through it again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from redist.pgas.random.philox import Stream

Numbers = NDArray[np.int64]
ROUNDS = 6
ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """A permutation of ``0, ..., n - 1`` by a seed."""

    n: int
    seed: int

    def __call__(self, numbers: Numbers) -> Numbers:
        """**Local.** Where each number goes."""
        bits = np.uint64(max(1, -(-max(1, self.n - 1).bit_length() // 2)))
        keys = Stream(self.seed, 2**20).words(0, ROUNDS)
        out = numbers.astype(np.uint64)
        left = np.arange(len(out))
        while len(left):
            out[left] = _turned(out[left], bits, keys)
            left = left[out[left] >= self.n]
        return out.astype(np.int64)


@dataclass(frozen=True, slots=True)
class InOrder:
    """No permutation."""

    def __call__(self, numbers: Numbers) -> Numbers:
        """**Local.** The numbers."""
        return numbers


def order_of(n: int, shuffle: bool, seed: int) -> Shuffled | InOrder:
    """**Local.** How rows are ordered."""
    return Shuffled(n, seed) if shuffle else InOrder()


def _turned(
    values: NDArray[np.uint64], bits: np.uint64, keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Once through the network: halves change places, one mixed with what a key makes of the other."""
    mask = (np.uint64(1) << bits) - np.uint64(1)
    left, right = values >> bits, values & mask
    for key in keys:
        mixed = (right ^ key) * ODD
        mixed ^= mixed >> np.uint64(29)
        mixed = (mixed * ODD) >> np.uint64(32)
        left, right = right, left ^ (mixed & mask)
    return (left << bits) | right
