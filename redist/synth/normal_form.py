"""Normal form: any redistribution by slice, all_to_all and all_permute, all_gather, without a search.

Every axis is split where either end splits it, then into primes: a *factor* is a prime part of an axis. Two
facts carry the construction:

- A type is even if and only if every dim is cut by at most as many factors of each prime as its size has.
- all_permute joins any two types whose dims are cut by the same *numbers* of factors of each prime: names
  and order are free.

So, up to permutes, a type is a table of counts, a row for every prime and a column for every dim::

                dim 0  dim 1              dim 0  dim 1
    prime 2       2      0    source        1      1    target
    prime 3       0      1                  0      0

slice adds 1 to an entry, all_gather takes 1 away, all_to_all moves 1 within a row. Rows do not interfere.
For each prime, what the target has more of than the source is sliced first, onto dims that lack it; what it
has less of is gathered last, off dims that have too much. Between these two types all rows have equal sums,
and entries move from dims with too many to dims with too few::

    source --slice--> start --[permute] [all_to_all] [permute]--> end --all_gather--> target

Every count goes from its value in the source to that in the target without a detour, so all types on the way
are even, and no tile is larger than the larger end. Nothing can fail; the theorem ``normal_form`` of
``proofs`` says why. What can be chosen (which factors, on which dims, from which end) is chosen for bytes.

Beyond even types on one mesh:

- *Uneven dims* are cut as if they were even. Whether tiles then nest is for the typing rules to say; they do
  if a dim padded to a multiple of all its cuts grows by less than the smallest of them.
- *Pending axes* that are resolved are scattered onto dims that lack their primes, in place of slices. What
  is left of them is scattered and gathered again where a dim has room, else reduced where it is.
- *Two meshes*: each end appends factors of its own mesh, and a permute crosses. Both must have enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from redist.errors import StepError
from redist.layout.array_type import ArrayType
from redist.layout.axes import prime_parts
from redist.layout.lower_bound import lower_bound_bytes
from redist.plan.portable import unnested_dims
from redist.plan.rules import type_after
from redist.plan.steps import AllPermute
from redist.synth.flat_steps import count_factors, flat_ways
from redist.synth.middles import Ends, Middle, is_in, size_of
from redist.synth.named_steps import Dims, name_step, split_dims
from redist.synth.plan_figures import Path


def normal_form(
    source: ArrayType, target: ArrayType, middle_bytes: int | None = None
) -> Path | None:
    """slice, reductions, flat steps, all_gather from one type to the other; None if tiles do not allow it.

    Tiles on the way have at most ``middle_bytes``, if that can be had.

    >>> from redist.layout.mesh import Mesh
    >>> a, b = (ArrayType.parse(t, Mesh(a=2, b=3)) for t in ("f32[6{a}]", "f32[6{b}]"))
    >>> [str(after) for _, after in normal_form(a, b) or ()]
    ['f32[6{a,b}]', 'f32[6{b,a}]', 'f32[6{b}]']
    """
    ends = Ends.of(source, target)
    middles = list(ends.middles())
    if middle_bytes is not None:
        middles = [ends.finer_than(middle, middle_bytes) for middle in middles]
    best = _best(ends, middles, None)
    while best is not None and best.flat_steps > 1:
        # Only then still smaller tiles may pay: more is gathered, and each flat step becomes cheaper.
        better = _best(ends, ends.finer(best.middle), best)
        if better is best:
            break
        best = better
    return None if best is None else best.path


def crossing(source: ArrayType, target: ArrayType) -> Path | None:
    """From mesh to mesh by way of a shape of tiles that both have, in normal form on either side.

    This is for meshes that do not have all primes of both ends. None where every such shape has tiles
    larger than both ends: then no sequence of named collectives stays below.
    """
    if source.mesh == target.mesh:
        return None
    here, there = prime_parts(source.mesh), prime_parts(target.mesh)
    old, new = (count_factors(split_dims(t, prime_parts(t.mesh, t.used))) for t in (source, target))
    dims: tuple[Dims, Dims] = [[] for _ in old], [[] for _ in old]
    for p in sorted({part.size for part in here}):
        mine, theirs = ([q for q in parts if q.size == p] for parts in (here, there))
        pairs = list(zip(mine, theirs, strict=False))
        both = [sorted((a[p], b[p])) for a, b in zip(old, new, strict=True)]
        # First as often as both ends cut a dim, then as often as one does, then as often as there is room.
        for wanted in (*zip(*both, strict=True), (math.inf,) * source.ndim):
            for i, n in enumerate(source.shape):
                count = sum(part.size == p for part in dims[0][i])
                while pairs and count < wanted[i] and n % (p * size_of(dims[0][i])) == 0:
                    for own, part in zip(dims, pairs.pop(), strict=True):
                        own[i].append(part)
                    count += 1
    before = source.with_pending(None, ()).with_dims(dims[0])
    after = target.with_pending(None, ()).with_dims(dims[1])
    if before.tile_bytes > max(source.tile_bytes, target.tile_bytes):
        return None
    first, last = normal_form(source, before), normal_form(after, target)
    if first is None or last is None:
        return None
    return (*first, (AllPermute(after), after), *last)


def by_whole_dims(source: ArrayType, target: ArrayType) -> Path | None:
    """The same with dims whose tiles do not nest gathered first and sliced last; None if there are none."""
    dims = unnested_dims(source, target)
    if not dims or source.mesh != target.mesh:
        return None
    start, end = (
        t.with_dims(() if i in dims else dim for i, dim in enumerate(t.dims))
        for t in (source, target)
    )
    first, last = name_step(source, start), name_step(end, target)
    between = normal_form(start, end)
    if between is None or (first is None and source != start) or (last is None and end != target):
        return None
    gathers = ((first, start),) if first else ()
    slices = ((last, target),) if last else ()
    return (*gathers, *between, *slices)


def has_closed_limit(source: ArrayType, target: ArrayType) -> bool:
    """Whether :func:`least_limit_bytes` holds: even ends on one mesh, the same axes pending."""
    same = source.mesh == target.mesh and source.pending_axes == target.pending_axes
    return same and source.pending_op == target.pending_op and source.is_even and target.is_even


def least_limit_bytes(source: ArrayType, target: ArrayType, donate: bool) -> int:
    """The least limit under which named collectives lead from one even type to the other.

    A plan of several steps holds the source, a middle and the target at its end, or, if the source is
    donated, the source and a middle, then a middle and the target. No middle is smaller than the smallest
    even tile; and by more slices than needed every smaller limit than that is ruled out, every larger one
    is met.

    >>> from redist.layout.mesh import Mesh
    >>> a, b = (ArrayType.parse(t, Mesh(a=2, b=3)) for t in ("f32[6{a}]", "f32[6{b}]"))
    >>> least_limit_bytes(a, b, donate=False), least_limit_bytes(a, b, donate=True)
    (24, 16)
    """
    s, t = source.tile_bytes, target.tile_bytes
    middle = _smallest_tile_bytes(source)
    several = (max(s, t) if donate else s + t) + middle
    one_step = name_step(source, target, most_moves=64) is not None
    return min(s + t, several) if one_step else several


def _smallest_tile_bytes(t: ArrayType) -> int:
    """Of all even types on the mesh with the same axes pending."""
    left = list(t.shape)
    for part in prime_parts(t.mesh, t.pending_axes):
        i = next((i for i, n in enumerate(left) if n and n % part.size == 0), None)
        if i is not None and not is_in(part, t.pending_axes):
            left[i] //= part.size
    return math.prod(left) * t.dtype.itemsize


@dataclass(frozen=True, slots=True)
class _Found:
    """A way through one middle."""

    middle: Middle
    received_bytes: int
    flat_steps: int
    path: Path

    @property
    def cost(self) -> tuple[int, int]:
        return self.received_bytes, len(self.path)


def _best(ends: Ends, middles: Iterable[Middle], best: _Found | None) -> _Found | None:
    """The way through one of the middles that receives least.

    No way receives less than what devices lack at the end of the flat steps, and then at the target: so
    middles are looked at in the order of that, until it is no less than the best way found.
    """
    seen: dict[tuple[ArrayType, ArrayType], Middle] = {}
    for middle in middles:
        seen.setdefault(ends.types(middle), middle)
    bounds = [_received(start, [end, ends.goal]) for start, end in seen]
    for bound, (start, end) in sorted(zip(bounds, seen, strict=True), key=lambda row: row[0]):
        if best is not None and bound >= best.received_bytes:
            break
        first, last = ends.first(seen[start, end]), ends.last(seen[start, end])
        for flat in flat_ways(start, end, *seen[start, end]):
            received = _received(start, [*(after for _, after in flat), ends.goal])
            found = _Found(seen[start, end], received, len(flat), (*first, *flat, *last))
            if (best is None or found.cost < best.cost) and _is_legal(ends, found.path):
                best = found
    return best


def _received(here: ArrayType, stops: Iterable[ArrayType]) -> int:
    """Bytes that all devices receive from stop to stop."""
    total = 0
    for stop in stops:
        total, here = total + lower_bound_bytes(here, stop), stop
    return total


def _is_legal(ends: Ends, path: Path) -> bool:
    """Whether the typing rules agree, and no tile is larger than both ends.

    Between even types that is so always, between others where tiles nest.
    """
    larger = max(ends.source.tile_bytes, ends.target.tile_bytes)
    here = ends.source
    for action, after in path:
        try:
            if type_after(action, here) != after or after.tile_bytes > larger:
                return False
        except StepError:
            return False
        here = after
    return True
