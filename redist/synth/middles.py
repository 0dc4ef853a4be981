"""Between slices and gathers: what cuts the dims there in a normal form, and the steps to it and from it.

For each prime, the end that has fewer factors of it appends some, on dims that lack it: after that both have
as many. Which, and where, is free, and so is appending more on both sides; some choices are tried::

    f32[6{a}, 8]  ->  f32[6, 8{b}]        a=2, b=2

    none appended       f32[6{a}, 8]        f32[6, 8{b}]         flat: all_to_all, all_permute
    b, and a            f32[6{a}, 8{b}]     f32[6{a}, 8{b}]      flat: nothing, as all keep their names
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, merge_parts, prime_parts
from redist.plan.rules import added_axes, difference, kept_axes, resolved_axes
from redist.plan.steps import AllGather, AllReduce, ReduceScatter, Slice
from redist.synth.flat_steps import count_factors
from redist.synth.named_steps import Dims, common_pieces, split_dims
from redist.synth.plan_figures import Hop, Path

Middle = tuple[Dims, Dims]
"""What cuts the dims after the slices, and before the gathers."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Both ends in factors, and what each may append to its dims.

    ``plain`` is the source with resolved axes reduced, ``goal`` the target without added pending axes;
    ``scattered`` are the factors of resolved axes.
    """

    source: ArrayType
    target: ArrayType
    plain: ArrayType
    goal: ArrayType
    old: Dims
    new: Dims
    scattered: tuple[SubAxis, ...]
    idle_before: tuple[SubAxis, ...]
    idle_after: tuple[SubAxis, ...]

    @staticmethod
    def of(source: ArrayType, target: ArrayType) -> Ends:
        """The ends of a redistribution, in prime factors."""
        resolved = resolved_axes(source, target)
        plain = source.with_pending(source.pending_op, kept_axes(source, target))
        goal = target.with_pending(plain.pending_op, plain.pending_axes)
        one_chain = common_pieces(source, target) is not None
        used = (*source.used, *target.used)
        mine = prime_parts(source.mesh, used if one_chain else source.used)
        theirs = mine if one_chain else prime_parts(target.mesh, target.used)
        dims = split_dims(source, mine), split_dims(target, theirs)
        scattered = tuple(p for p in mine if is_in(p, resolved))
        idle_before = tuple(p for p in mine if not is_in(p, plain.used))
        idle_after = tuple(p for p in theirs if not is_in(p, goal.used))
        return Ends(source, target, plain, goal, *dims, scattered, idle_before, idle_after)

    def types(self, middle: Middle) -> tuple[ArrayType, ArrayType]:
        """The types of a middle."""
        return self.plain.with_dims(middle[0]), self.goal.with_dims(middle[1])

    # What cuts the dims between slices and gathers

    def middles(self) -> Iterator[Middle]:
        """The largest tiles that will do, by several ways to choose factors; none if there are too few.

        After them smaller ones: all factors that one end alone uses cut dims on both sides, if there is
        room, so that none changes its name.
        """
        larger = []
        for last_first, home_first in itertools.product((False, True), repeat=2):
            choice = last_first, home_first
            start = _fill(self.old, self.new, self.idle_before, self.scattered, *choice)
            end = _fill(self.new, self.old, self.idle_after, (), *choice)
            if start is None or end is None:
                return
            for part in self.scattered:
                if part not in itertools.chain(*start):
                    start, end = next(self._with((start, end), part), (start, end))
            larger.append((start, end))
        smaller = [self._with_all(middle) for middle in larger]
        for middle in (*larger, *smaller):
            for home_last in (False, True):
                yield self._ordered(middle, home_last)

    def finer(self, middle: Middle) -> Iterator[Middle]:
        """The middle with one more factor on some dim that has room for it."""
        for part in self.idle_before:
            if part not in itertools.chain(*middle[0]):
                yield from self._with(middle, part)

    def finer_than(self, middle: Middle, tile_bytes: int) -> Middle:
        """The middle with more factors, until tiles have at most this many bytes or no dim has room."""
        while self.types(middle)[0].tile_bytes > tile_bytes:
            finer = list(self.finer(middle))
            if not finer:
                break
            sizes = [self.types(one)[0].tile_bytes for one in finer]
            fits = [n for n in sizes if n <= tile_bytes]
            middle = finer[sizes.index(max(fits, default=min(sizes)))]
        return middle

    def _with(self, middle: Middle, part: SubAxis) -> Iterator[Middle]:
        """A factor, and on the other side one of its size, appended to dims that have room.

        On the other side it is one that cuts a dim at the other end, and the same dim, if that is possible.
        """
        start, end = middle
        used = set(itertools.chain(*end))
        idle = [p for p in self.idle_after if p.size == part.size and p not in used]
        home = _homes(self.old)
        idle.sort(key=lambda p: (p not in home, p != part))
        for i in _rooms(self.source, start, part, _homes(self.new)):
            for other in idle[:1]:
                for j in _rooms(self.source, end, other, home, i)[:1]:
                    yield _appended(start, i, part), _appended(end, j, other)

    def _with_all(self, middle: Middle) -> Middle:
        """The middle with all factors that the target alone uses, as far as there is room."""
        for part in itertools.chain(*self.new):
            if part in self.idle_before and part not in itertools.chain(*middle[0]):
                middle = next(self._with(middle, part), middle)
        return middle

    def _ordered(self, middle: Middle, home_last: bool) -> Middle:
        """What was appended to a dim in the order of the other end, strangers before it or behind it."""
        return (
            _ordered(self.old, middle[0], self.new, self.scattered, home_last),
            _ordered(self.new, middle[1], self.old, (), home_last),
        )

    # The steps to it and from it

    def first(self, middle: Middle) -> Path:
        """slice; reduce_scatter; all_reduce, as far as there is something to slice and to reduce."""
        hops: list[Hop] = []
        added = [dim[len(own) :] for own, dim in zip(self.old, middle[0], strict=True)]
        early = [[p for p in dim if p not in self.scattered] for dim in added]
        here = self.source
        if any(early):
            here = here.with_dims([*a, *b] for a, b in zip(self.old, early, strict=True))
            hops.append((Slice(_by_dim(early)), here))
        late = [p for dim in added for p in dim if p in self.scattered]
        if late:
            left = difference(self.source.pending_axes, late)
            here = self.plain.with_dims(middle[0]).with_pending(self.source.pending_op, left)
            hops.append((ReduceScatter(here), here))
        rest = resolved_axes(here, self.plain)
        if rest:
            hops.append(
                (AllReduce(rest), here.with_pending(here.pending_op, kept_axes(here, self.plain)))
            )
        return tuple(hops)

    def last(self, middle: Middle) -> Path:
        """all_gather; the local step to added pending axes."""
        hops: list[Hop] = []
        moves = _by_dim([dim[len(own) :] for own, dim in zip(self.new, middle[1], strict=True)])
        if moves:
            hops.append((AllGather(moves), self.goal))
        added = added_axes(self.source, self.target)
        if added:
            hops.append((Slice((), self.target.pending_op, added), self.target))
        return tuple(hops)


def is_in(part: SubAxis, axes: Iterable[SubAxis]) -> bool:
    """Whether a factor is part of one of the axes."""
    return any(part.inside(axis) for axis in axes)


def size_of(parts: Iterable[SubAxis]) -> int:
    """Into how many tiles some factors cut a dim."""
    return math.prod(part.size for part in parts)


def _appended(dims: Dims, i: int, part: SubAxis) -> Dims:
    return [[*dim, part] if j == i else dim for j, dim in enumerate(dims)]


def _by_dim(parts: Dims) -> tuple[tuple[SubAxis, int], ...]:
    """The axes that are appended to dims, or taken off them."""
    return tuple((part, i) for i, dim in enumerate(parts) for part in merge_parts(dim))


def _homes(dims: Dims) -> dict[SubAxis, int]:
    """The dim that each factor cuts."""
    return {part: i for i, dim in enumerate(dims) for part in dim}


def _rooms(
    t: ArrayType, dims: Dims, part: SubAxis, homes: dict[SubAxis, int], other: int = -1
) -> list[int]:
    """Dims that a factor can cut as well, first its home, then the ``other``."""
    rooms = [i for i, n in enumerate(t.shape) if n % (part.size * size_of(dims[i])) == 0]
    return sorted(rooms, key=lambda i: (i != homes.get(part), i != other))


def _ordered(
    own: Dims, dims: Dims, there: Dims, scattered: Sequence[SubAxis], home_last: bool
) -> Dims:
    out = []
    for i, dim in enumerate(dims):
        at = {part: k for k, part in enumerate(there[i])}
        away = -1 if home_last else len(at)
        more = sorted(dim[len(own[i]) :], key=lambda p: (p in scattered, at.get(p, away)))
        out.append([*own[i], *more])
    return out


def _fill(
    here: Dims,
    there: Dims,
    idle: Sequence[SubAxis],
    scattered: Sequence[SubAxis],
    last_first: bool,
    home_first: bool,
) -> Dims | None:
    """``here`` with as many factors of every prime as ``there``, if it has fewer: on dims that lack some.

    Dims that are scattered are taken first, then those that cut a dim there, which go to the same dim
    if they can. None if there are too few factors.
    """
    have, want = count_factors(here), count_factors(there)
    lacks = [want[i] - have[i] for i in range(len(here))]
    homes = _homes(there)
    order = [*reversed(idle)] if last_first else [*idle]
    order.sort(key=lambda part: (part not in scattered, part not in homes))
    out = [list(dim) for dim in here]
    for p in sorted({p for lack in lacks for p in lack}):
        missing = sum(c[p] for c in want) - sum(c[p] for c in have)
        parts = [part for part in order if part.size == p]
        if len(parts) < missing:
            return None
        for part in parts[: max(missing, 0)]:
            open_ = [i for i, lack in enumerate(lacks) if lack[p] > 0]
            away = [i for i in open_ if i != homes.get(part)]
            i = homes[part] if home_first and homes.get(part) in open_ else (away or open_)[0]
            out[i].append(part)
            lacks[i][p] -= 1
    return out
