"""Rows and their labels as global arrays: every rank writes its own, and nothing moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import ArgumentError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import Box
from redist.learn.given import one_random_state
from redist.pgas.creation import Type, make
from redist.pgas.global_array import Array
from redist.pgas.random.generators import Stream
from redist.pgas.tiles.devices import kind_of
from redist.pgas.tiles.layouts import MeshLike, dtype_of
from redist.pgas.tiles.tiled import Tile
from redist.runtime.ranks.world import Comm, comm_or_world

# Random numbers by row: those of row i are the same whoever makes them, and however rows are cut.
#
# >>> draws = RowDraws(seed=7, number=0)
# >>> bool((draws.normal(0, 9, 2)[4:] == draws.normal(4, 9, 2)).all())
# True


Values = NDArray[Any]


class RowDraws:
    """A random stream of a seed; ``number`` tells streams of one seed apart."""

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
        """**Local.** A generator for small values that are the same on every rank: centres, mixtures."""
        words = self._stream.words(0, 4)
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(words.tolist())))


def seed_of(random_state: Any, comm: Comm | None) -> int:
    """**Local** for an int, else **collective**. A seed from ``random_state``; rank 0 chooses it for None."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        return int(random_state)
    return int(one_random_state(comm_or_world(comm), random_state).randint(2**31 - 1))


# Numbers shuffled without a list of them: the place of each comes from a seed and its number alone.
#
# >>> sorted(Shuffled(10, seed=3)(np.arange(10)).tolist()) == list(range(10))
# True
#
# A Feistel network permutes the numbers of 2 b bits; those that land outside go through it again.


Numbers = NDArray[np.int64]
ROUNDS = 6
ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """A permutation of ``0, ..., n - 1`` determined by a seed."""

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


def order_of(n: int, shuffle: bool, seed: int) -> Callable[[Numbers], Numbers]:
    """**Local.** Where each row of a number goes: to a shuffled place or to its own."""
    return Shuffled(n, seed) if shuffle else lambda numbers: numbers


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


PartOfRows = Callable[[int, int], Values]
"""Makes rows ``lo`` to ``hi`` of a set."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a set is to lie, and its dtype."""

    dtype: Any = np.float64
    type: Type | None = None
    mesh: MeshLike | None = None
    comm: Comm | None = None
    device: Any = None


def make_rows(shape: tuple[int, int], part: PartOfRows, place: Place) -> Array:
    """**Local.** An array whose rows ``part`` makes."""

    def fill(tile: Tile, box: Box) -> None:
        (lo, hi), (first, last) = box
        tile[...] = part(lo, hi)[:, first:last]

    dtype = np.dtype(place.dtype)
    if dtype.kind != "f":
        raise ArgumentError(f"cannot make rows of {dtype}: need floats")
    return make(shape, dtype, fill, place.type, place.mesh, place.comm, place.device)


def label_rows(x: Array, part: PartOfRows, dtype: Any = np.int64, dim: int = 0) -> Array:
    """**Local.** Values for the rows, cut as a dim of ``x`` is, where its tiles lie."""

    def fill(tile: Tile, box: Box) -> None:
        tile[...] = part(*box[0])

    kind = np.dtype(dtype)
    t = ArrayType(x.mesh, dtype_of(kind), (x.shape[dim],), (x.type.dims[dim],))
    return make(t.shape, kind, fill, t, None, x.comm, kind_of(x))


def counts_of(n_samples: int | Sequence[int], n_groups: int) -> list[int]:
    """**Local.** How many rows each group has: as given, or evenly shared, with one more in the first groups.

    >>> counts_of(10, 3), counts_of((4, 5), 2)
    ([4, 3, 3], [4, 5])
    """
    if isinstance(n_samples, (int, np.integer)):
        each, more = divmod(int(n_samples), n_groups)
        return [each + (i < more) for i in range(n_groups)]
    counts = [int(n) for n in n_samples]
    if len(counts) != n_groups:
        raise ArgumentError(f"cannot make {n_groups} groups of {counts} rows: numbers differ")
    return counts


def group_of(numbers: NDArray[np.int64], counts: Sequence[int]) -> tuple[Values, Values]:
    """**Local.** Each row's group and its number within the group, if groups follow one another."""
    ends = np.cumsum(counts)
    group = np.searchsorted(ends, numbers, side="right")
    return group, numbers - (ends - counts)[group]
