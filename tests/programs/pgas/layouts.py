"""Every layout of an array on the meshes that a number of ranks allows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from redist import ArrayType, Mesh
from redist.layout.axes import whole
from redist.layout.dtype import DType


def meshes(n: int) -> list[Mesh]:
    """Meshes of n ranks: one axis, and two where n can be divided."""
    out = [Mesh(x=n)]
    for k in (2, 3):
        if n % k == 0 and n > k:
            out.append(Mesh(x=k, y=n // k))
    return out


def layouts(mesh: Mesh, dtype: DType, shape: tuple[int, ...]) -> Iterator[ArrayType]:
    """All types of an array: each axis cuts one of the dims, or none."""
    names = [name for name, _ in mesh.axes]
    for order in itertools.permutations(names):
        for where in itertools.product(range(-1, len(shape)), repeat=len(names)):
            dims = tuple(
                tuple(whole(mesh, name) for name, at in zip(order, where, strict=True) if at == i)
                for i in range(len(shape))
            )
            yield ArrayType(mesh, dtype, shape, dims)
