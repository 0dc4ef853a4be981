"""Tiles: they cover every index, and who holds the same tile is who differs on unused axes only.

Statement. A dim of size n is cut into k tiles of c = n / k rounded up; tile i is
[min(i c, n), min(i c + c, n)). A ragged dim has tiles between any edges that rise from 0 to n.
A device's tile number along a dim is the mixed-radix number of its digits on the axes (or parts of
axes) that cut the dim, major first; its box is the product of its tiles. For every number of dims and
axes and all their sizes:
every index of the array lies in the box of some device; devices whose digits agree on all used
axes hold the same box; devices that differ on a used axis hold no index in common, so if either
holds anything they hold different boxes. Axes that carry a pending reduction count as unused: along
them devices hold the same indices, of different partial arrays.

Encoding. n, k, c, tile numbers and digits are integer symbols; c is fixed by (c - 1) k < n <= c k.
A device is the row-major number of its coordinates, as ``layout.tiles.coordinates`` takes it apart.

What joins the obligations. *Numbers*: the obligations "number: ..." are base and step of an
induction over the axes of a dim: with no axis the number is 0 of 1; an axis of size s turns number
i of k and digit d into i s + d of k s. So tuples of digits and numbers correspond one to one.
The same induction over all parts of all axes says that every combination of digits is one device.
*Digits*: the obligations "digit: ..." say that ``coordinates`` finds the digits of a part of an
axis in the number of a device, and that joining or splitting parts changes no tile number.
*Edges*: the obligations "edges: ..." are an induction over the tiles of a ragged dim. They say of it what
"cover" and "disjoint" say of even tiles, whose edges rise too.
*Dims*: an induction over dims, with one dim as its base ("cover", "disjoint", "same tile") and
"dims: step" as its step. Axes are used once, so digits for one more dim can be chosen freely: "cover"
along the new dim extends a device that covers the others. Boxes meet if they meet along every dim;
the step says that then all tile numbers agree. A box depends on tile numbers alone, so equal numbers
give equal boxes; an array without dims is one element, held by all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import z3

from proofs.engine.symbols import Num, below, between, end, holds, is_tile, quotient, start
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.showing import Asked, wrong_received

n, k, c, i, e, j, q, r = z3.Ints("n k c i e j q r")
CUT = is_tile(n, k, c)
TILE = (*CUT, *below(i, k))
PAIR = (*TILE, *below(e, k))


def number(i: Num, s: Num, d: Num) -> Num:
    """The tile number i, continued by digit d of an axis of size s.

    >>> number(2, 3, 1)
    7
    """
    return i * s + d


def digit(device: int, stride: int, rest: int, size: int) -> int:
    """The digit of a device on a part of an axis, as ``layout.tiles.coordinates`` computes it.

    The obligations "digit: ..." say what the division leaves, and then its remainder.
    """
    return (device // (stride * rest)) % size


def obligations() -> Iterator[Obligation]:
    """See the module."""
    yield from _one_dim()
    yield from _edges()
    yield from _numbers()
    yield from _dims()


def _one_dim() -> Iterator[Obligation]:
    lo, hi = start(n, c, i), end(n, c, i)
    yield Obligation("tile: rounded up", (*CUT, c != -((-n) / k)), (n, k, c))
    yield Obligation("tile: ends where the next begins", (*TILE, hi != start(n, c, i + 1)))
    yield Obligation("tile: within the dim", (*TILE, z3.Not(z3.And(lo >= 0, lo <= hi, hi <= n))))
    held = z3.And(*below(q, k), holds(n, c, q, j))
    yield Obligation(
        "cover: index j lies in tile j / c",
        (*CUT, *below(j, n), q == j / c, z3.Not(held)),
    )
    yield Obligation(
        "disjoint: an index lies in one tile only",
        (*PAIR, holds(n, c, i, j), holds(n, c, e, j), i != e),
    )
    same = (start(n, c, i) == start(n, c, e), end(n, c, i) == end(n, c, e))
    yield Obligation("same tile, not empty: same number", (*PAIR, lo < hi, *same, i != e))
    yield Obligation(
        "size: no tile has more than c, tile 0 has c",
        (*TILE, z3.Or(hi - lo > c, end(n, c, 0) - start(n, c, 0) != c)),
    )
    later = start(n, c, i + 1) < end(n, c, i + 1)
    yield Obligation(
        "size: only the last that is not empty is short", (*TILE, i + 1 < k, later, hi - lo != c)
    )


def _edges() -> Iterator[Obligation]:
    """Tile i is [lo, hi), whatever the edges, if they rise from 0 to n; a later one begins at ``on``."""
    lo, hi, on, far, more = z3.Ints("lo hi on far more")
    rising = (lo >= 0, lo <= hi)
    before, here = z3.And(*below(j, lo)), z3.And(lo <= j, j < hi)
    yield Obligation("edges: base, before the first tile is nothing", (lo == 0, j >= 0, before))
    yield Obligation(
        "edges: step, an index is in a tile before or in this one, not in both",
        (*rising, *below(j, hi), z3.Not(z3.Xor(before, here))),
    )
    yield Obligation(
        "edges: step, tiles further on begin behind", (*rising, hi <= on, on <= far, hi > far)
    )
    yield Obligation(
        "edges: so an index of this tile is in none of them", (*rising, hi <= on, here, j >= on)
    )
    yield Obligation("edges: lengths add up to rising ones", (lo >= 0, more >= 0, lo + more < lo))
    even = (start(n, c, 0) == 0, start(n, c, i) <= start(n, c, i + 1), start(n, c, k) == n)
    yield Obligation("edges: those of even tiles rise from 0 to n", (*TILE, z3.Not(z3.And(*even))))


def _numbers() -> Iterator[Obligation]:
    s, d, f = z3.Ints("s d f")
    axis = (k >= 1, s >= 1, *below(d, s))
    whole = z3.And(start(n, c, i) == 0, end(n, c, i) == n)
    yield Obligation("number: base, 0 of 1 is the whole dim", (*TILE, k == 1, z3.Not(whole)))
    here = number(i, s, d)
    yield Obligation(
        "number: step, within the product",
        (*axis, *below(i, k), z3.Not(z3.And(*below(here, k * s)))),
    )
    yield Obligation(
        "number: step, other digits, other number",
        (*axis, *below(f, s), here == number(e, s, f), z3.Not(z3.And(i == e, d == f))),
    )
    found = z3.And(*below(q, k), j == number(q, s, r))
    yield Obligation(
        "number: step, every number has digits",
        (k >= 1, s >= 1, *below(j, k * s), *quotient(j, s, q, r), z3.Not(found)),
    )
    yield from _digits()


def _digits() -> Iterator[Obligation]:
    """A device number is taken apart as it was put together, and parts of axes join.

    The number is ((above size + d) rest + x) stride + low: the digits above the part, its own, the
    rest of its axis, and the axes to the right. ``factor`` is stride rest.
    """
    above, d, size, rest, x, stride, low = z3.Ints("above d size rest x stride low")
    factor = z3.Int("factor")
    part = (size >= 1, above >= 0, *below(d, size))
    right = (rest >= 1, *below(x, rest), stride >= 1, *below(low, stride))
    device = number(number(number(above, size, d), rest, x), stride, low)
    remainder = x * stride + low
    fits = z3.And(device == q * factor + remainder, *below(remainder, factor))
    yield Obligation(
        "digit: what stands right of a part is less than its stride",
        (*part, *right, factor == stride * rest, q == number(above, size, d), z3.Not(fits)),
    )
    yield Obligation(
        "digit: division by the stride leaves the number down to the part",
        (factor >= 1, q >= 0, *quotient(j, factor, q, r), j / factor != q),
    )
    last = quotient(number(above, size, d), size, q, r)
    yield Obligation(
        "digit: the last digit of that number is the part's",
        (*part, *last, z3.Not(z3.And(q == above, r == d))),
    )
    s, t, f = z3.Ints("s t f")
    parts = (s >= 1, t >= 1, *below(d, s), *below(f, t))
    joined = number(i, s * t, number(d, t, f))
    yield Obligation(
        "digit: a part of s t is a part of s followed by one of t",
        (*parts, number(number(i, s, d), t, f) != joined),
    )


def _dims() -> Iterator[Obligation]:
    """Boxes of all dims but one share an index (``meet``), and their numbers agree (``equal``)."""
    meet, equal = z3.Bools("meet equal")
    both = (holds(n, c, i, j), holds(n, c, e, j))
    yield Obligation(
        "dims: step, boxes that share an index have equal numbers along every dim",
        (*PAIR, z3.Implies(meet, equal), meet, *both, z3.Not(z3.And(equal, i == e))),
    )


# Wrong variants -----------------------------------------------------------------------------

SMALL = (*between(1, n, 12), *between(2, k, 6))


def _rounded_down() -> Obligation:
    floor = (c >= 0, c * k <= n, n < (c + 1) * k)
    return Obligation(
        "floor", (*SMALL, *floor, k < n, *below(j, n), end(n, c, k - 1) <= j), (n, k, c, j)
    )


def _show_rounded_down(v: Mapping[str, int]) -> Shown:
    held = sum(end(v["n"], v["c"], i) - start(v["n"], v["c"], i) for i in range(v["k"]))
    asked = Asked(f"i32[{v['n']}{{x}}]", f"i32[{v['n']}]", f"x={v['k']}")
    text = f"tiles of {v['c']} would leave index {v['j']} to nobody, and a gather would need"
    return wrong_received(asked, v["k"] * v["n"] - held, text)


a, b, x, y = z3.Ints("a b x y")


def _swapped_axes() -> Obligation:
    sizes = (*between(2, a, 3), *between(2, b, 3), k == a * b, *below(x, a), *below(y, b))
    major, minor = number(x, b, y), number(y, a, x)
    other = start(n, c, major) != start(n, c, minor)
    return Obligation("swapped", (*between(4, n, 12), *CUT, *sizes, other), (n, a, b, x, y))


def _show_swapped_axes(v: Mapping[str, int]) -> Shown:
    asked = Asked(f"i32[{v['n']}{{x,y}}]", f"i32[{v['n']}{{y,x}}]", f"x={v['a']},y={v['b']}")
    return wrong_received(asked, 0, "if the order of axes did not matter nothing would move")


def _empty_too() -> Obligation:
    same = z3.And(start(n, c, i) == start(n, c, e), end(n, c, i) == end(n, c, e))
    return Obligation("empty", (*SMALL, *PAIR, n >= 2, n < k, i < e, same), (n, k, i, e))


def _show_empty_too(v: Mapping[str, int]) -> Shown:
    asked = Asked(f"i32[{v['n']}{{x}}]", f"i32[{v['n']}]", f"x={v['k']}")
    text = f"if tiles {v['i']} and {v['e']} differed, none were empty and a gather needed at most"
    return wrong_received(asked, v["k"] * (v["n"] - 1), text)


THEOREM = Theorem(
    "tiles",
    "Tiles of a type cover every index; devices that differ only on unused axes hold the same box, "
    "devices that differ on a used axis share no index. Uneven tiles, tiles between any rising edges, "
    "parts of axes and any number of dims and axes included.",
    "Induction over the axes of a dim (numbers), the tiles of a ragged dim (edges) and the dims (boxes); "
    "base and step are obligations.",
    "Dims that are dealt in blocks or have segments: theorem factors. That an axis is used once is "
    "checked when a type is made, not here. Integers have no limit here; arrays of 2**63 bytes and more "
    "are refused.",
    obligations,
    (
        Twin("tile rounded down", _rounded_down, _show_rounded_down),
        Twin("axes in the other order", _swapped_axes, _show_swapped_axes),
        Twin("empty tiles differ too", _empty_too, _show_empty_too),
    ),
)
