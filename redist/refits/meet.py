"""Where tiles of two sides meet: which elements of a tile are in which others, as strided runs of bytes.

Along each dim, the ends of all ranges cut the named tensor into *intervals*, and intervals that lie in the
same boxes of the source are one *class*. One class of every dim together is an *atom*: elements that have
the same holders, all of them or none::

    source   0 0 0 1 1 1        tiles of two ranks
    target   a a b b b b        tiles of two others
             --- - -----        intervals; classes {0 0 0} and {1 1 1}, so two atoms

    a needs two elements of atom 0; b needs one of atom 0 and all of atom 1: three requests

A *request* is what one tile of the target needs of one atom; any holder of the atom can send it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from redist.layout.axes import Ints
from redist.refits.ranges import Box, Tile
from redist.refits.records import Records, records_of

Bools = NDArray[np.bool_]


class NotHeld(Exception):
    """An index of a target tile that no tile of the source has."""

    def __init__(self, index: tuple[int, ...]) -> None:
        super().__init__(index)
        self.index = index


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """The atoms of a source, who holds them, and what each tile of a target needs of each.

    ``source`` and ``target`` are different tiles. ``holders[a]`` lists tiles of the source that have atom
    ``a``; ``elems[t, a]`` is how many elements tile ``t`` of the target has of it. ``dims`` has the
    intervals, ``atoms`` the classes of each atom, and ``held`` which boxes of the source have an atom (rows).
    """

    source: tuple[Tile, ...]
    target: tuple[Tile, ...]
    holders: tuple[tuple[int, ...], ...]
    elems: Ints
    itemsizes: tuple[int, int]
    dims: tuple[_Dim, ...]
    atoms: tuple[tuple[int, ...], ...]
    held: Bools
    _made: dict[tuple[int, int, int], Records] = field(default_factory=dict)

    @classmethod
    def of(
        cls, source: Sequence[Tile], target: Sequence[Tile], itemsizes: tuple[int, int]
    ) -> Meeting:
        """How these tiles meet; NotHeld if the target has an element that the source has not."""
        own, other = _boxes(source), _boxes(target)
        n_dims = len(own[0][1]) if own else 0
        dims = tuple(_dim(own, other, d) for d in range(n_dims))
        every = list(itertools.product(*(range(len(dim.columns)) for dim in dims)))
        chosen = np.array(every, dtype=np.int64).reshape(len(every), n_dims)
        held = np.ones((len(every), len(own)), dtype=np.bool_)
        volumes = np.ones((len(other), len(every)), dtype=np.int64)
        for d, dim in enumerate(dims):
            held &= dim.columns[chosen[:, d]]
            volumes *= _lengths(dim)[:, chosen[:, d]]
        kept = np.flatnonzero(held.any(axis=1) & (volumes > 0).any(axis=0))
        held, volumes = held[kept], volumes[:, kept]
        tiles = np.array([t for t, _ in other], dtype=np.int64)
        elems = np.zeros((len(target), len(kept)), dtype=np.int64)
        np.add.at(elems, tiles, volumes)
        whole = [sum(_volume(box) for box in tile) for tile in target]
        for t, (got, wanted) in enumerate(zip(elems.sum(axis=1).tolist(), whole, strict=True)):
            if got != wanted:
                raise NotHeld(_first_missing(dims, own, np.flatnonzero(tiles == t).tolist()))
        tile_of = np.array([t for t, _ in own], dtype=np.int64)
        holders = tuple(tuple(tile_of[row].tolist()) for row in held)
        atoms = tuple(every[k] for k in kept)
        return cls(tuple(source), tuple(target), holders, elems, itemsizes, dims, atoms, held)

    def records(self, target: int, atom: int, source: int) -> Records:
        """The runs of bytes from a tile of the source to one of the target, of one atom."""
        key = (target, atom, source)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._records(target, atom, source)
        return found

    def _records(self, target: int, atom: int, source: int) -> Records:
        classes, has = self.atoms[atom], self.held[atom]
        box = next(
            box for b, (tile, box) in enumerate(_boxes(self.source)) if tile == source and has[b]
        )
        found = []
        for number, (tile, other) in enumerate(_boxes(self.target)):
            if tile != target:
                continue
            dims = []
            for d, dim in enumerate(self.dims):
                chosen = np.flatnonzero(dim.target[number] & (dim.classes == classes[d]))
                lo, n = dim.edges[chosen], dim.lengths[chosen]
                dims.append((lo, n, _places(box, d, lo), _places(other, d, lo)))
            if all(len(dim[0]) for dim in dims):
                steps = [(a.step, b.step) for a, b in zip(box, other, strict=True)]
                found.append(records_of(dims, steps, self.itemsizes))
        return Records.joined(found)


def _places(box: Box, d: int, lo: Ints) -> Ints:
    """Where indices of a dim lie in the tile."""
    ranges = box[d]
    which = np.searchsorted(ranges.lo, lo, side="right") - 1
    return np.asarray(ranges.at[which] + (lo - ranges.lo[which]) * ranges.step)


@dataclass(frozen=True, slots=True, eq=False)
class _Dim:
    """The intervals of a dim, the boxes that have each, and the class of each; -1 where no source has it."""

    edges: Ints
    lengths: Ints
    source: Bools  # a row for every box
    target: Bools
    classes: Ints
    columns: Bools  # which boxes of the source have a class: a row for every class


def _boxes(tiles: Sequence[Tile]) -> list[tuple[int, Box]]:
    """All boxes, each with the number of its tile."""
    return [(t, box) for t, tile in enumerate(tiles) for box in tile]


def _volume(box: Box) -> int:
    return math.prod(int(ranges.n.sum()) for ranges in box)


def _dim(source: Sequence[tuple[int, Box]], target: Sequence[tuple[int, Box]], d: int) -> _Dim:
    ends = [e for _, box in (*source, *target) for e in (box[d].lo, box[d].lo + box[d].n)]
    edges = np.unique(np.concatenate(ends))
    of_source = np.stack([_members(box, d, edges) for _, box in source])
    of_target = np.stack([_members(box, d, edges) for _, box in target])
    columns, classes = np.unique(of_source, axis=1, return_inverse=True)
    return _Dim(edges[:-1], np.diff(edges), of_source, of_target, classes.reshape(-1), columns.T)


def _members(box: Box, d: int, edges: Ints) -> Bools:
    """Which intervals a box has."""
    ranges = box[d]
    change = np.zeros(len(edges), dtype=np.int64)
    np.add.at(change, np.searchsorted(edges, ranges.lo), 1)
    np.add.at(change, np.searchsorted(edges, ranges.lo + ranges.n), -1)
    return np.asarray(np.cumsum(change)[:-1] > 0)


def _lengths(dim: _Dim) -> Ints:
    """Indices that a box of the target (rows) has of a class (columns)."""
    out = np.zeros((len(dim.target), len(dim.columns)), dtype=np.int64)
    for row, has in enumerate(dim.target):
        np.add.at(out[row], dim.classes[has], dim.lengths[has])
    return out


def _first_missing(
    dims: Sequence[_Dim], source: Sequence[tuple[int, Box]], boxes: Sequence[int]
) -> tuple[int, ...]:
    """An index in one of these boxes of the target that no box of the source has."""
    for b in boxes:
        held = np.ones((1, len(source)), dtype=np.bool_)
        places: list[tuple[int, ...]] = [()]
        for dim in dims:
            # One interval of each class that the box has stands for all of them.
            has = np.flatnonzero(dim.target[b])
            _, first = np.unique(dim.classes[has], return_index=True)
            picked = has[first]
            held = (held[:, None, :] & dim.source.T[picked][None]).reshape(-1, len(source))
            places = [(*p, int(dim.edges[k])) for p in places for k in picked]
        missing = np.flatnonzero(~held.any(axis=1))
        if len(missing):
            return places[missing[0]]
    raise AssertionError("every element is held")
