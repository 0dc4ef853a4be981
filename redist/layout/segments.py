"""Dims that are sums of products: fused, factorised, dealt and ragged dims, in canonical form.

A dim is a sum of **segments**, one after another. A segment is a product of **factors**, the digits of an
index, major first; axes cut a factor. A rank's tile has its part of every segment, in order::

    4096{tp}+2*1024{tp:(1)8}     queries cut by tp; keys and values, each cut by 8 of its 16 coordinates
    32*2{x}*64                   64 rows for x=0, 64 for x=1, and so on, 32 times: block-cyclic
    4096{x/48}                   blocks of 48 dealt to x in turn, with a short one at the end
    4096{x/48@100}               the same, of an array whose first 100 indices are left out
    1000{x=300;300;400}          tiles of these lengths

What every rank holds is in :mod:`redist.layout.spans`. Here a dim gets one spelling of many, so that types
are compared by comparing their fields:

=================================  =======================  ==========================================
written                            becomes                  because
=================================  =======================  ==========================================
``4{x}+(2+8)``                     ``4{x}+10``              neighbours that nobody cuts are one number
``8{x}+8{x}``                      ``2*8{x}``               equal neighbours are a product
``8{x}*16``, x=2                   ``128{x}``               tiles of 8 are whole multiples of 16
``2{x}*8{y}``, x=2, y=4            ``16{x,y}``              every tile of 2 is one number
``256{x/16}``, x=4                 ``4*4{x}*16``            the deal comes out even
``10{x=5;5}``                      ``10{x}``                lengths that an even cut has
=================================  =======================  ==========================================
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from redist.errors import LayoutError
from redist.layout.axes import SubAxis, check_chain, format_axes, merge_parts, refined_parts
from redist.layout.cuts import EvenCut
from redist.layout.mesh import Mesh

MOST_SEGMENTS = 4096


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of a product: its number of indices, the axes that cut them, and how they are cut.

    With ``block``, the indices are dealt in blocks of this size, counted from index ``first`` of a longer
    dim. ``lengths`` has the lengths of ragged tiles. ``inner`` has the segments of a sum in brackets, which
    must be the last factor of a product. Without any of these, the ranges are even.
    """

    size: int
    axes: tuple[SubAxis, ...] = ()
    block: int = 0
    first: int = 0
    lengths: tuple[int, ...] = ()
    inner: tuple[Segment, ...] = ()

    @property
    def n_tiles(self) -> int:
        """The number of tiles that the axes cut the factor into."""
        return math.prod(part.size for part in self.axes)

    @property
    def is_whole(self) -> bool:
        """Whether no axis cuts the factor."""
        return not self.axes and not self.inner

    @property
    def is_plain(self) -> bool:
        """Whether the factor is a number, cut into even ranges or not at all."""
        return not (self.block or self.lengths or self.inner)

    @property
    def is_even(self) -> bool:
        """Whether the factor is a number whose tiles all have the same length."""
        return self.is_plain and self.size % self.n_tiles == 0


Segment: TypeAlias = tuple[Factor, ...]
Segments: TypeAlias = tuple[Segment, ...]


def size_of(segments: Segments) -> int:
    """The number of indices of a sum."""
    return sum(math.prod(factor.size for factor in segment) for segment in segments)


def paths(segments: Segments) -> Iterator[Segment]:
    """The products that a sum is made of, without brackets: a factor before brackets stands in each.

    What is left out of a path by its brackets has no number there; :mod:`redist.layout.spans` counts it.
    """
    for segment in segments:
        *before, last = segment
        for path in paths(last.inner) if last.inner else [(last,)]:
            yield (*before, *path)


def axes_of(mesh: Mesh, segments: Segments) -> tuple[SubAxis, ...]:
    """All axes that cut any part of a dim, each part of an axis once, in the order of the mesh."""
    used = [part for path in paths(segments) for factor in path for part in factor.axes]
    pieces = refined_parts(mesh, used)
    return merge_parts(piece for piece in pieces if any(piece.inside(part) for part in used))


def check_segments(mesh: Mesh, segments: Segments) -> None:
    """Raise unless axes, blocks and lengths of a dim make sense."""
    every = list(paths(segments))
    if len(every) > MOST_SEGMENTS:
        raise LayoutError(f"cannot make a type: {len(every)} segments; at most {MOST_SEGMENTS}")
    used = sorted({part for path in every for factor in path for part in factor.axes})
    for a in used:
        for b in used:
            if a.name == b.name and not _is_chain(a, b):
                raise LayoutError(
                    f"cannot use {a.text(mesh)} and {b.text(mesh)} in one dim: "
                    "they come from different cuts of the axis"
                )
    for path in every:
        check_chain(mesh, (part for factor in path for part in factor.axes))
        for factor in path:
            if factor.size < 0 or factor.block < 0 or factor.first < 0:
                raise LayoutError(f"cannot make a type: {factor} has a negative number")
            lengths = factor.lengths
            if lengths and (len(lengths) != factor.n_tiles or sum(lengths) != factor.size):
                raise LayoutError(
                    f"need {factor.n_tiles} lengths that add up to {factor.size}, "
                    f"got {len(lengths)} that add up to {sum(lengths)}"
                )


