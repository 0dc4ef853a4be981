"""Random bits by place: the bits of element i of a stream are the same whoever asks for them.

Philox turns a key and a counter into bits, four words at a time, so a rank makes those of its tile.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from redist.layout.tiles import Box
from redist.pgas.tiles.tiled import Tile

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
    below = int(np.prod(shape[d:], dtype=np.int64))
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
