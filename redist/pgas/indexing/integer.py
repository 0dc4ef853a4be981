"""Elements by integer arrays: lists that all ranks have, or global arrays of indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from redist.errors import IndexKeyError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import Ints, box_of, is_first_copy
from redist.pgas.indexing.basic import fit_values
from redist.pgas.indexing.chosen import Chosen, in_bounds
from redist.pgas.indexing.keys import AtIndex, AtIndices, InRange, Item, NewDim
from redist.pgas.memory import SHARED_FROM
from redist.pgas.tiles.budget import require_room, round_elems, staging_room
from redist.pgas.tiles.layouts import make_type, operand_type
from redist.pgas.tiles.move import move, resolve_pending
from redist.pgas.tiles.reshape import reshape
from redist.pgas.tiles.select import Link, contiguous_tile, new_tile, select
from redist.pgas.tiles.tiled import T, Tile, Tiled
from redist.pgas.watch.seam import ElementExchange, traffic
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device
from redist.runtime.cuda.by_position import MARK_BYTES
from redist.runtime.elements import by_position
from redist.runtime.index_sets.held import EdgeConstant, EdgeList, EdgeRange, as_slice
from redist.runtime.ranks.waiting import TIMEOUT_S, gather

SMALL_ELEMS = 2**13
"""Global indices up to this many are brought to every rank."""


def get(x: T, items: Sequence[Item]) -> T:
    """**Collective.** Take the elements that a key with integer arrays names."""
    many = [item for item in items if isinstance(item, AtIndices)]
    ints = [item for item in items if isinstance(item, AtIndex)]
    if len(many) == 1 and not ints and _is_taken_along(x, items, many[0]):
        return _along_one(x, items, many[0])
    return fetch(x, Chosen.of(x, items))


def fetch(x: T, chosen: Chosen) -> T:
    """**Collective.** Take elements in rounds: ranks say in each which ones they ask for."""
    out = x.new(chosen.type, new_tile(x, chosen.type))
    if chosen.type.global_elems == 0:
        chosen.agree(x.comm, 0, 1)
        return out
    exchange = ElementExchange("fetch", x.type, out.type)
    traffic().perform(exchange, _fetch, (x, out, chosen), lambda: out.tile, into=out)
    return out


def _is_taken_along(x: Tiled, items: Sequence[Item], item: AtIndices) -> bool:
    """Whether indices of one dim are known to every rank, or may be; on a GPU they stay there."""
    given = item.indices
    if isinstance(given, np.ndarray):
        return True
    small = x.ndim > 1 and given.size <= SMALL_ELEMS
    if not x.memory.on_device:
        return small
    alone = x.comm.size == 1 and (given.ndim == 1 or not x.memory.is_ghost)
    return (small or alone) and all(
        isinstance(one, NewDim) or (isinstance(one, (InRange, AtIndices)) and _stays(x, one))
        for one in items
    )


def _fetch(x: Tiled, out: Tiled, chosen: Chosen) -> tuple[Tile | None, int]:
    """**Collective.** Fill the result; its tile, and the bytes that this rank received."""
    n = 0 if out.tile is None else out.tile.size
    local, room = contiguous_tile(x, chosen.round_bytes(x, round_elems(x)))
    elems = max(1, room // chosen.round_bytes(x, 1))
    rounds = chosen.agree(x.comm, n, elems)
    flat = x.memory.empty((0,), x.dtype, 0) if out.tile is None else out.tile.reshape(-1)
    received = traffic().fetch(x.comm, x.type, local, rounds, chosen.positions, flat, elems)
    return out.tile, received


def put(a: Tiled, items: Sequence[Item], values: Tiled) -> None:
    """**Collective.** Write to the elements that a key with integer arrays names.

    Where an element is named twice, one of its values stays, the same on every copy.
    """
    chosen = Chosen.of(a, items)
    t = chosen.type
    values = fit_values(values, t.shape)
    values = move(values, operand_type(values.type, t))
    traffic().perform(ElementExchange("store", t, a.type), _store, (a, values, chosen), into=a)


def _store(a: Tiled, values: Tiled, chosen: Chosen) -> tuple[None, int]:
    """**Collective.** Write the values; nothing, and the bytes that this rank received."""
    t = chosen.type
    box = box_of(t, a.comm.rank)
    sends = box is not None and is_first_copy(t, a.comm.rank)
    sizes = tuple(hi - lo for lo, hi in box) if box is not None else ()
    n = math.prod(sizes) if sends else 0
    marks = MARK_BYTES * a.tile.size if a.memory.on_device and a.tile is not None else 0
    room = staging_room(a, chosen.round_bytes(a, round_elems(a)), marks)
    elems = max(1, room // chosen.round_bytes(a, 1))
    rounds = chosen.agree(a.comm, n, elems)
    if t.global_elems == 0:
        return None, 0

    def part(lo: int, hi: int) -> Tile:
        if values.tile is None or hi <= lo:
            return a.memory.empty((0,), a.dtype, 0)
        wide = np.broadcast_to(values.tile, sizes)
        if a.memory.on_device:
            return wide.reshape(-1)[lo:hi]
        return np.asarray(
            wide[np.unravel_index(np.arange(lo, hi), sizes)] if sizes else wide.reshape(1)
        )

    seam, positions = traffic(), chosen.positions
    return None, seam.store(a.comm, a.type, a.tile, rounds, n, positions, part, elems)


def _along_one(x: T, items: Sequence[Item], item: AtIndices) -> T:
    """Take elements by indices along one dim that all ranks have: a product of lists, as slices are."""
    given = item.indices
    if isinstance(given, np.ndarray) or not given.memory.is_ghost:
        return _take_along(x, items, item)
    shape: list[int] = []
    dims: list[Any] = []
    for one in items:
        assert isinstance(one, (NewDim, InRange, AtIndices))
        here = given.shape if one is item else (_length(one),)
        cut = () if isinstance(one, NewDim) else x.type.dims[one.dim]
        shape += here
        dims += [cut, *((),) * (len(here) - 1)] if here else []
    t = make_type(x.mesh, x.type.dtype, tuple(shape), tuple(dims))
    if given.ndim != 1:
        traffic().require_data("elements by an array of indices", "it has other than one dim")
    what = ElementExchange("take", x.type, t)
    at = list(items).index(item)
    tile = traffic().perform(what, _taken, (x, tuple(items), at), lambda: new_tile(x, t))
    return x.new(t, tile)


def _taken(x: Tiled, items: Sequence[Item], at: int) -> tuple[Tile | None, int]:
    """**Collective.** Take elements by indices along one dim: the tile, and what was counted elsewhere."""
    item = items[at]
    assert isinstance(item, AtIndices)
    return _take_along(x, items, item).tile, 0


def _take_along(x: T, items: Sequence[Item], item: AtIndices) -> T:
    given = item.indices
    if isinstance(given, Tiled) and x.memory.on_device:
        indices = _on_every_gpu(x, given, item.dim)
    else:
        whole = given if isinstance(given, np.ndarray) else gather_small(given)
        indices = in_bounds(whole, item.dim, x.shape[item.dim])
    flat = indices.reshape(-1)
    if flat.nbytes >= SHARED_FROM and not is_device(flat):
        require_room(x, "take by a list of indices from", 3 * flat.nbytes)
    kept = [one for one in items if isinstance(one, (NewDim, InRange, AtIndices))]
    at = kept.index(item)
    shape = [len(flat) if one is item else _length(one) for one in kept]
    dims = tuple(() if isinstance(one, NewDim) else x.type.dims[one.dim] for one in kept)
    t = make_type(x.mesh, x.type.dtype, tuple(shape), dims)
    if all(isinstance(one, NewDim) or _stays(x, one) for one in kept):
        out = x.new(t, new_tile(x, t))
        if x.tile is not None and out.tile is not None:
            part = x.tile[tuple(_own_part(x, one) for one in kept)]
            raw = x.type.dtype.raw if x.memory.on_device else lambda tile: tile
            _take(raw(part), flat, at, raw(out.tile))
    else:
        out = select(x, t, [_link(x, t, to, one, flat) for to, one in enumerate(kept)])
    if indices.ndim == 1:
        return out
    return reshape(out, (*shape[:at], *indices.shape, *shape[at + 1 :]))


def _on_every_gpu(x: Tiled, given: Tiled, dim: int) -> Tile:
    """**Collective.** All indices on every rank, as they are: CuPy counts from the end by itself."""
    given = resolve_pending(given)
    t = make_type(x.mesh, given.type.dtype, given.shape, ((),) * given.ndim)
    tile, size = move(given, t).tile, x.shape[dim]
    wrong = tile is not None and tile.size > 0 and not (
        -size <= int(tile.min()) and int(tile.max()) < size
    )  # fmt: skip
    if by_position.rounds_of(x.comm, 0, wrong)[1]:
        raise IndexKeyError(f"an index is out of bounds for dim {dim} of size {size}")
    return x.memory.empty(given.shape, given.dtype, 0) if tile is None else tile


def _length(item: NewDim | InRange | AtIndices) -> int:
    """The size of the dim that an item without an array of indices leaves."""
    return len(item.indices) if isinstance(item, InRange) else 1


def _stays(x: Tiled, item: InRange | AtIndices) -> bool:
    """Whether each rank has its part along the dim of an item."""
    if x.type.cuts[item.dim] == 1:
        return True
    return isinstance(item, InRange) and item.indices == range(x.shape[item.dim])


def _own_part(x: Tiled, item: NewDim | InRange | AtIndices) -> slice | None:
    """What an item takes of the tile, before the array of indices; whole along cut dims."""
    if isinstance(item, NewDim):
        return None
    if isinstance(item, AtIndices) or x.type.cuts[item.dim] > 1:
        return slice(None)
    return as_slice(item.indices)


def _link(x: Tiled, t: ArrayType, to: int, item: NewDim | InRange | AtIndices, flat: Ints) -> Link:
    """Which indices of the array are dim ``to`` of a result of type ``t``."""
    target = EdgeRange(t.cut(to), range(t.shape[to]))
    match item:
        case NewDim():
            return Link(None, EdgeConstant(1), to, target)
        case InRange(dim=dim, indices=indices):
            return Link(dim, EdgeRange(x.type.cut(dim), indices), to, target)
        case AtIndices(dim=dim):
            return Link(dim, EdgeList(x.type.cut(dim), flat), to, target)


def _take(tile: Tile, which: Ints, dim: int, out: Tile) -> None:
    """Copy parts of a tile along a dim, without a copy of all of them on the way."""
    if is_device(tile):
        tile.take(to_device(which), axis=dim, out=out)
        return
    if tile.flags.c_contiguous:
        tile.take(which, axis=dim, out=out, mode="clip")
        return
    step = max(1, SMALL_ELEMS * len(which) // max(1, out.size))
    for lo in range(0, len(which), step):
        whole: tuple[Any, ...] = (slice(None),) * dim
        out[(*whole, slice(lo, lo + step))] = tile[(*whole, which[lo : lo + step])]


def gather_small(x: Tiled) -> Tile:
    """**Collective.** Bring a small array to every rank, also to those outside its mesh."""
    tile = move(x, make_type(x.mesh, x.type.dtype, x.shape, ((),) * x.ndim)).tile
    if x.mesh.n_devices < x.comm.size:
        tile = next(said for said in gather(x.comm, tile, TIMEOUT_S) if said is not None)
    assert tile is not None
    return tile
