"""All types that a value may have on the factors of a mesh: each cuts a dim, or none, or is pending."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.cuts import Ints
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh

# Into which factors a mesh is split for a planning: few enough for all types to be listed.


MOST_FACTORS = 3


def list_groupings(mesh: Mesh, most: int = MOST_FACTORS) -> list[tuple[SubAxis, ...]]:
    """The ways to split a mesh into factors, each axis into one or several, ``most`` in all or one an axis.

    >>> [tuple(part.size for part in parts) for parts in list_groupings(Mesh(x=8))]
    [(8,), (2, 4), (2, 2, 2), (4, 2)]
    >>> [tuple(part.size for part in parts) for parts in list_groupings(Mesh(x=2, y=4))]
    [(2, 4), (2, 2, 2)]
    """
    axes = [(name, size) for name, size in mesh.axes if size > 1]
    splits = [list(_splits(name, 1, size)) for name, size in axes]
    every = (tuple(itertools.chain(*chosen)) for chosen in itertools.product(*splits))
    return [parts for parts in every if len(parts) <= max(most, len(axes))]


def _splits(name: str, pre: int, size: int) -> Iterator[tuple[SubAxis, ...]]:
    """The ways to split an axis, or what is left of it, into factors above 1."""
    yield (SubAxis(name, pre, size),)
    for first in range(2, size):
        if size % first == 0:
            for rest in _splits(name, pre * first, size // first):
                yield (SubAxis(name, pre, first), *rest)


NOWHERE, PENDING = -1, -2
"""Where a factor is that cuts no dim: copies of the tile, or partial values of it."""
MOST_TYPES = 1300


@dataclass(frozen=True, slots=True, eq=False)
class TypeDomain:
    """The types of a value: a row for each, and in it the dim of every factor, NOWHERE or PENDING.

    Factors that cut one dim do so in the order of the mesh. No dim is cut into more tiles than it has
    indices, or one if it has none. ``op`` is how partial values are combined; None if there are none.
    ``others`` are types beside these, whose factors come in other orders: they have the last rows.
    """

    mesh: Mesh
    parts: tuple[SubAxis, ...]
    shape: tuple[int, ...]
    dtype: DType
    op: str | None
    places: Ints
    number: Ints
    """By code of a row, its place among them; -1 where it is none."""
    others: tuple[ArrayType, ...] = ()
    _types: dict[int, ArrayType] = field(default_factory=dict)
    """Those that somebody has asked for."""

    @staticmethod
    def of(
        mesh: Mesh,
        parts: Sequence[SubAxis],
        shape: Sequence[int],
        dtype: DType,
        op: str | None,
        others: Sequence[ArrayType] = (),
    ) -> TypeDomain:
        """All types over these factors.

        >>> parts = [SubAxis("x", 1, 2), SubAxis("y", 1, 2)]
        >>> domain = TypeDomain.of(Mesh(x=2, y=2), parts, (8, 3), DType.parse("f32"), None)
        >>> len(domain), str(domain.type(1)), str(domain.type(5))
        (8, 'f32[8{y}, 3]', 'f32[8{x}, 3{y}]')
        """
        ndim, least = len(shape), NOWHERE if op is None else PENDING
        width = ndim + 2
        if width ** len(parts) > 2**22:
            raise RequestError(f"cannot list the types of {ndim} dims over {len(parts)} factors")
        places = np.zeros((1, 0), dtype=np.int64)
        cuts = np.ones((1, ndim), dtype=np.int64)
        for part in (
            parts
        ):  # rows of the factors so far; every one of them can go on, so they grow in number
            n_rows, dims = len(places), np.arange(least, ndim)
            places = np.column_stack([places.repeat(len(dims), axis=0), np.tile(dims, n_rows)])
            cuts = cuts.repeat(len(dims), axis=0)
            cuts *= np.where(places[:, -1:] == np.arange(ndim), part.size, 1)
            good = (cuts <= np.maximum(shape, 1)).all(axis=1)
            places, cuts = places[good], cuts[good]
            if len(places) > MOST_TYPES:
                raise RequestError(
                    f"cannot plan more than {MOST_TYPES} types of one value: join factors of the mesh"
                )
        number = np.full(width ** len(parts), -1, dtype=np.int64)
        domain = TypeDomain(mesh, tuple(parts), tuple(shape), dtype, op, places, number)
        number[domain.codes(places)] = np.arange(len(places))
        rest = tuple(t for t in dict.fromkeys(others) if domain.find(t) is None)
        if not rest:
            return domain
        more = np.array([places_of(t, parts) for t in rest], dtype=np.int64)
        every = np.concatenate([places, more.reshape(len(rest), len(parts))])
        return replace(domain, places=every, others=rest, _types={})

    def __len__(self) -> int:
        return len(self.places)

    def codes(self, places: Ints) -> Ints:
        """A number for every row, whether it is a type of this domain or not."""
        width = len(self.shape) + 2
        weights = np.array([width**k for k in range(len(self.parts))], dtype=np.int64)
        out: Ints = (places + 2) @ weights if len(weights) else np.zeros(len(places), np.int64)
        return out

    def numbers(self, places: Ints) -> Ints:
        """Which type every row is; -1 where it is none of this domain."""
        return self.number[self.codes(places)]

    def type(self, number: int) -> ArrayType:
        """A type as others know it."""
        if number >= len(self) - len(self.others):
            return self.others[number - len(self)]
        if number not in self._types:
            self._types[number] = self._make_type(number)
        return self._types[number]

    def _make_type(self, number: int) -> ArrayType:
        row = self.places[number]
        dims = [
            tuple(part for part, at in zip(self.parts, row, strict=True) if at == dim)
            for dim in range(len(self.shape))
        ]
        pending = tuple(p for p, at in zip(self.parts, row, strict=True) if at == PENDING)
        plain = ArrayType(self.mesh, self.dtype, self.shape, tuple(dims))
        return plain.with_pending(self.op, pending) if pending else plain

    def find(self, t: ArrayType) -> int | None:
        """The number of a type; None if it is none of these."""
        if t in self.others:
            return len(self) - len(self.others) + self.others.index(t)
        row = places_of(t, self.parts)
        if t.shape != self.shape or row is None or (PENDING in row and t.pending_op != self.op):
            return None
        number = int(self.numbers(np.array([row], dtype=np.int64).reshape(1, -1))[0])
        return number if number >= 0 and self.type(number) == t else None

    def tile_bytes(self) -> Ints:
        """Bytes of the fullest device's tile under every type."""
        out = np.full(len(self), self.dtype.itemsize, dtype=np.int64)
        for dim, n in enumerate(self.shape):
            out *= -(-n // self.n_tiles(dim))
        return out

    def n_tiles(self, dim: int) -> Ints:
        """Into how many tiles every type cuts a dim."""
        sizes = np.array([part.size for part in self.parts], dtype=np.int64)
        return np.where(self.places == dim, sizes, 1).prod(axis=1)


def places_of(t: ArrayType, parts: Sequence[SubAxis]) -> tuple[int, ...] | None:
    """Where every factor is in a type; None if the type is not over these factors.

    >>> t = ArrayType.parse("f32[8, 6{x}] sum{y}", Mesh(x=2, y=2))
    >>> places_of(t, [SubAxis("x", 1, 2), SubAxis("y", 1, 2)])
    (1, -2)
    """
    found: dict[SubAxis, int] = {}
    for place, axes in (*enumerate(t.dims), (PENDING, t.pending_axes)):
        for axis in axes:
            inside = [part for part in parts if part.inside(axis)]
            if math.prod(part.size for part in inside) != axis.size:
                return None
            found.update(dict.fromkeys(inside, place))
    return tuple(found.get(part, NOWHERE) for part in parts)
