"""Random arrays from a seed: the values depend on the global index, not on ranks or layouts.

Philox turns a key and a counter into bits, four words at a time, so a rank makes those of its tile: the bits
of element i of a stream are the same whoever asks for them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from redist.errors import ArgumentTypeError, RequestError
from redist.layout.tiles import Box
from redist.pgas.creation import Shape, Type, make, sizes_of, write_parts
from redist.pgas.ghosts.tape import current_tape
from redist.pgas.global_array import Array
from redist.pgas.kinds import computing, dtype_asked, float_limits, is_half, number_kind
from redist.pgas.tiles.arranging import left_alone
from redist.pgas.tiles.layouts import MeshLike
from redist.pgas.tiles.tiled import Tile, own_box
from redist.runtime.ranks.world import Comm

Words = NDArray[np.uint64]

PER_COUNTER = 4
GAP = 512
"""Bits of this many elements between two runs are made and thrown away rather than skipped."""
CHUNK = 2**16
"""Elements whose bits are made at a time."""


class Stream:
    """Words by place: ``words(start, n)`` of a stream with a key."""

    def __init__(self, seed: int, number: int) -> None:
        sequence = np.random.SeedSequence([seed, number])
        self._key = sequence.generate_state(2, np.uint64)

    def words(self, start: int, n: int) -> Words:
        """**Local.** Words ``start`` to ``start + n``."""
        first, skip = divmod(start, PER_COUNTER)
        bits = np.random.Philox(key=self._key)
        bits.advance(first)
        return np.asarray(bits.random_raw(skip + n), dtype=np.uint64)[skip:]


def fill(
    tile: Tile,
    shape: tuple[int, ...],
    box: Box,
    stream: Stream,
    per: int,
    turn: Callable[[Words], Tile],
) -> None:
    """**Local.** Write ``turn(words)`` of a box of an array into its tile, ``per`` words an element."""
    line, step, starts = lines(shape, box)
    rows = np.empty((len(starts), line), tile.dtype)
    if tile.flags.c_contiguous:
        rows = tile.reshape(rows.shape)
    for first, last in stretches(starts, line, step):
        start = int(starts[first])
        end = int(starts[last - 1]) + line
        if last - first == 1:
            for at in range(start, end, CHUNK):
                stop = min(end, at + CHUNK)
                values = turn(stream.words(at * per, (stop - at) * per))
                rows[first, at - start : stop - start] = values
        else:
            values = turn(stream.words(start * per, (end - start) * per))
            strides = (step * values.itemsize, values.itemsize)
            rows[first:last] = as_strided(values, (last - first, line), strides)
    if not tile.flags.c_contiguous:
        tile[...] = rows.reshape(tile.shape)


def lines(shape: tuple[int, ...], box: Box) -> tuple[int, int, NDArray[np.int64]]:
    """Length of the lines of a box that are contiguous in the array, their step, where they start.

    >>> lines((4, 6), ((1, 3), (2, 4)))
    (2, 6, array([ 8, 14]))
    """
    d = len(shape)
    while d > 0 and box[d - 1] == (0, shape[d - 1]):
        d -= 1
    below = math.prod(shape[d:])
    if d == 0:
        return below, max(1, below), np.zeros(1, np.int64)
    lo, hi = box[d - 1]
    starts = np.zeros(1, np.int64)
    for n, (first, last) in zip(shape[: d - 1], box[: d - 1], strict=True):
        starts = (starts[:, None] * n + np.arange(first, last)[None, :]).reshape(-1)
    step = shape[d - 1] * below
    return (hi - lo) * below, step, starts * step + lo * below


def stretches(starts: NDArray[np.int64], line: int, step: int) -> Iterator[tuple[int, int]]:
    """Ranges of lines whose words are made together: evenly spaced, and close to each other."""
    together = max(1, CHUNK // step) if step - line <= GAP else 1
    jumps = np.flatnonzero(np.diff(starts) != step) + 1
    for first, last in itertools.pairwise([0, *jumps.tolist(), len(starts)]):
        for at in range(first, last, together):
            yield at, min(last, at + together)


def generator(seed: int) -> Generator:
    """**Local.** Make a source of random arrays; every rank must pass the same seed.

    ``pgas.random.generator(7).normal((1000, 1000), type="{x}, {}")``
    """
    return Generator(seed)


class Generator:
    """A source of random arrays; each call uses the next stream of the seed."""

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise RequestError(f"cannot seed by {seed!r}: need an int >= 0, the same on every rank")
        self.seed, self.calls = int(seed), 0

    def uniform(
        self, shape: Shape, low: float = 0.0, high: float = 1.0, *,
        dtype: Any = np.float64, type: Type | None = None,
        mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
    ) -> Array:  # fmt: skip
        """**Local.** Uniform numbers in [low, high); ``type``, ``mesh`` and ``comm`` say where they lie."""
        kind = _float_dtype(dtype)

        def turn(words: Words) -> Tile:
            unit = _unit_numbers(words, kind)
            return unit if (low, high) == (0.0, 1.0) else low + unit * (high - low)

        return self._make(shape, kind, 1, turn, (type, mesh, comm, device))

    def normal(
        self, shape: Shape, mean: float = 0.0, deviation: float = 1.0, *,
        dtype: Any = np.float64, type: Type | None = None,
        mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
    ) -> Array:  # fmt: skip
        """**Local.** Normally distributed random numbers (by Box and Muller: two words each)."""
        kind = _float_dtype(dtype)

        def turn(words: Words) -> Tile:
            radius = np.sqrt(-2.0 * np.log1p(-_unit_numbers(words[0::2], np.dtype(float))))
            return mean + deviation * (
                radius * np.cos(2 * np.pi * _unit_numbers(words[1::2], np.dtype(float)))
            )

        return self._make(shape, kind, 2, turn, (type, mesh, comm, device))

    def integers(
        self, shape: Shape, low: int, high: int, *,
        dtype: Any = np.int64, type: Type | None = None,
        mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
    ) -> Array:  # fmt: skip
        """**Local.** Random integers in [low, high), equally likely up to 1 part in 2**64 / (high - low)."""
        kind = np.dtype(dtype)
        if number_kind(kind) not in "iu":
            raise ArgumentTypeError(f"cannot make random integers of {kind}")
        if not low < high or low < np.iinfo(kind).min or high - 1 > np.iinfo(kind).max:
            raise RequestError(f"cannot make {kind} in [{low}, {high}): empty, or out of its range")
        count = int(high) - int(low)
        offset = np.array(int(low) % 2**64, np.uint64)

        def turn(words: Words) -> Tile:
            return (_scale(words, count) + offset).astype(kind)

        return self._make(shape, kind, 1, turn, (type, mesh, comm, device))

    @left_alone
    def _make(
        self, shape: Shape, kind: np.dtype[Any], per: int, turn: Callable[[Words], Tile],
        where: tuple[Type | None, MeshLike | None, Comm | None, Any],
    ) -> Array:  # fmt: skip
        sizes = sizes_of(shape)
        tape = current_tape()
        if tape is not None:  # every run of the program takes the next stream
            later = tape.call_later(self._next_stream)
            made = make(sizes, kind, None, *where)
            if made.tile is not None and made.tile.size:
                given = own_box(made), sizes, later, per, turn
                made.memory.write(fill_whole, made.tile, *given)
            return made
        stream = self._next_stream()

        def write(tile: Tile, box: Box) -> None:
            fill(tile, sizes, box, stream, per, turn)

        return make(sizes, kind, write, *where)

    def _next_stream(self) -> Stream:
        stream = Stream(self.seed, self.calls)
        self.calls += 1
        return stream


def fill_whole(
    tile: Tile, box: Box, sizes: tuple[int, ...], stream: Stream, per: int,
    turn: Callable[[Words], Tile],
) -> None:  # fmt: skip
    """Write a tile of random values, part by part."""
    write_parts(tile, box, lambda part, inner: fill(part, sizes, inner, stream, per, turn))


def _float_dtype(dtype: Any) -> np.dtype[Any]:
    kind = dtype_asked(dtype)
    if kind not in (np.float32, np.float64) and not is_half(kind):
        raise ArgumentTypeError(
            f"cannot make random numbers of {kind}: need float32, float64, float16 or bfloat16"
        )
    return kind


def _unit_numbers(words: Words, kind: np.dtype[Any]) -> Tile:
    """Numbers in [0, 1): the upper bits of words."""
    bits = -int(math.log2(float_limits(kind).eps)) + 1  # of a float's own: none is rounded up to 1
    kind = computing(kind)
    return np.ldexp((words >> np.uint64(64 - bits)).astype(kind), -bits).astype(kind, copy=False)


def _scale(words: Words, count: int) -> Words:
    """``words * count / 2**64``, rounded down."""
    if count == 2**64:
        return words
    mask, half = np.uint64(2**32 - 1), np.uint64(32)
    low, high = words & mask, words >> half
    c0, c1 = np.uint64(count & (2**32 - 1)), np.uint64(count >> 32)
    middle = ((low * c0) >> half) + (high * c0 & mask) + low * c1 % np.uint64(2**32)
    upper = (high * c0 >> half) + ((low * c1) >> half)
    return high * c1 + upper + (middle >> half)
