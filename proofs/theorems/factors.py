"""Factors: digits of an index, joined factors, segments, deals and ragged cuts say who holds which index.

Statement. A dim is a sum of segments, a segment a product of factors, the digits of an index, major first.
A factor is whole, cut into even tiles, dealt in blocks counted from an offset, or ragged: cut at any
edges that rise. For all sizes and any number of segments and factors: an index lies in exactly one
segment, has there exactly one digit for every factor, and lies in exactly one tile of the segment; the
canonical form of ``layout.segments`` keeps every tile; the tile of a rank is the concatenation of its
parts of the segments, its places being one to one with its indices, and in their order::

    2*2{x}*3+4     segment    |  0   0   0   0   0   0   0   0   0   0   0   0 |  1   1   1   1
                   digits     | 000 001 002 010 011 012 100 101 102 110 111 112|  0   1   2   3
                   x=0 has    |  0   1   2   .   .   .   3   4   5   .   .   . |  6   7   8   9
                   x=1 has    |  .   .   .   0   1   2   .   .   .   3   4   5 |  6   7   8   9

Encoding. Division is its definition, j = q c + r with 0 <= r < c, with symbols for q and r: how long Z3
takes for its own division by a symbol is luck. A factor that is cut into tiles of c has digit d in tile
q if d = q c + r. Dealt in blocks of c from offset f to k tiles, d lies in block q if d + f = q c + r, and
in tile q mod k. Ragged, tile t is [edge t, edge t + 1). What joins factors and neighbours and takes
deals apart (``_times_factor``, ``_add``, ``_simplify``) is run on symbols.

What joins the obligations. *Products*: "digits: ..." speak of two factors. A product of more is one factor
and the product of the others, and "digits: in either order of joining" says that brackets do not
matter. "joined: ..." says what the program makes of factors; "tile: ..." and "deal: ..." that this has the
same tiles. Tiles and blocks are quotients or remainders, and "division: ..." says that a number has one
of each. *Sums*: an induction over segments. *Tiles*: even ones and those between any rising edges cover a
factor by theorem ``tiles``, dealt ones by "dealt: ..."; a tile of a product is one tile of each factor
("product: ..."), and ``tiles`` says which device has its number. *Places*: an induction over the ranges of a
tile, which are in order because segments are.

What Z3 does not do: it decides products of symbols only while they are few, so a division by a product is
two divisions here; and loops over tiles (``range`` of a symbol) cannot be run. Their formulas stand
here once more, and tests compare them with the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import z3

from proofs.engine.branches import claimed, symbols
from proofs.engine.symbols import Num, below, between, is_tile, least, most, quotient
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.showing import Asked, wrong_received
from proofs.theorems.tiles import number
from redist.layout.axes import SubAxis
from redist.layout.segments import Factor, _add, _simplify, _times_factor

a, b, c, d, e, f, g, h, i, j, k, m, n = z3.Ints("a b c d e f g h i j k m n")
q, r, s, t, u, v, w, x, y = z3.Ints("q r s t u v w x y")


def clip(at: Num, size: Num) -> Num:
    """An edge, moved into a dim.

    >>> [clip(at, 5) for at in (-2, 3, 9)]
    [0, 3, 5]
    """
    return least(most(at, 0), size)


def block_start(size: Num, block: Num, first: Num, number: Num) -> Num:
    """Where a block of a deal begins, in a dim whose first index has number ``first``.

    >>> [block_start(7, 3, 2, number) for number in range(4)]
    [0, 1, 4, 7]
    """
    return clip(number * block - first, size)


def place(start: Num, at: Num, index: Num) -> Num:
    """The place in a tile of an index of a range that begins at ``start``, and in the tile at ``at``."""
    return at + (index - start)


def obligations() -> Iterator[Obligation]:
    """See the module."""
    yield from _digits()
    yield from _even_tiles()
    yield from _deals()
    yield from _sums()
    yield from _blocks()
    yield from _places()
    yield from _joined()


def _digits() -> Iterator[Obligation]:
    """Index j of a product of a and b is q b + r."""
    sizes = (a >= 1, b >= 1)
    here = number(q, b, r)
    once = (*quotient(j, c, q, r), *quotient(j, c, s, t))
    yield Obligation(
        "division: a number has one quotient and one remainder",
        (c >= 1, *once, z3.Not(z3.And(q == s, r == t))),
    )
    yield Obligation(
        "digits: every index has a major and a minor one",
        (*sizes, *below(j, a * b), *quotient(j, b, q, r), z3.Not(z3.And(*below(q, a)))),
    )
    yield Obligation(
        "digits: every two of them are an index",
        (*sizes, *below(q, a), *below(r, b), z3.Not(z3.And(*below(here, a * b)))),
    )
    two = (b >= 1, *below(r, b), *below(t, b))
    yield Obligation(
        "digits: other digits, other index",
        (*two, here == number(s, b, t), z3.Not(z3.And(q == s, r == t))),
    )
    earlier = z3.Or(q < s, z3.And(q == s, r < t))
    yield Obligation(
        "digits: keep the order of indices", (*two, (here < number(s, b, t)) != earlier)
    )
    yield Obligation(
        "digits: in either order of joining",
        (c >= 1, number(number(q, b, r), c, s) != number(q, b * c, number(r, c, s))),
    )
    yield Obligation("digits: one number has one, 0", (b == 1, *quotient(j, b, q, r), r != 0))
    tiles = (k >= 1, m >= 1, *below(x, k), *below(y, m), *below(u, k), *below(v, m))
    equal = number(x, m, y) == number(u, m, v)
    yield Obligation(
        "product: a tile of it is one tile of each factor",
        (*tiles, equal != z3.And(x == u, y == v)),
    )
    yield Obligation(
        "product: and is one of all", (*tiles, z3.Not(z3.And(*below(number(x, m, y), k * m))))
    )


def _even_tiles() -> Iterator[Obligation]:
    """Digit q of a factor is in tile t of tiles of c: q = t c + s. Then r is a digit of b more."""
    inside = z3.And(
        number(number(t, c, s), b, r) == number(t, c * b, number(s, b, r)),
        *below(number(s, b, r), c * b),
    )
    digits = (b >= 1, c >= 1, *below(s, c), *below(r, b))
    yield Obligation("tile: of c, times b, is the same one of c b", (*digits, z3.Not(inside)))
    yield Obligation(
        "tile: c b is the full tile of even ones",
        (k >= 1, b >= 0, c >= 0, n == (c * k) * b, z3.Not(z3.And(*is_tile(n, k, c * b)))),
    )
    major = number(q, b, number(u, d, v)) == number(number(q, m, u), d, v)
    yield Obligation(
        "tile: single index q, then tile u of b = m d, is tile q m + u of d",
        (d >= 1, m >= 1, *below(v, d), b == m * d, z3.Not(major)),
    )
    yield Obligation(
        "tile: d is the full tile of both cuts",
        (k >= 1, m >= 1, d >= 0, n == k * (m * d), z3.Not(z3.And(*is_tile(n, k * m, d)))),
    )

    longer = z3.And((e + n) * b == e * b + n * b, (e <= q) == (e * b <= number(q, b, r)))
    yield Obligation(
        "tile: ragged, times b, has its edges b times as far",
        (b >= 1, e >= 0, n >= 0, *below(r, b), z3.Not(longer)),
    )


def _deals() -> Iterator[Obligation]:
    """Index j, dealt in blocks of c from f on, is in block e: j + f = e c + s; that is tile e mod k's."""
    dealt = (c >= 1, k >= 1, f >= 0)
    yield Obligation(
        "deal: an offset of b times as much is the offset of the larger blocks",
        (*dealt, b >= 1, number(q + f, b, r) != number(q, b, r) + f * b),
    )
    yield Obligation(
        "deal: m turns more in the offset are m k blocks",
        (*dealt, j + f == number(e, c, s), (j + f) + m * (c * k) != number(e + m * k, c, s)),
    )
    yield Obligation(
        "deal: which leave the tile as it is",
        (*dealt, e == number(g, k, x), e + m * k != number(g + m, k, x)),
    )
    digits = (c >= 1, k >= 1, *below(x, k), *below(y, c))
    here = number(number(u, k, x), c, y)
    found = (j == here, *quotient(j, c, e, s))
    yield Obligation(
        "deal: even, the block of index (u k + x) c + y is u k + x",
        (*digits, *found, z3.Not(z3.And(e == number(u, k, x), s == y))),
    )
    yield Obligation(
        "deal: even, the tile of that block is x",
        (*digits, *quotient(number(u, k, x), k, g, t), t != x),
    )
    within = (*dealt, n >= 0, *below(j, n), j + f == number(e, c, s), *below(s, c))
    yield Obligation(
        "deal: within one turn, a block is its tile",
        (*within, f + n <= c * k, z3.Not(z3.And(*below(e, k)))),
    )
    held = z3.And(block_start(n, c, f, t) <= j, j < block_start(n, c, f, t + 1))
    yield Obligation(
        "deal: within one turn, tiles are ranges between edges", (*within, held != (e == t))
    )


