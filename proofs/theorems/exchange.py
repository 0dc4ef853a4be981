"""Exchange: every device receives exactly what it lacks, and nothing can do with less.

Statement. Let a device need a box of a type and hold a box of another (or none). The pieces that
``plan.schedule.make_schedule`` lists for it are, for all sizes: disjoint, inside the box needed,
each inside one tile of the source that somebody holds, and together they are the box needed less
what the device holds. So it receives |needed| - |needed and held| elements, which is what
``layout.lower_bound.lower_bound_bytes`` adds up. No sequence of steps whatever can do with less.

Encoding. Along a dim of n cut into k tiles of c a box [lo, hi) meets the tiles from lo / c on,
(hi - 1) / c - lo / c + 1 of them; piece q is the part of [lo, hi) in tile q. Receiving is modelled
one element at a time: a device has an element afterwards if it had it before or receives it.

What joins the obligations. *Dims*: a piece of a box is a product of pieces along the dims, one
combination of tile numbers each (theorem tiles, numbers); an index lies in the device's own box if
its tile number is the device's own along every dim ("own: dims" is the step of that induction, "own:
one dim" its base). *Volumes*: "volume: base" and "volume: step" add up pieces along one dim, "volume:
dims" multiplies by the volume along the other dims. *Bound*: "least: step" is an induction over what
is received, for one element on one device; sums over elements and devices follow term by term.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import z3

from proofs.engine.symbols import (
    Num,
    below,
    between,
    end,
    holds,
    is_tile,
    least,
    most,
    quotient,
    start,
)
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.showing import Asked, arrives_without_one, wrong_received

n, k, c, lo, hi, i, j, q, p, r = z3.Ints("n k c lo hi i j q p r")
CUT = is_tile(n, k, c)
BOX = (*CUT, *below(lo, hi), hi <= n)
"""A box that is not empty; an empty one has no pieces."""


def first(c: Num, lo: Num) -> Num:
    """The first tile that a box from lo on meets, as ``plan.schedule.source_ranges`` says."""
    return lo // most(c, 1) if isinstance(lo, int) else lo / most(c, 1)


def count(c: Num, lo: Num, hi: Num) -> Num:
    """How many tiles [lo, hi) meets.

    >>> [count(3, 2, hi) for hi in (2, 3, 4, 6, 7)]
    [0, 1, 2, 2, 3]
    """
    tiles = first(c, hi - 1) - first(c, lo) + 1
    if isinstance(lo, int):
        return tiles if hi > lo else 0
    return z3.If(hi > lo, tiles, 0)


def piece(n: Num, c: Num, lo: Num, hi: Num, q: Num) -> tuple[Num, Num]:
    """Start and end of the part of [lo, hi) that lies in tile q.

    >>> [piece(10, 3, 2, 7, q) for q in (0, 1, 2)]
    [(2, 3), (3, 6), (6, 7)]
    """
    return most(lo, start(n, c, q)), least(hi, end(n, c, q))


def overlap(n: Num, c: Num, lo: Num, hi: Num, i: Num) -> Num:
    """Elements that [lo, hi) and tile i share, as ``layout.tiles.overlaps`` counts them."""
    return most(least(hi, end(n, c, i)) - most(lo, start(n, c, i)), 0)


LISTED = (*BOX, first(c, lo) <= q, q < first(c, lo) + count(c, lo, hi))


def obligations() -> Iterator[Obligation]:
    """See the module."""
    yield from _pieces()
    yield from _own()
    yield from _volumes()
    yield from _least()


def _pieces() -> Iterator[Obligation]:
    low, high = piece(n, c, lo, hi, q)
    listed = z3.And(first(c, lo) <= q, q < first(c, lo) + count(c, lo, hi))
    yield Obligation(
        "pieces: index j lies in piece j / c, which is listed",
        (*BOX, lo <= j, j < hi, *quotient(j, c, q, r), z3.Not(z3.And(listed, low <= j, j < high))),
    )
    low2, high2 = piece(n, c, lo, hi, p)
    twice = (low <= j, j < high, low2 <= j, j < high2)
    yield Obligation(
        "pieces: an index lies in one piece only", (*BOX, q >= 0, p >= 0, *twice, q != p)
    )
    inside = z3.And(lo <= low, low < high, high <= hi)
    yield Obligation("pieces: inside the box, not empty", (*LISTED, z3.Not(inside)))
    yield Obligation(
        "pieces: of tiles that somebody holds", (*LISTED, z3.Not(z3.And(*below(q, k))))
    )
    yield Obligation(
        "pieces: none of an empty box", (*CUT, lo >= 0, hi == lo, count(c, lo, hi) != 0)
    )


def _own() -> Iterator[Obligation]:
    """``held``, ``equal``: j lies in the own box along the other dims; the numbers agree there."""
    held, equal = z3.Bools("held equal")
    here = (*BOX, *below(i, k), lo <= j, j < hi, *quotient(j, c, q, r))
    yield Obligation(
        "own: one dim, j lies in the own tile if its number is the own",
        (*here, holds(n, c, i, j) != (q == i)),
    )
    both = z3.And(held, holds(n, c, i, j)) == z3.And(equal, q == i)
    yield Obligation("own: dims, and so along all dims", (*here, held == equal, z3.Not(both)))


def _volumes() -> Iterator[Obligation]:
    low, high = piece(n, c, lo, hi, q)
    yield Obligation(
        "volume: base, the first piece starts the box",
        (*BOX, q == first(c, lo), low != lo),
    )
    total, volume = z3.Ints("total volume")
    low2, high2 = piece(n, c, lo, hi, q + 1)
    further = q + 1 < first(c, lo) + count(c, lo, hi)
    yield Obligation(
        "volume: step, pieces up to the next fill the box up to its end",
        (*LISTED, further, total == high - lo, total + (high2 - low2) != high2 - lo),
    )
    yield Obligation(
        "volume: the last piece ends the box",
        (*LISTED, q + 1 == first(c, lo) + count(c, lo, hi), high != hi),
    )
    yield Obligation(
        "volume: dims, what pieces along one dim add up to times the others",
        (volume >= 0, p >= 0, r >= 0, volume * p + volume * r != volume * (p + r)),
    )
    own = z3.And(first(c, lo) <= i, i < first(c, lo) + count(c, lo, hi))
    mine = piece(n, c, lo, hi, i)
    yield Obligation(
        "volume: what is not received is what is held already",
        (*BOX, *below(i, k), overlap(n, c, lo, hi, i) != z3.If(own, mine[1] - mine[0], 0)),
    )


def _least() -> Iterator[Obligation]:
    """One element on one device: held at first, held so far, received, held next."""
    at_first, so_far, received, afterwards = z3.Bools("at_first so_far received afterwards")
    received_elems = z3.Int("received_elems")
    lacking = z3.If(z3.And(so_far, z3.Not(at_first)), 1, 0)
    lacking_next = z3.If(z3.And(afterwards, z3.Not(at_first)), 1, 0)
    moved = z3.Implies(afterwards, z3.Or(so_far, received))
    yield Obligation(
        "least: base, at first nothing was received",
        (so_far == at_first, received_elems == 0, lacking > received_elems),
    )
    total = received_elems + z3.If(received, 1, 0)
    yield Obligation(
        "least: step, what is held and was not held at first was received",
        (moved, received_elems >= 0, lacking <= received_elems, lacking_next > total),
    )


# Wrong variants -----------------------------------------------------------------------------

a, b, x, y, d = z3.Ints("a b x y d")
"""Mesh x=a, y=b: a dim cut along x into tiles of c becomes one cut along y into tiles of d."""
SMALL = (*between(1, n, 12), *between(2, a, 4), *between(2, b, 4), *below(x, a), *below(y, b))
ENDS = (*SMALL, *is_tile(n, a, c), *is_tile(n, b, d), lo == start(n, d, y), hi == end(n, d, y))
SIZES = (n, a, b, c, d, x, y)


def _asked(v: Mapping[str, int]) -> Asked:
    return Asked(f"i32[{v['n']}{{x}}]", f"i32[{v['n']}{{y}}]", f"x={v['a']},y={v['b']}")


def _boxes(v: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """Own tile number and box needed of every device."""
    return [
        (x, start(v["n"], v["d"], y), end(v["n"], v["d"], y))
        for x in range(v["a"])
        for y in range(v["b"])
    ]


def _forgets_own() -> Obligation:
    return Obligation("own", (*ENDS, overlap(n, c, lo, hi, x) != 0), SIZES)


def _show_forgets_own(v: Mapping[str, int]) -> Shown:
    said = sum(hi - lo for _, lo, hi in _boxes(v))
    return wrong_received(_asked(v), said, "if devices fetched what they hold too")


def _misses_a_piece() -> Obligation:
    listed = z3.And(first(c, lo) <= q, q < first(c, lo) + count(c, lo, hi) - 1)
    lacking = (lo <= j, j < hi, *quotient(j, c, q, r), q != x)
    return Obligation("missing", (*ENDS, *lacking, z3.Not(listed)), (*SIZES, j))


def _show_misses_a_piece(v: Mapping[str, int]) -> Shown:
    said = 0
    for own, lo, hi in _boxes(v):
        tiles = range(first(v["c"], lo), first(v["c"], lo) + count(v["c"], lo, hi) - 1)
        ends = [piece(v["n"], v["c"], lo, hi, q) for q in tiles if q != own]
        said += sum(high - low for low, high in ends)
    return wrong_received(_asked(v), said, "without the last piece of every box")


def _one_less() -> Obligation:
    needed, received, has = z3.Ints("needed received has")
    own = overlap(n, c, lo, hi, x)
    enough = (needed == hi - lo, received == needed - own - 1, received >= 0)
    return Obligation("less", (*ENDS, *enough, has <= own + received, has < needed), SIZES)


def _show_one_less(v: Mapping[str, int]) -> Shown:
    asked = _asked(v)
    lacking = sum(hi - lo - overlap(v["n"], v["c"], lo, hi, own) for own, lo, hi in _boxes(v))
    shown = wrong_received(asked, lacking - 1, "one element less than the bound")
    fails = not arrives_without_one(asked.plan())
    text = f"{shown.text}; with one received element left out the array is wrong"
    return Shown(shown.command, shown.contradicts and fails, text)


THEOREM = Theorem(
    "exchange",
    "An exchange receives exactly what each device lacks, |needed| - |needed and held| elements, and "
    "no sequence of steps can do with less: the lower bound is reached and cannot be beaten.",
    "Induction over dims, pieces and receives; base and step are obligations.",
    "Elements move whole: compression or codes that exploit their values are outside the model. "
    "Pending reductions (theorem pending). An exchange that adds pending axes gives the values to "
    "coordinate 0 and may receive more than the bound.",
    obligations,
    (
        Twin("fetches what it holds too", _forgets_own, _show_forgets_own),
        Twin("the last piece is missing", _misses_a_piece, _show_misses_a_piece),
        Twin("one element less is enough", _one_less, _show_one_less),
    ),
)
