"""Elements by integer arrays: lists that all ranks have, or global arrays of indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from redist.errors import IndexKeyError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints, box_of, is_first_copy
from redist.pgas.indexing.basic import fit_values
from redist.pgas.indexing.keys import At, Cut, Item, Many, New, out_of_bounds
from redist.pgas.memory import SHARED_FROM
from redist.pgas.tiles.budget import require_room, staging_room
from redist.pgas.tiles.layouts import Shape, dtype_of, make_type, operand_type
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.select import (
    Link,
    contiguous_tile,
    idle_parts,
    made_up,
    new_tile,
    place_axes,
    select,
)
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.pgas.watch.traffic import Exchange, traffic
from redist.runtime.elements import by_position
from redist.runtime.elements.by_position import rounds_of
from redist.runtime.index_sets.held import EdgeConstant, EdgeList, EdgeRange
from redist.runtime.index_sets.positions import as_slice
from redist.runtime.ranks.waiting import TIMEOUT_S, gather

SMALL_ELEMS = 2**13
"""Global indices up to so many are brought to every rank."""


def get(x: T, items: Sequence[Item]) -> T:
    """**Collective.** Take the elements that a key with integer arrays names."""
    many = [item for item in items if isinstance(item, Many)]
    ints = [item for item in items if isinstance(item, At)]
    if len(many) == 1 and not ints:
        indices = many[0].indices
        if isinstance(indices, np.ndarray) or (x.ndim > 1 and indices.size <= SMALL_ELEMS):
            return _along_one(x, items, many[0])
    chosen = Chosen.of(x, items)
    out = x.new(chosen.type, new_tile(x, chosen.type))
    if chosen.type.global_elems == 0:
        chosen.agree(x, 0, 1)
        return out
    exchange = Exchange("fetch", x.type, out.type)
    traffic().perform(exchange, lambda: _fetch(x, out, chosen), lambda: made_up(out))
    return out


def _fetch(x: Tiled, out: Tiled, chosen: Chosen) -> tuple[Tile | None, int]:
    """**Collective.** Fill the result; its tile, and the bytes that this rank received."""
    n = 0 if out.local is None else out.local.size
    local, room = contiguous_tile(x, chosen.round_bytes(x, by_position.ROUND_ELEMS))
    elems = max(1, room // chosen.round_bytes(x, 1))
    rounds = chosen.agree(x, n, elems)
    flat = np.zeros(0, x.dtype) if out.local is None else out.local.reshape(-1)
    received = traffic().fetch(x.comm, x.type, local, rounds, chosen.positions, flat, elems)
    return out.local, received


def put(a: Tiled, items: Sequence[Item], values: Tiled) -> None:
    """**Collective.** Write to the elements that a key with integer arrays names.

    Where an element is named twice, one of its values stays, the same on every copy.
    """
    chosen = Chosen.of(a, items)
    t = chosen.type
    values = fit_values(values, t.shape)
    values = move(values, operand_type(values.type, t))
    box = box_of(t, a.comm.rank)
    sends = box is not None and is_first_copy(t, a.comm.rank)
    sizes = tuple(hi - lo for lo, hi in box) if box is not None else ()
    n = math.prod(sizes) if sends else 0
    room = staging_room(a, chosen.round_bytes(a, by_position.ROUND_ELEMS))
    elems = max(1, room // chosen.round_bytes(a, 1))
    rounds = chosen.agree(a, n, elems)
    if t.global_elems == 0:
        return

    def part(lo: int, hi: int) -> Tile:
        if values.local is None or hi <= lo:
            return np.zeros(0, a.dtype)
        wide = np.broadcast_to(values.local, sizes)
        return np.asarray(
            wide[np.unravel_index(np.arange(lo, hi), sizes)] if sizes else wide.reshape(1)
        )

    def work() -> tuple[None, int]:
        seam, positions = traffic(), chosen.positions
        return None, seam.store(a.comm, a.type, a.local, rounds, n, positions, part, elems)

    traffic().perform(Exchange("store", t, a.type), work)


def _along_one(x: T, items: Sequence[Item], item: Many) -> T:
    """Take elements by indices along one dim that all ranks have: a product of lists, as slices are."""
    given = item.indices
    whole = given if isinstance(given, np.ndarray) else gather_small(given)
    indices = in_bounds(whole, item.dim, x.shape[item.dim])
    flat = indices.reshape(-1)
    if flat.nbytes >= SHARED_FROM:
        require_room(x, "take by a list of indices from", 3 * flat.nbytes)
    shape: list[int] = []
    dims: list[Any] = []
    links: list[tuple[Any, ...]] = []
    at = 0
    for number, one in enumerate(items):
        if isinstance(one, New):
            shape.append(1)
            dims.append(())
            links.append((None, EdgeConstant(1), range(1)))
        elif isinstance(one, (Cut, Many)):
            cut = x.type.cut(one.dim)
            if isinstance(one, Many):
                at = number
                edge: Any = EdgeList(cut, flat)
                shape.append(len(flat))
            else:
                edge = EdgeRange(cut, one.indices)
                shape.append(len(one.indices))
            dims.append(x.type.dims[one.dim])
            links.append((one.dim, edge, range(shape[-1])))
    t = make_type(x.mesh, x.type.dtype, tuple(shape), tuple(dims))
    if all(
        x.type.cuts[one.dim] == 1
        or (isinstance(one, Cut) and one.indices == range(x.shape[one.dim]))
        for one in items
        if isinstance(one, (Cut, Many))
    ):
        out = x.new(t, new_tile(x, t))
        if x.local is not None and out.local is not None:
            own = (
                slice(None)
                if isinstance(one, Many)
                else None
                if isinstance(one, New)
                else _slice(one, x)
                for one in items
            )
            _take(x.local[tuple(own)], flat, at, out.local)
    else:
        out = select(
            x,
            t,
            [
                Link(dim, edge, to, EdgeRange(t.cut(to), r))
                for to, (dim, edge, r) in enumerate(links)
            ],
        )
    if indices.ndim == 1:
        return out
    return reshape(out, (*shape[:at], *indices.shape, *shape[at + 1 :]))


def _take(tile: Tile, which: Ints, dim: int, out: Tile) -> None:
    """Copy parts of a tile along a dim, without a copy of all of them on the way."""
    if tile.flags.c_contiguous:
        tile.take(which, axis=dim, out=out, mode="clip")
        return
    step = max(1, SMALL_ELEMS * len(which) // max(1, out.size))
    for lo in range(0, len(which), step):
        whole: tuple[Any, ...] = (slice(None),) * dim
        out[(*whole, slice(lo, lo + step))] = tile[(*whole, which[lo : lo + step])]


def gather_small(x: Tiled) -> Tile:
    """**Collective.** Bring a small array to every rank, also to those outside its mesh."""
    tile = move(x, make_type(x.mesh, x.type.dtype, x.shape, ((),) * x.ndim)).local
    if x.mesh.n_devices < x.comm.size:
        tile = next(said for said in gather(x.comm, tile, TIMEOUT_S) if said is not None)
    assert tile is not None
    return tile


def _slice(one: Any, x: Tiled) -> slice:
    r = one.indices
    if x.type.cuts[one.dim] > 1:
        return slice(None)
    return as_slice(r)


def in_bounds(indices: Tile, dim: int, size: int) -> Ints:
    """Convert indices to those that count from 0; raise if one is outside."""
    if indices.size and not (-size <= int(indices.min()) and int(indices.max()) < size):
        worst = indices.max() if int(indices.max()) >= size else indices.min()
        raise out_of_bounds(worst, dim, size)
    indices = indices.astype(np.int64)
    return np.where(indices < 0, indices + size, indices)


@dataclass(slots=True)
class Chosen:
    """Elements that arrays of indices name together: the type of the result and who asks for what."""

    type: ArrayType
    shape: Shape
    """Of the array that is indexed."""
    sizes: Shape
    """Of this rank's part of the result."""
    along: list[tuple[str, int, Any]]
    """For every dim of the array: a range of one dim of the result, or the tile of an index."""
    first: int
    """Where the dims of the indices are in the result."""
    n_dims: int
    start: tuple[int, ...]

    @staticmethod
    def of(x: Tiled, items: Sequence[Item]) -> Chosen:
        """**Collective** if indices are global and must move."""
        many = [item for item in items if isinstance(item, Many)]
        try:
            wide = np.broadcast_shapes(*(item.indices.shape for item in many))
        except ValueError:
            shapes = " and ".join(str(item.indices.shape) for item in many)
            raise IndexKeyError(
                f"cannot index by arrays of shapes {shapes}: they do not broadcast"
            ) from None
        arrays = [k for k, item in enumerate(items) if isinstance(item, (Many, At))]
        together = arrays[-1] - arrays[0] + 1 == len(arrays)
        before = sum(isinstance(item, (Cut, New)) for item in items[: arrays[0]]) if together else 0
        rest = [item for item in items if isinstance(item, (Cut, New))]
        t = _type(x, rest, many, wide, before)
        box = box_of(t, x.comm.rank)
        start = tuple(lo for lo, _ in box) if box is not None else (0,) * t.ndim
        sizes = tuple(hi - lo for lo, hi in box) if box is not None else (0,)
        n_dims = len(wide)
        indexed = make_type(
            x.mesh, dtype_of(np.dtype(np.int64)), wide, t.dims[before : before + n_dims]
        )
        along: list[tuple[str, int, Any]] = [("", 0, None)] * x.ndim
        for k, kept in enumerate(rest):
            if isinstance(kept, Cut):
                along[kept.dim] = ("range", k if k < before else k + n_dims, kept.indices)
        for item in items:
            if isinstance(item, At):
                along[item.dim] = ("at", 0, item.index)
            elif isinstance(item, Many):
                along[item.dim] = ("many", 0, _own_indices(x, item.indices, indexed))
        return Chosen(t, x.shape, sizes, along, before, n_dims, start)

    def round_bytes(self, x: Tiled, n: int) -> int:
        """What a round of so many elements takes: lists of numbers, and the values twice."""
        return n * (8 * (7 + len(self.sizes)) + 2 * x.dtype.itemsize)

    def agree(self, x: Tiled, n: int, round_elems: int) -> int:
        """**Collective.** Agree on the rounds that ranks need; raise on all if an index is outside."""
        wrong = False
        for dim, (kind, _, given) in enumerate(self.along):
            if kind == "many" and given.size:
                low, high = int(given.min()), int(given.max())
                wrong = wrong or low < -self.shape[dim] or high >= self.shape[dim]
        rounds, wrong = rounds_of(x.comm, n, wrong, round_elems)
        if wrong:
            raise IndexKeyError(f"an index is out of bounds for an array of shape {self.shape}")
        return rounds

    def positions(self, lo: int, hi: int) -> Ints:
        """The number in the array of each element of a part of this rank's result."""
        if hi <= lo:
            return np.zeros(0, dtype=np.int64)
        index: Any = None
        out: Any = 0
        for dim, (kind, to, given) in enumerate(self.along):
            n = self.shape[dim]
            if kind == "many" and given.shape == self.sizes:
                here: Any = given.reshape(-1)[lo:hi].astype(np.int64, copy=False)
            elif kind == "at":
                here = given
            else:
                if index is None:
                    index = np.unravel_index(np.arange(lo, hi), self.sizes) if self.sizes else ()
                if kind == "range":
                    here = given.start + given.step * (index[to] + self.start[to])
                else:
                    here = self._index_at(given, index)
            if kind == "many" and int(here.min()) < 0:
                here = np.where(here < 0, here + n, here)
            out = here if dim == 0 else out * n + here
        return np.broadcast_to(np.asarray(out, dtype=np.int64), (hi - lo,))

    def _index_at(self, given: Tile, index: Any) -> Ints:
        """An index at each element of a part of the result."""
        own = index[self.first + self.n_dims - given.ndim : self.first + self.n_dims]
        at = (i if size > 1 else 0 for i, size in zip(own, given.shape, strict=True))
        return np.asarray(given[tuple(at)]).astype(np.int64)


