"""``a[key]`` and ``a[key] = value``: the kind of key says which rule reads or writes the elements."""

from __future__ import annotations

from typing import Any

from redist.pgas.indexing import boolean, integer
from redist.pgas.indexing.basic import as_values, get_basic, put_basic
from redist.pgas.indexing.keys import AtIndices, ByMask, parse
from redist.pgas.tiles.arranging import asked, left_alone
from redist.pgas.tiles.devices import check_alike, copy_to_gpu, copy_to_host
from redist.pgas.tiles.move import as_plain, resolve_pending
from redist.pgas.tiles.tiled import T, Tiled


@asked
def get(x: T, key: Any) -> T:
    """**Collective.** Take the elements that a key names, as a new array.

    Dims that are not cut, and dims taken whole, are indexed where they are; a part of a cut dim stays
    cut by the same axes; the axes of a dim that goes away move to the largest dim left. Elements on
    GPUs are chosen by arrays in memory.
    """
    x = as_plain(resolve_pending(x))
    on_device = x.memory.on_device
    items = parse(copy_to_host(key) if on_device else key, x.shape)
    if not any(isinstance(item, (ByMask, AtIndices)) for item in items):
        return get_basic(x, tuple(items))
    check_key(x, key)
    chosen = boolean if any(isinstance(item, ByMask) for item in items) else integer
    return copy_to_gpu(chosen.get(copy_to_host(x), items)) if on_device else chosen.get(x, items)


def check_key(x: Tiled, key: Any) -> None:
    """**Local.** Raise if an array in memory is indexed by one on GPUs, or the other way."""
    check_alike("index", x, *(key if isinstance(key, tuple) else (key,)))


@left_alone
def put(a: Tiled, key: Any, value: Any) -> None:
    """**Collective.** Write values to the elements that a key names; values broadcast."""
    here = resolve_pending(a)
    on_device = here.memory.on_device
    items = parse(copy_to_host(key) if on_device else key, here.shape)
    values = as_values(here, value)
    if any(isinstance(item, (ByMask, AtIndices)) for item in items):
        check_key(here, key)
        chosen = boolean if any(isinstance(item, ByMask) for item in items) else integer
        there = copy_to_host(here)
        chosen.put(there, items, copy_to_host(values))
        if on_device and here.tile is not None:
            here.tile[...] = here.memory.asarray(there.tile)
    else:
        put_basic(here, tuple(items), values)
    a._take_over(here)