def _is_chain(a: SubAxis, b: SubAxis) -> bool:
    """Whether an axis can be split where either part begins and ends."""
    edges = sorted({a.pre, a.end, b.pre, b.end})
    return all(hi % lo == 0 for lo, hi in itertools.pairwise(edges))


def format_segments(mesh: Mesh, segments: Segments) -> str:
    """The text of a dim."""
    return "+".join("*".join(_text(mesh, factor) for factor in one) for one in segments)


def _text(mesh: Mesh, factor: Factor) -> str:
    if factor.inner:
        return f"({format_segments(mesh, factor.inner)})"
    if not factor.axes:
        return str(factor.size)
    how = ""
    if factor.block:
        how = f"/{factor.block}" + (f"@{factor.first}" if factor.first else "")
    elif factor.lengths:
        how = "=" + ";".join(map(str, factor.lengths))
    return f"{factor.size}{{{format_axes(mesh, factor.axes)}{how}}}"


# The canonical form


def canonical_dim(segments: Segments) -> Segments:
    """The canonical form of a sum; see the table above.

    >>> x = (SubAxis("x", 1, 2),)
    >>> print(format_segments(Mesh(x=2), canonical_dim(((Factor(8, x),), (Factor(8, x),), (Factor(3),)))))
    2*8{x}+3
    """
    flat: list[Segment] = []
    for segment in segments:
        product = _canonical_product(segment)
        only = product[0] if len(product) == 1 else None
        flat += only.inner if only is not None and only.inner else [product]
    out: list[Segment] = []
    for segment in flat:
        if math.prod(factor.size for factor in segment) == 0:
            continue
        joined = _add(out[-1], segment) if out else None
        if joined is None:
            out.append(segment)
        else:
            out[-1] = joined
    return tuple(out) or ((Factor(0),),)


def _add(one: Segment, other: Segment) -> Segment | None:
    """Two neighbours as one, if they are alike but for how often they come."""
    (a, rest), (b, same) = _times(one), _times(other)
    if rest != same:
        return None
    return _canonical_product((Factor(a + b), *rest))


def _times(segment: Segment) -> tuple[int, Segment]:
    """How often a product comes, one after another, and what."""
    if segment[0].is_whole:
        return segment[0].size, segment[1:]
    return 1, segment


def _canonical_product(factors: Iterable[Factor]) -> Segment:
    pending = [simple for factor in factors for simple in _simplify(factor)]
    out: list[Factor] = []
    for factor in pending:
        if factor.is_whole and factor.size == 1:
            continue
        joined = _times_factor(out[-1], factor) if out else None
        while joined is not None:
            out.pop()
            factor = joined
            joined = _times_factor(out[-1], factor) if out else None
        out.append(factor)
    return tuple(out) or (Factor(1),)


def _simplify(factor: Factor) -> Segment:
    """A factor as one or several that say the same with less."""
    if factor.inner:
        inner = canonical_dim(factor.inner)
        return inner[0] if len(inner) == 1 else (Factor(size_of(inner), inner=inner),)
    axes = merge_parts(factor.axes)
    size, n, block = factor.size, math.prod(part.size for part in axes), factor.block
    if n == 1:
        return (Factor(size),)
    lengths = factor.lengths
    if block:
        first = factor.first % (block * n)
        if first == 0 and size % (block * n) == 0 and size:
            return Factor(size // (block * n)), Factor(n, axes), Factor(block)
        if first + size > block * n:
            return (Factor(size, axes, block, first),)
        edges = [min(max(block * tile - first, 0), size) for tile in range(n + 1)]
        lengths = tuple(b - a for a, b in itertools.pairwise(edges))
    even = EvenCut(size, n)
    if lengths == tuple(hi - lo for lo, hi in map(even.range_of, range(n))):
        lengths = ()
    return (Factor(size, axes, lengths=lengths),)


def _times_factor(a: Factor, b: Factor) -> Factor | None:
    """Two factors as one, if their digits are the digits of one number that is cut alike."""
    if a.inner or b.inner:
        return None
    if b.is_whole:
        if a.is_even:
            return replace(a, size=a.size * b.size)
        if a.block:
            return replace(a, size=a.size * b.size, block=a.block * b.size, first=a.first * b.size)
        if a.lengths:
            lengths = tuple(n * b.size for n in a.lengths)
            return replace(a, size=a.size * b.size, lengths=lengths)
        return None
    if a.is_plain and a.size == a.n_tiles and b.is_even and a.axes:
        return Factor(a.size * b.size, merge_parts((*a.axes, *b.axes)))
    return None


def as_plain(segments: Segments) -> Factor | None:
    """The single factor of a dim that is cut into even ranges or not at all."""
    if len(segments) == 1 and len(segments[0]) == 1 and segments[0][0].is_plain:
        return segments[0][0]
    return None
