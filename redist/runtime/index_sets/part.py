"""Parts of a tile: what a one-sided operation touches there, as an index, as words, as byte runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.layout.cuts import Ints
from redist.runtime.index_sets.held import as_slice

Selector = range | Ints
"""The positions that travel between ranks: evenly spaced, or listed in any order."""
Where = tuple[slice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The product of selectors, one for each dim, of which at most one is a list.

    ``flat`` parts have one list: positions in the tile, counted in C order.

    >>> tile = np.arange(12).reshape(3, 4)
    >>> tile[Part((range(2, -1, -2), np.array([3, 0]))).index(tile.shape)]
    array([[11,  8],
           [ 3,  0]])
    >>> tile[Part((np.array([7, 2]),), flat=True).index(tile.shape)]
    array([7, 2])
    """

    dims: tuple[Selector, ...]
    flat: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the elements taken."""
        return tuple(len(dim) for dim in self.dims)

    @property
    def n_elems(self) -> int:
        """How many elements."""
        return math.prod(self.shape)

    @property
    def has_list(self) -> bool:
        """Whether one of the selectors is a list."""
        return not all(isinstance(dim, range) for dim in self.dims)

    @property
    def repeats(self) -> bool:
        """Whether an element may be there twice."""
        return any(
            not isinstance(dim, range) and len(dim) > 1 and bool((dim[1:] <= dim[:-1]).any())
            for dim in self.dims
        )

    def index(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """What NumPy takes as an index of a tile of this shape."""
        if self.flat:
            return np.unravel_index(self.dims[0], shape)
        return tuple(as_slice(dim) if isinstance(dim, range) else dim for dim in self.dims)

    def split(self, most_elems: int) -> Iterator[tuple[Part, Where]]:
        """Pieces of at most this many elements, and where each lies in the whole.

        >>> [where for _, where in Part((range(2), range(4))).split(3)]
        [(slice(0, 1, None), slice(0, 3, None)), (slice(0, 1, None), slice(3, 6, None)),
         (slice(1, 2, None), slice(0, 3, None)), (slice(1, 2, None), slice(3, 6, None))]
        """
        n = self.n_elems
        if n <= most_elems:
            yield self, (slice(None),) * len(self.dims)
            return
        d = next(d for d, dim in enumerate(self.dims) if len(dim) > 1)
        dim = self.dims[d]
        step = max(1, most_elems // (n // len(dim)))
        for k in range(0, len(dim), step):
            dims = (*self.dims[:d], dim[k : k + step], *self.dims[d + 1 :])
            for part, where in Part(dims, self.flat).split(most_elems):
                yield part, (*where[:d], slice(k, k + step), *where[d + 1 :])

    def words(self) -> Ints:
        """The part as integers."""
        head = [int(self.flat), len(self.dims)]
        for dim in self.dims:
            head += [dim.start, dim.step, len(dim)] if isinstance(dim, range) else [0, 0, len(dim)]
        lists = [dim for dim in self.dims if not isinstance(dim, range)]
        return np.concatenate([np.array(head, dtype=np.int64), *lists])

    @staticmethod
    def read(words: Ints) -> tuple[Part, int]:
        """A part from its integers, and how many these are.

        >>> part, n = Part.read(Part((range(4, 0, -2), np.array([5]))).words())
        >>> part.dims, n
        ((range(4, 0, -2), array([5])), 9)
        """
        flat, n_dims = words[:2].tolist()
        at = 2 + 3 * n_dims
        dims: list[Selector] = []
        for start, step, n in words[2:at].reshape(n_dims, 3).tolist():
            if step:
                dims.append(range(start, start + n * step, step))
            else:
                dims.append(words[at : at + n])
                at += n
        return Part(tuple(dims), bool(flat)), at

    def runs(
        self, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> tuple[Ints, int]:
        """Byte offsets of contiguous runs, in order, and the bytes of each.

        >>> Part((range(1, 3), range(0, 4))).runs((3, 8), (64, 8), 8)
        (array([ 64, 128]), 32)
        """
        if self.flat:
            where = np.unravel_index(self.dims[0], shape)
            parts = [c * s for c, s in zip(where, strides, strict=True)]
            return np.sum(parts, axis=0, dtype=np.int64), itemsize
        dims = list(self.dims)
        start, run = 0, itemsize
        while dims:
            dim, stride = dims[-1], strides[len(dims) - 1]
            if len(dim) != 1:
                if not isinstance(dim, range) or dim.step != 1 or stride != run:
                    break
                run *= len(dim)
            start += int(dim[0]) * stride
            dims.pop()
        offsets = np.full((), start, dtype=np.int64)
        for dim, stride in zip(dims, strides, strict=False):
            offsets = offsets[..., None] + np.asarray(dim, dtype=np.int64) * stride
        return offsets.reshape(-1), run
