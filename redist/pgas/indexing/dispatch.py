"""``a[key]`` and ``a[key] = value``: the kind of key says which rule reads or writes the elements."""

from __future__ import annotations

from typing import Any

from redist.layout.array_type import ArrayType
from redist.pgas.indexing import boolean, integer
from redist.pgas.indexing.basic import as_values, get_basic, put_basic
from redist.pgas.indexing.keys import AtIndices, ByMask, parse
from redist.pgas.structures import mapped
from redist.pgas.tiles.arranging import asked, left_alone
from redist.pgas.tiles.devices import check_alike
from redist.pgas.tiles.layouts import dtype_of
from redist.pgas.tiles.move import as_plain, resolve_pending
from redist.pgas.tiles.tiled import T, Tiled
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import as_device, to_host


@asked
def get(x: T, key: Any) -> T:
    """**Collective.** Take the elements that a key names, as a new array.

    Dims that are not cut, and dims taken whole, are indexed where they are; a part of a cut dim stays
    cut by the same axes; the axes of a dim that goes away move to the largest dim left.
    """
    x = as_plain(resolve_pending(x))
    items = parse(over_ranks(x, key), x.shape)
    if not any(isinstance(item, (ByMask, AtIndices)) for item in items):
        return get_basic(x, tuple(items))
    check_key(x, key)
    chosen = boolean if any(isinstance(item, ByMask) for item in items) else integer
    return chosen.get(x, items)


def over_ranks(x: Tiled, key: Any) -> Any:
    """The key with arrays of CuPy, alike on all ranks, as global arrays that every rank has whole."""
    if not x.memory.on_device:
        return key

    def change(one: Any) -> Any:
        if isinstance(one, Tiled) or not is_device(one):
            return one
        if x.memory.is_ghost or one.ndim == 0:
            return to_host(one)
        t = ArrayType(x.mesh, dtype_of(one.dtype), one.shape, ((),) * one.ndim)
        return x.new(t, None if x.tile is None else as_device(one))

    return mapped(key, change)


def check_key(x: Tiled, key: Any) -> None:
    """**Local.** Raise if an array in memory is indexed by one on GPUs, or the other way."""
    check_alike("index", x, *(key if isinstance(key, tuple) else (key,)))


@left_alone
def put(a: Tiled, key: Any, value: Any) -> None:
    """**Collective.** Write values to the elements that a key names; values broadcast."""
    here = resolve_pending(a)
    items = parse(over_ranks(here, key), here.shape)
    values = as_values(here, value)
    if any(isinstance(item, (ByMask, AtIndices)) for item in items):
        check_key(here, key)
        chosen = boolean if any(isinstance(item, ByMask) for item in items) else integer
        chosen.put(here, items, values)
    else:
        put_basic(here, tuple(items), values)
    a._take_over(here)
