"""Into which factors a mesh is split for a planning: few enough for all types to be listed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from redist.layout.axes import SubAxis
from redist.layout.mesh import Mesh

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
