"""Why named collectives alone may need a tile that is larger than both ends.

Between even types on one mesh they never do (theorem ``normal_form``). Two cases are left:

- *Uneven dims* whose tiles nest in no common ones. A dim of 10 cut into 2 tiles, then into 3, would pass
  a cut into 6, which takes 12 indices: the padding of 2 is not less than the cut of 2, so 5 + 5 is not made
  of tiles of 2. Every named collective but a gather of the whole dim is refused.
- *Two meshes* that have too few primes in common. Tiles cross whole, so some shape must exist on both. From
  2 devices to 3 that is only the whole array.
"""

from __future__ import annotations

import math
from collections import Counter

from redist.layout.array_type import ArrayType
from redist.layout.axes import prime_parts
from redist.layout.mesh import Mesh
from redist.text.units import count_of


def larger_tile_reason(source: ArrayType, target: ArrayType) -> str:
    """In words, why a tile larger than both ends may be needed; empty if it never is.

    >>> a, b = (ArrayType.parse(t, Mesh(a=2, b=3)) for t in ("f32[10{a}]", "f32[10{b}]"))
    >>> larger_tile_reason(a, b)
    'dim 0 of size 10: its 2 tiles and its 3 tiles are not made of common smaller ones'
    """
    if source.mesh != target.mesh:
        wanted = min(math.prod(source.cuts), math.prod(target.cuts))
        shared = _most_common_tiles(source.mesh, target.mesh, source.shape)
        if shared < wanted:
            return (
                f"both meshes can cut the array alike into at most {count_of(shared, 'tile')}, "
                f"and source and target have {wanted} or more"
            )
    dims = unnested_dims(source, target)
    if not dims:
        return ""
    n, a, b = source.shape[dims[0]], source.cuts[dims[0]], target.cuts[dims[0]]
    tiles = f"its {a} tiles and its {b} tiles are not made of common smaller ones"
    return f"dim {dims[0]} of size {n}: {tiles}"


def unnested_dims(source: ArrayType, target: ArrayType) -> list[int]:
    """Dims whose cut changes and whose tiles need not be made of common smaller ones."""
    cuts = enumerate(zip(source.shape, source.cuts, target.cuts, strict=True))
    return [
        i
        for i, (n, a, b) in cuts
        if source.dims[i] != target.dims[i] and -n % math.lcm(a, b) >= _least_cut(a, b)
    ]


def _least_cut(a: int, b: int) -> int:
    """The smallest cut on the way from one number of tiles to another; larger than any padding if none."""
    both = math.lcm(a, b)
    return next((k for k in range(2, both + 1) if both % k == 0), both + 1)


def _most_common_tiles(a: Mesh, b: Mesh, shape: tuple[int, ...]) -> int:
    """The most even tiles of one shape into which both meshes can cut an array."""
    here, there = (Counter(part.size for part in prime_parts(mesh)) for mesh in (a, b))
    tiles = 1
    for p in here:
        room = sum(exponent(p, n) for n in shape)
        tiles *= int(p ** min(here[p], there[p], room))
    return tiles


def exponent(p: int, n: int) -> int:
    """How often p divides n; more often than any mesh has it, if n is 0."""
    if n == 0:
        return 64
    k = 0
    while n % p == 0:
        n, k = n // p, k + 1
    return k
