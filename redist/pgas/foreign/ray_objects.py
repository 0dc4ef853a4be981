"""Blocks of Ray's object store as global arrays, and tiles as objects of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from redist.errors import ArgumentError, RedistError
from redist.layout.mesh import Mesh
from redist.layout.tiles import is_first_copy, tile_index
from redist.pgas.creation import Type
from redist.pgas.files.shares import Wanted
from redist.pgas.foreign.blocks import BlockGrid, Index, take_blocks
from redist.pgas.global_array import Array
from redist.pgas.tiles.move import as_plain, resolve_pending
from redist.runtime.ranks.agreement import all_agree, from_first
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, comm_or_world

SHARES = False
WHAT = "blocks of Ray"


def as_global(
    refs: Any, *, type: Type | None, mesh: Mesh | None, comm: Comm | None, limit_bytes: Any
) -> Array:
    """**Collective.** What ``pgas.asarray`` makes of references to NumPy arrays in Ray's object store.

    ``refs`` is the grid of blocks, the same on all ranks: one reference, lists of lists of them, or a dict
    by index. A rank fetches only blocks that its tile shares elements with, each of them once for all ranks.
    """
    import ray

    comm, found, error = comm_or_world(comm), {}, None
    try:
        found = dict(_by_index(refs))
        _must_be_whole(found)
    except RedistError as problem:
        error = problem
    say = " ".join(f"{index} {ref.hex()}" for index, ref in sorted(found.items()))
    all_agree(comm, f"cannot take {WHAT}", say, error, TIMEOUT_S)

    def find() -> BlockGrid:
        return _grid(from_first(comm, lambda: _heads(found), TIMEOUT_S))

    def take(indices: Any) -> Any:
        return ray.get([found[index] for index in indices])

    return take_blocks(WHAT, find, take, Wanted(comm, type, mesh, None), limit_bytes)


def _by_index(refs: Any) -> Iterator[tuple[Index, Any]]:
    """References with their places in the grid.

    >>> [*_by_index([["a", "b"], ["c", "d"]])]
    [((0, 0), 'a'), ((0, 1), 'b'), ((1, 0), 'c'), ((1, 1), 'd')]
    """
    if isinstance(refs, Mapping):
        for index, ref in refs.items():
            yield tuple(index) if isinstance(index, tuple) else (index,), ref
    elif isinstance(refs, (list, tuple)):
        for i, inner in enumerate(refs):
            for index, ref in _by_index(inner):
                yield (i, *index), ref
    else:
        yield (), refs


def _must_be_whole(found: Mapping[Index, Any]) -> None:
    """Raise unless the places are all those of a grid.

    >>> _must_be_whole({(0, 0): "a", (1, 1): "b"})
    Traceback (most recent call last):
    ...
    redist.errors.ArgumentError: cannot take 2 blocks of Ray as a grid of [2, 2]: block (0, 1) is missing
    """
    dims = {len(index) for index in found}
    if len(dims) != 1:
        raise ArgumentError(
            f"cannot take blocks of Ray from lists nested {sorted(dims)} deep: need a grid"
        )
    counts = [max(along) + 1 for along in zip(*found, strict=True)]
    missing = next((index for index in np.ndindex(*counts) if index not in found), None)
    if missing is not None or len(found) != np.prod(counts):
        raise ArgumentError(
            f"cannot take {len(found)} blocks of Ray as a grid of {counts}: block {missing} is missing"
        )


Heads = dict[Index, tuple[tuple[int, ...], str]]
"""The shape and dtype of every block."""


def _heads(found: Mapping[Index, Any]) -> Heads:
    """**Local.** Ask Ray what each block is, in tasks that run where the blocks are."""
    import ray

    def head(block: Any) -> Any:
        return (tuple(block.shape), block.dtype.str) if hasattr(block, "dtype") else None

    try:
        told = ray.get([ray.remote(num_cpus=0)(head).remote(ref) for ref in found.values()])
    except Exception as problem:
        raise ArgumentError(f"cannot take {WHAT}: {problem}") from problem
    for index, one in zip(found, told, strict=True):
        if one is None:
            raise ArgumentError(f"cannot take block {index} of Ray: it is no NumPy array")
    return dict(zip(found, told, strict=True))


def _grid(heads: Heads) -> BlockGrid:
    """The grid that blocks of these shapes make, or an error that names one that does not fit.

    >>> _grid({(0,): ((2,), "<f4"), (1,): ((3,), "<f4")}).sizes
    ((2, 3),)
    """
    first = (0,) * len(next(iter(heads)))
    shape, dtype = heads[first]
    if len(shape) != len(first):
        raise ArgumentError(
            f"cannot take {WHAT} as a grid of {len(first)} dims: block {first} has {len(shape)}; nest lists "
            "as deep as the blocks have dims"
        )
    sizes = [
        tuple(heads[(*first[:dim], i, *first[dim + 1 :])][0][dim] for i in range(1 + max(along)))
        for dim, along in enumerate(zip(*heads, strict=True))
    ]
    for index, one in heads.items():
        extent = tuple(along[i] for along, i in zip(sizes, index, strict=True))
        if one != (extent, dtype):
            raise ArgumentError(
                f"cannot take {WHAT} as a grid: block {index} is {one[1]}{list(one[0])}, and those beside it "
                f"need {dtype}{list(extent)}"
            )
    return BlockGrid(tuple(sizes), np.dtype(dtype).newbyteorder("="))


def to_ray(a: Array) -> dict[Index, Any]:
    """**Collective** if a reduction is pending. Put this rank's tile into Ray's object store.

    ``own = pgas.to_ray(a)`` is a dict with one reference, whose key is the index of the tile in the grid of
    all tiles. If several ranks hold the tile, all but the first get an empty dict. Merge the
    dicts of all ranks to pass them to ``pgas.asarray``. To get other blocks, call ``a.to(type)`` first.
    """
    import ray

    a = as_plain(resolve_pending(a.to_device("cpu")))
    if a.tile is None or not is_first_copy(a.type, a.comm.rank):
        return {}
    return {tile_index(a.type, a.comm.rank): ray.put(np.asarray(a.tile))}
