"""Elements at global arrays of indices, by lists that ranks tell each other once: ``a.get(i)``.

The indices are one global array for each dim that they name. Each rank asks for what its part of them names::

    i: i64[9{x}]    3 0 7 | 2 2 5 | 8 1 0         which elements, is told once: an inspection
    a.get(i)        a[3].. | a[2].. | a[8]..      values pass whenever it is read, cut as i is

A program keeps the lists for as long as its indices stay. Outside of programs ranks tell each other in every
call; under a memory limit they ask in rounds, which need little room.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from redist.errors import ArgumentTypeError, IndexKeyError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import is_first_copy
from redist.pgas.indexing import integer
from redist.pgas.indexing.basic import as_values, fit_values
from redist.pgas.indexing.chosen import Chosen
from redist.pgas.indexing.dispatch import check_key
from redist.pgas.indexing.keys import AtIndices, ByMask, InRange, Item, parse
from redist.pgas.kinds import can_cast, promote
from redist.pgas.tiles.arranging import asked, left_alone
from redist.pgas.tiles.budget import require_room
from redist.pgas.tiles.layouts import Shape, operand_type
from redist.pgas.tiles.move import as_plain, move, resolve_pending
from redist.pgas.tiles.select import new_tile
from redist.pgas.tiles.tiled import T, Tiled
from redist.pgas.watch.seam import INSPECT, READ, ByLists, ElementExchange, traffic
from redist.runtime.elements.inspected import OPS, Inspection
from redist.runtime.ranks.world import Comm
from redist.text.call_site import calling_line

WORDS = 6
"""Of each element asked for, while lists are made."""


def names_arrays(key: Any) -> bool:
    """**Local.** Whether a key has global arrays of indices."""
    return any(isinstance(one, Tiled) for one in (key if isinstance(key, tuple) else (key,)))


@asked
def get(x: T, key: Any) -> T:
    """**Collective.** Take what global arrays of indices name: ``x[key]``, by lists told once."""
    x = as_plain(resolve_pending(x))
    items = _items(x, key, "get elements of")
    chosen = Chosen.of(x, items)
    if x.memory.limit_bytes is not None:
        return integer.fetch(x, chosen)
    width = _width(x.type, items, chosen.type)
    lists = _inspect(x.comm, x.type, chosen, width)
    out = x.new(chosen.type, new_tile(x, chosen.type))
    what = ElementExchange(READ, x.type, out.type)
    traffic().perform(what, read, (x, (out,), (lists,), width), lambda: out.tile, into=out)
    return out


def _items(x: Tiled, key: Any, verb: str) -> list[Item]:
    """**Collective** if an index has no dims. The items of a key whose lists are global arrays."""
    check_key(x, key)
    items = parse(key, x.shape)
    for item in items:
        if isinstance(item, ByMask) or (
            isinstance(item, AtIndices) and not isinstance(item.indices, Tiled)
        ):
            raise IndexKeyError(
                f"cannot {verb} {x.type} by global arrays of indices and other lists or masks together: "
                "make global arrays of all, by pgas.asarray or pgas.from_local"
            )
    return items


def read(
    x: Tiled, outs: Sequence[Tiled], lists: Sequence[Inspection], width: int
) -> tuple[None, int]:
    """**Collective.** Fill results, whose lists are one; nothing, and the bytes that this rank received.

    ``width`` is that of the lists: programs join reads in which it is the same.
    """
    tiles = [x.memory.empty((0,), x.dtype, 0) if out.tile is None else out.tile for out in outs]
    tile = None if x.tile is None else x.memory.contiguous(x.tile)
    passed = traffic().read(x.comm, x.type, lists[0], tile, tiles)
    traffic().note(calling_line(), ByLists(0, 1, *passed))
    return None, passed.received_bytes


def _inspect(
    comm: Comm, t: ArrayType, chosen: Chosen, width: int, every_copy: bool = False
) -> Inspection:
    """**Collective.** The lists for what is chosen of an array of a type.

    Those for writes are ``every_copy``: of an element all copies are written, by one rank of those with the
    same values. Where neither array has copies, they are those for reads.
    """
    every_copy = every_copy and not (_is_held_once(t) and _is_held_once(chosen.type))
    given = comm, t, chosen, width, every_copy
    what = ElementExchange(INSPECT, t, chosen.type)
    return traffic().perform(what, _tell, given, Inspection.of_nothing)


def _is_held_once(t: ArrayType) -> bool:
    return math.prod(t.cuts) == t.mesh.n_devices


def _tell(
    comm: Comm, t: ArrayType, chosen: Chosen, width: int, every_copy: bool
) -> tuple[Inspection, int]:
    """**Collective.** Tell ranks what this one asks for; the lists, and the bytes received."""
    asks = not every_copy or is_first_copy(chosen.type, comm.rank)
    n = math.prod(chosen.sizes) if asks else 0
    chosen.agree(comm, n, max(1, n))
    positions = chosen.positions(0, n)[::width]
    lists = traffic().inspect(comm, t, positions, width, every_copy)
    traffic().note(calling_line(), ByLists(inspected=1))
    told = int(lists.gives.sum() - lists.gives[comm.rank])
    return lists, told * lists.given.itemsize


def _width(t: ArrayType, items: Sequence[Item], made: ArrayType) -> int:
    """How many elements always follow each other: the last dims, where taken whole and not cut."""
    width = 1
    for item, cuts in zip(reversed(items), reversed(made.cuts), strict=False):
        if not isinstance(item, InRange) or cuts > 1 or t.cuts[item.dim] > 1:
            break
        if item.indices != range(t.shape[item.dim]):
            break
        width *= len(item.indices)
    return max(1, width)


@left_alone
def accumulate(a: Tiled, key: Any, values: Any, op: str = "sum") -> None:
    """**Collective.** Combine the elements that global arrays of indices name with values.

    ``op`` is sum, prod, max, min or replace. An element that is named several times is combined several
    times: each rank combines its own values of it, in order, and the element takes those of the ranks, in
    order. ``replace`` keeps the last.
    """
    if op not in OPS:
        raise RequestError(f"cannot accumulate by {op!r}: known are {', '.join(OPS)}")
    if a.type.dtype.extended_name is not None and op != "replace":
        raise RequestError(f"cannot accumulate {a.type.dtype}: NumPy has no sums of it")
    here = resolve_pending(a)
    items = _items(here, key, "accumulate into")
    if not can_cast(promote(here.dtype, values), here.dtype, "same_kind"):
        kind = getattr(values, "dtype", type(values).__name__)
        raise ArgumentTypeError(f"cannot accumulate {kind} into {a.type}: it would lose its kind")
    _combine(here, items, as_values(here, values), op)
    a._take_over(here)


@asked
def add_at(values: T, key: Any, t: ArrayType) -> T:
    """**Collective.** Zeros of a type, and values added at what a key names: :func:`get` backwards."""
    values = as_plain(resolve_pending(values))
    out = values.new(t, new_tile(values, t))
    if out.tile is not None:
        out.tile[...] = 0
    _combine(out, parse(key, t.shape), values, "sum")
    return out


def _combine(a: Tiled, items: Sequence[Item], values: Tiled, op: str) -> None:
    chosen = Chosen.of(a, items)
    t = chosen.type
    values = fit_values(values, t.shape)
    values = move(values, operand_type(values.type, t))
    n_bytes = math.prod(chosen.sizes) * (WORDS * 8 + 2 * a.dtype.itemsize)
    require_room(a, "accumulate into", n_bytes)
    lists = _inspect(a.comm, a.type, chosen, _width(a.type, items, t), True)
    given = a, values, t, chosen.sizes, lists, op
    traffic().perform(ElementExchange("accumulate", t, a.type), _pass_values, given, into=a)


def _pass_values(
    a: Tiled, values: Tiled, t: ArrayType, sizes: Shape, lists: Inspection, op: str
) -> tuple[None, int]:
    """**Collective.** Combine elements with values; nothing, and the bytes that this rank received."""
    n_units = len(lists.at) + len(lists.given)
    require_room(a, "accumulate into", n_units * lists.width * a.dtype.itemsize)
    gives = values.tile is not None and is_first_copy(t, a.comm.rank)
    own = a.memory.empty(sizes if gives else (0,), a.dtype, 0)
    if gives:
        own[...] = values.tile
    passed = traffic().combine(a.comm, a.type, lists, a.tile, own, op)
    traffic().note(calling_line(), ByLists(0, 1, *passed))
    return None, passed.received_bytes
