"""Free a dim of its cuts: the axes go to another dim, so that the tiles stay as small as they were."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

from redist.errors import LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.layout.lower_bound import lower_bound_bytes
from redist.pgas.tiles.layouts import resolved_type

MOST_CANDIDATES = 600


@lru_cache(maxsize=4096)
def free_dims(t: ArrayType, dims: frozenset[int], later: frozenset[int] = frozenset()) -> ArrayType:
    """Find the cheapest type in which ``dims`` are whole; dims wanted whole ``later`` cost more if cut.

    >>> from redist.layout.mesh import Mesh
    >>> print(free_dims(ArrayType.parse("c128[8, 8{x}, 8{y}]", Mesh(x=2, y=2)), frozenset({1})))
    c128[8{x}, 8, 8{y}]

    Where no other dim is long enough to take the axes, some ranks hold nothing or all the same.
    """
    plain = resolved_type(t)
    if t.pending_op is None and not any(t.dims[i] for i in dims):
        return t
    n = t.mesh.n_devices

    def cost(end: ArrayType) -> int:
        again = sum(t.tile_bytes * n for i in later - dims if end.dims[i] and not plain.dims[i])
        return lower_bound_bytes(t, end) + end.tile_bytes * n + again

    return min(_candidates(plain, dims), key=cost)


def _candidates(t: ArrayType, dims: frozenset[int]) -> Iterator[ArrayType]:
    """Give all the axes to one dim, before or after its own, or each to a dim, or to none."""
    parts = [part for i in sorted(dims) for part in t.dims[i]]
    others = [i for i in range(t.ndim) if i not in dims]
    yield t.with_dims([() if i in dims else dim for i, dim in enumerate(t.dims)])
    places = list(itertools.product(others, repeat=len(parts)))
    if len(places) > MOST_CANDIDATES:
        places = [(i,) * len(parts) for i in others]
    for place, first in itertools.product(places, (False, True)):
        new: list[tuple[SubAxis, ...]] = [() if i in dims else dim for i, dim in enumerate(t.dims)]
        for part, i in zip(parts, place, strict=True):
            new[i] = (part, *new[i]) if first else (*new[i], part)
        try:
            yield t.with_dims(new)
        except LayoutError:
            continue