def _type(
    x: Tiled, rest: Sequence[Cut | New], many: Sequence[Many], wide: Shape, before: int
) -> ArrayType:
    """The type of the result: ranges stay cut, and the axes left cut the dims of the indices."""
    sizes = [1 if isinstance(item, New) else len(item.indices) for item in rest]
    cuts = [() if isinstance(item, New) else x.type.dims[item.dim] for item in rest]
    shape = (*sizes[:before], *wide, *sizes[before:])
    dims = (*cuts[:before], *((),) * len(wide), *cuts[before:])
    lead = [item.indices.type for item in many if isinstance(item.indices, Tiled)]
    if not lead and not x.type.used:
        return make_type(x.mesh, x.type.dtype, shape, dims)
    free = idle_parts(x.type, dims)
    inner = place_axes(x.type, wide, ((),) * len(wide), free)
    for t in lead:  # indices that are cut by these axes alone need not move
        if t.shape == wide and set(t.used) == set(inner.used):
            inner = inner.with_dims(t.dims)
            break
    if inner.used:
        return make_type(x.mesh, x.type.dtype, shape, (*cuts[:before], *inner.dims, *cuts[before:]))
    return place_axes(x.type, shape, dims, free)


def _own_indices(x: Tiled, indices: Any, indexed: ArrayType) -> Tile:
    """This rank's part of an index, cut as the result is."""
    if isinstance(indices, Tiled):
        here = resolve_pending(indices)
        end = operand_type(here.type, indexed)
        moved = move(here, end)
        return np.zeros(0, np.int64) if moved.local is None else moved.local
    box = box_of(indexed, x.comm.rank)
    if box is None:
        return np.zeros(0, np.int64)
    own = box[len(box) - indices.ndim :]
    part: Tile = indices[
        tuple(
            slice(None) if n == 1 else slice(lo, hi)
            for n, (lo, hi) in zip(indices.shape, own, strict=True)
        )
    ]
    return part


def unravel(positions: Ints, shape: Shape) -> list[Ints]:
    """Indices along every dim from numbers in the whole array."""
    strides = [reduce(lambda a, b: a * b, shape[i + 1 :], 1) for i in range(len(shape))]
    return [positions // s % max(1, n) for s, n in zip(strides, shape, strict=True)]