def _sums() -> Iterator[Obligation]:
    """Segments before this one have ``s`` indices, this one ``n``."""
    sizes = (s >= 0, n >= 0)
    before, here = z3.And(*below(j, s)), z3.And(s <= j, j < s + n)
    yield Obligation("sum: base, no segment has no index", (s == 0, j >= 0, before))
    yield Obligation(
        "sum: step, an index is in a segment before or in this one, not in both",
        (*sizes, *below(j, s + n), z3.Not(z3.Xor(before, here))),
    )
    yield Obligation(
        "sum: an index less what is before is one of the segment",
        (*sizes, here != z3.And(*below(j - s, n))),
    )
    yield Obligation(
        "sum: step, segments further on begin behind",
        (*sizes, t >= 0, m >= 0, s + n <= t, s + n > t + m),
    )
    yield Obligation(
        "sum: in brackets, what is before adds up", (*sizes, (j - s) - t != j - (s + t))
    )
    again = (b >= 1, a >= 0, *quotient(j - a * b, b, q, r))
    yield Obligation(
        "sum: after a times b, the next b begins with digit a",
        (*again, z3.Not(z3.And(*quotient(j, b, a + q, r)))),
    )


def _blocks() -> Iterator[Obligation]:
    """A deal lists blocks from f / c, rounded down, to (f + n) / c, rounded up: g to w."""
    dealt = (c >= 1, f >= 0, n >= 0)
    index = (*dealt, *below(j, n))

    def held(block: Num) -> Any:
        return z3.And(block_start(n, c, f, block) <= j, j < block_start(n, c, f, block + 1))

    yield Obligation(
        "dealt: index j lies in block (j + f) / c",
        (*index, *quotient(j + f, c, e, s), z3.Not(held(e))),
    )
    yield Obligation("dealt: and in no other", (*index, held(e), held(t), e != t))
    listed = (*quotient(f, c, g, h), (w - 1) * c < f + n, f + n <= w * c)
    yield Obligation(
        "dealt: which is listed",
        (*index, *listed, *quotient(j + f, c, e, s), z3.Not(z3.And(g <= e, e < w))),
    )
    ends = z3.And(block_start(n, c, f, g) == 0, block_start(n, c, f, w) == n)
    yield Obligation(
        "dealt: the blocks listed begin at 0 and end at n", (*dealt, *listed, z3.Not(ends))
    )
    yield Obligation(
        "dealt: blocks rise",
        (*dealt, block_start(n, c, f, e) > block_start(n, c, f, e + 1)),
    )


def _places() -> Iterator[Obligation]:
    """A tile has ranges [lo, hi), in order, which lie at ``at`` to ``end`` of it; the next is [lo2, hi2)."""
    lo, hi, at, end, lo2, hi2, at2, end2 = z3.Ints("lo hi at end lo2 hi2 at2 end2")
    one = (lo >= 0, lo < hi, at >= 0, end == at + (hi - lo))
    two = (*one, lo2 >= 0, lo2 < hi2, at2 >= 0, end2 == at2 + (hi2 - lo2))
    here, there = (lo <= i, i < hi), (lo2 <= j, j < hi2)
    mine, other = place(lo, at, i), place(lo2, at2, j)
    yield Obligation(
        "places: a range fills its places",
        (*one, z3.And(*here) != z3.And(at <= mine, mine < end)),
    )
    yield Obligation(
        "places: in a range they keep the order and are one to one",
        (*one, *here, lo <= j, j < hi, (i < j) != (mine < place(lo, at, j))),
    )
    yield Obligation(
        "places: of a later range they are later",
        (*two, hi <= lo2, end <= at2, *here, *there, mine >= other),
    )
    yield Obligation("places: step, ranges further on end later", (*two, end <= at2, end > end2))
    yield Obligation(
        "places: step, a place is of a range before or of this one, not of both",
        (*one, *below(m, end), z3.Not(z3.Xor(m < at, z3.And(at <= m, m < end)))),
    )
    yield Obligation(
        "places: ranges that touch are one",
        (*two, hi == lo2, end == at2, *there, other != place(lo, at, j)),
    )
    yield Obligation(
        "places: a part of a segment lies before those of later segments",
        (*two, s >= 0, n >= 0, s + n <= t, s <= lo, hi <= s + n, t <= lo2, hi > lo2),
    )
    kept = ((q < s) == (u < v), (q == s) == (u == v), (r < t) == (x < y), (r == t) == (x == y))
    held = (b >= 1, w >= 1, *below(r, b), *below(t, b), *below(x, w), *below(y, w))
    order = number(q, b, r) < number(s, b, t)
    yield Obligation(
        "places: of a product are those of its digits, as digits",
        (*held, *kept, order != (number(u, w, x) < number(v, w, y))),
    )


# What the program makes of two factors


def _joined() -> Iterator[Obligation]:
    size, other, n_tiles, more, block, first = symbols("size other n_tiles more block first")
    axis, second = SubAxis("x", 1, n_tiles), SubAxis("y", 1, more)
    given = (size >= 0, other >= 1, n_tiles >= 2, more >= 2, block >= 1, first >= 0)
    by, product = (axis,), size * other

    def whole() -> Any:
        out = _times_factor(Factor(size), Factor(other))
        assert out is not None
        return [out.size == product, out.is_whole]

    def even() -> Any:
        out = _times_factor(Factor(size, by), Factor(other))
        if out is None:
            return size % n_tiles != 0
        same = [out.size == product, out.is_plain, out.axes == by]
        return [*same, size == (size // n_tiles) * n_tiles]

    def chain() -> Any:
        out = _times_factor(Factor(size, by), Factor(other, (second,)))
        if out is None:
            return True if size != n_tiles else other % more != 0
        same = [out.size == product, out.is_plain, out.axes == (axis, second)]
        return [*same, size == n_tiles, other == (other // more) * more]

    def dealt() -> Any:
        out = _times_factor(Factor(size, by, block, first), Factor(other))
        assert out is not None
        same = [out.size == product, out.axes == by, not out.lengths]
        return [*same, out.block == block * other, out.first == first * other]

    def ragged() -> Any:
        out = _times_factor(Factor(size, by, lengths=(block, first)), Factor(other))
        assert out is not None
        lengths = [out.lengths[0] == block * other, out.lengths[1] == first * other]
        return [*lengths, out.size == product, out.axes == by, not out.block]

    def added() -> Any:
        out = _add((Factor(size),), (Factor(other),))
        assert out is not None
        return [len(out) == 1, out[0].is_whole, out[0].size == size + other]

    yield claimed("joined: whole times whole is whole", given, whole)
    yield claimed("joined: evenly cut times whole, if the tiles are even", given, even)
    yield claimed("joined: single indices times evenly cut, and only these", given, chain)
    yield claimed("joined: dealt times whole is dealt in larger blocks", given, dealt)
    two = (*given, n_tiles == 2, block + first == size)
    yield claimed("joined: ragged times whole has longer tiles", two, ragged)
    yield claimed("joined: whole neighbours are their sum", given, added)
    turns = _turns(size, by, block, first)
    yield claimed("joined: even deals, and offsets without whole turns", given, turns)


def _turns(size: Any, by: Any, block: Any, first: Any) -> Callable[[], Any]:
    """That a deal becomes three factors if it comes out even, or else loses whole turns of its offset."""
    whole_turn = block * by[0].size

    def claim() -> Any:
        try:
            out = _simplify(Factor(size, by, block, first))
        except TypeError:  # lists the tiles of a deal within one turn: see "deal: within one turn"
            return first % whole_turn + size <= whole_turn
        if len(out) == 1:
            kept = [out[0].size == size, out[0].axes == by, out[0].block == block]
            return [*kept, out[0].first == first % whole_turn, not out[0].lengths]
        turns, dealt, each = out
        whole = [turns.is_whole, each.is_whole, dealt.is_plain, dealt.axes == by]
        sizes = [dealt.size == by[0].size, each.size == block]
        return [*whole, *sizes, turns.size * whole_turn == size, first % whole_turn == 0]

    return claim


# Wrong variants -----------------------------------------------------------------------------

DIGITS = (*quotient(j, b, q, r), *below(j, a * b))


def _moves(source: str, target: str, devices: int, variant: str) -> Shown:
    """If both texts had the same tiles, as a variant says, nothing would move."""
    asked = Asked(f"i32[{source}]", f"i32[{target}]", f"x={devices}")
    return wrong_received(asked, 0, f"{variant}: {source} and {target} would be one layout")


def _swapped() -> Obligation:
    sizes = (*between(2, a, 4), *between(2, b, 4), *quotient(j, a, s, t))
    return Obligation("swapped", (*sizes, *DIGITS, r != s), (a, b, j))


def _show_swapped(values: Mapping[str, int]) -> Shown:
    major, minor = values["a"], values["b"]
    text = f"the minor digit of index {values['j']} read as the major one"
    return _moves(f"{major}*{minor}{{x}}", f"{minor}{{x}}*{major}", minor, text)


def _uneven() -> Obligation:
    sizes = (*between(2, a, 7), *between(2, b, 4), *between(2, k, 3))
    cuts = (*is_tile(a, k, c), *is_tile(a * b, k, d))
    tiles = (*quotient(q, c, s, t), *quotient(j, d, u, v))
    return Obligation("uneven", (*sizes, *cuts, *DIGITS, *tiles, s != u), (a, b, k, j))


def _show_uneven(values: Mapping[str, int]) -> Shown:
    major, minor = values["a"], values["b"]
    text = f"joined across an uneven cut, index {values['j']} in another tile"
    return _moves(f"{major}{{x}}*{minor}", f"{major * minor}{{x}}", values["k"], text)


DEALT = (*between(2, n, 12), *between(1, c, 3), *between(2, k, 3), *below(j, n))


def _no_offset() -> Obligation:
    blocks = (*between(1, f, 5), *quotient(j + f, c, e, s), *quotient(j, c, g, t))
    tiles = (*quotient(e, k, q, x), *quotient(g, k, u, y))
    return Obligation("no offset", (*DEALT, *blocks, *tiles, x != y), (n, c, k, f, j))


def _show_no_offset(values: Mapping[str, int]) -> Shown:
    n, c, f = values["n"], values["c"], values["f"]
    text = f"index {values['j']} dealt without the offset {f}"
    return _moves(f"{n}{{x/{c}@{f}}}", f"{n}{{x/{c}}}", values["k"], text)


def _swapped_deal() -> Obligation:
    even = (*between(2, a, 3), n == (a * k) * c)
    right = (*quotient(j, c, e, s), *quotient(e, k, q, x))
    wrong = (*quotient(j, a, g, t), *quotient(g, k, u, y))
    return Obligation("swapped deal", (*DEALT, *even, *right, *wrong, x != y), (n, a, c, k, j))


def _show_swapped_deal(values: Mapping[str, int]) -> Shown:
    n, turns, c, k = values["n"], values["a"], values["c"], values["k"]
    text = f"{turns} turns of blocks of {c} read as {c} turns of blocks of {turns}"
    return _moves(f"{n}{{x/{c}}}", f"{c}*{k}{{x}}*{turns}", k, text)


def _lengths_as_edges() -> Obligation:
    sizes = (*between(1, a, 4), *between(1, b, 6), a < b, *between(1, c, 4), n == a + b + c)
    right = z3.If(j < a, 0, z3.If(j < a + b, 1, 2))
    wrong = z3.If(j < a, 0, z3.If(j < b, 1, 2))
    return Obligation("lengths", (*sizes, *below(j, n), right != wrong), (a, b, c, j))


def _show_lengths_as_edges(values: Mapping[str, int]) -> Shown:
    lengths = values["a"], values["b"], values["c"]
    n = sum(lengths)
    wrong = lengths[0], lengths[1] - lengths[0], n - lengths[1]
    text = f"lengths read as edges, index {values['j']} in another tile"
    right, read = (f"{n}{{x={';'.join(map(str, each))}}}" for each in (lengths, wrong))
    return _moves(right, read, 3, text)


THEOREM = Theorem(
    "factors",
    "Dims that are sums of products: an index lies in one segment, has one digit for every factor, keeping "
    "C order, and lies in one tile of the segment, be it cut evenly, dealt in blocks from any offset or cut "
    "at any rising edges. The canonical form keeps every tile: joined factors and neighbours, even deals, "
    "offsets. A rank's tile is its parts of the segments one after another, places one to one and in order.",
    "Inductions over the factors of a product, the segments of a sum, the tiles of a cut and the ranges of a "
    "tile; base and step are obligations. That a device has one tile of each segment is the theorem tiles.",
    "That two spellings of one layout always become one: only that the canonical form keeps tiles. Loops of "
    "NumPy over ranges and over the tiles of a deal within one turn: their formulas are compared by tests. "
    "Steps, pieces and memory between types with segments: each plan is judged by itself. That parts of "
    "axes come from one chain is checked when a type is made.",
    obligations,
    (
        Twin("the minor digit read as the major one", _swapped, _show_swapped),
        Twin("joined across an uneven cut", _uneven, _show_uneven),
        Twin("a deal counted without its offset", _no_offset, _show_no_offset),
        Twin("an even deal with block and count swapped", _swapped_deal, _show_swapped_deal),
        Twin("lengths read as edges", _lengths_as_edges, _show_lengths_as_edges),
    ),
)
