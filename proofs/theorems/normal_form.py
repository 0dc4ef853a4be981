"""Normal form: between even types on one mesh named collectives always do it, below the larger end.

Statement. Let every axis be split where source or target split it, then into primes; a factor is such a
part. For even types *s* and *t* on one mesh the construction of ``synth.normal_form`` ends with slice,
all_permute, all_to_all, all_permute, all_gather, any of which may be missing. Tiles fall by the slices to
N / lcm(tiles of s, tiles of t), stay that large, and rise by the gathers: none is larger than the larger end.
With more slices than needed, every limit of at least s + t + m0 (kept) or max(s, t) + m0 (donated) is met,
m0 being the smallest even tile of the mesh, and no plan of several steps does with less.

Encoding. A type is, up to permutes, a table of counts: e of prime p and dim d says how many factors of
size p cut the dim; v is how often p divides its size. Counts, sizes of dims, tiles, primes and digits are
symbols. That p is prime is used once, by Bezout: u p + w a = 1 wherever p does not divide a.

obligations         | lemma
room                | a dim that both ends cut evenly has room for what one of them has more of
counts              | if the target has more factors of p, some dim lacks one; if fewer, some has one too many
slice, gather, move | each step brings counts nearer to the target's, and stays between the two ends
sizes               | slices divide the tile, gathers multiply it, moves and permutes keep it
order               | without a circle, a dim has been given nothing when it gives; a block of neighbours is
                    | one axis, and three moves of blocks change what two dims have for each other
limits              | live bytes of every step, by ``plan.memory.hop_live_bytes`` itself
bytes               | what devices lack, against what the steps receive
uneven              | a dim whose padding is less than a cut has the tiles of the padded dim

What joins the obligations. *Primes*: rows of the table do not interfere, because powers of different primes
are coprime; so one prime after another. *Within a row*: slices until the sums agree, by induction over the
difference; then moves, each of which brings the counts nearer by two; then gathers. *Names*: all_permute
joins types with equal counts, whatever cuts the dims (theorem ``rules``). *Circles*: two dims at a time, over
all pairs. Tests run the construction on random types and replay every plan through the typing rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proofs.engine.branches import claimed, symbols
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.showing import Asked, refused_step, wrong_received
from proofs.evidence.weighing import Wanted, wrong_peak
from proofs.theorems.memory import SIZES, middle, source, target
from proofs.theorems.rewrites import live
from redist.layout.axes import SubAxis
from redist.plan.steps import AllToAll, Slice
from redist.text.units import ceil_div

p, q, a, b, c, d, u, w, n, k, g, m, r = symbols("p q a b c d u w n k g m r")
e, f, v, have, want, mesh, both = symbols("e f v have want mesh both")
PRIME = (p >= 2, a >= 1, c >= 1)


def obligations() -> Iterator[Obligation]:
    """See the module."""
    yield from _room()
    yield from _counts()
    yield from _steps()
    yield from _sizes()
    yield from _order()
    yield from _limits()
    yield from _bytes()
    yield claimed(
        "uneven: with a padding below the cut, tiles are those of the padded dim",
        (k >= 1, g >= 1, c >= 1, n >= 1, n <= k * g * c, k * g * c - n < k),
        lambda: ceil_div(n, k) == g * c,
    )


def _room() -> Iterator[Obligation]:
    """The dim has n = k c = K d indices, k = q a and K = q p b tiles: q is what both have of powers of p."""
    yield claimed("room: what both have cancels", (q >= 1, q * a == q * b), lambda: a == b)
    yield claimed(
        "room: grouped by what both have",
        (q >= 1, a >= 1, b >= 1, c >= 1, d >= 1),
        lambda: [(q * a) * c == q * (a * c), (q * p * b) * d == q * (p * (b * d))],
    )
    yield claimed(
        "room: a prime that divides a c and not a divides c (Euclid)",
        (*PRIME, u * p + w * a == 1, a * c == p * b),
        lambda: c == p * (u * c + w * b),
    )
    yield claimed(
        "room: so the dim can be cut by one factor more",
        (k >= 1, p >= 2, d >= 1, c == p * d, n == k * c),
        lambda: n == (k * p) * d,
    )
    yield claimed(
        "room: and is then even again, with nothing left over",
        (k >= 1, d >= 1, n == d * k, n == q * k + r, r >= 0, r < k),
        lambda: [q == d, r == 0],
    )
    yield claimed(
        "room: which is what division leaves over",
        (k >= 1,),
        lambda: [n == (n // k) * k + n % k, n % k >= 0, n % k < k],
    )
    yield claimed(
        "room: and tiles of d indices", (k >= 1, d >= 1, n == k * d), lambda: ceil_div(n, k) == d
    )


def _counts() -> Iterator[Obligation]:
    yield claimed("counts: no dims, nothing lacks", (have == 0, want == 0), lambda: have >= want)
    yield claimed(
        "counts: a dim more that does not lack",
        (have >= want, e >= f),
        lambda: have + e >= want + f,
    )
    yield claimed(
        "counts: a dim more that has not too many",
        (have <= want, e <= f),
        lambda: have + e <= want + f,
    )
    yield claimed(
        "counts: a factor that the target uses is idle in the source",
        (both >= 0, both <= have, have < want, want <= mesh),
        lambda: [want - both >= 1, mesh - have >= 1],
    )


def _steps() -> Iterator[Obligation]:
    i, j, wi, wj = symbols("i j wi wj")
    yield claimed(
        "slice: on a dim that lacks one",
        (e >= 0, e < f, f <= v),
        lambda: [e + 1 <= v, e + 1 <= f, f - (e + 1) == (f - e) - 1],
    )
    yield claimed(
        "gather: off a dim that has one too many",
        (f >= 0, e > f, e <= v),
        lambda: [e - 1 >= f, e - 1 <= v, (e - 1) - f == (e - f) - 1],
    )
    yield claimed(
        "move: from a dim that has too many to one that has too few, nearer by two",
        (i > wi, wi >= 0, j >= 0, j < wj),
        lambda: [i - 1 >= wi, j + 1 <= wj, (i - 1) + (j + 1) == i + j],
        lambda: ((i - 1) - wi) + (wj - (j + 1)) == (i - wi) + (wj - j) - 2,
    )
    yield claimed(
        "move: with equal sums, who has too many goes with who has too few",
        (have == want, e > f),
        lambda: have - e < want - f,
    )
    yield claimed(
        "blocks: what waits at its destination keeps a giver and a taker between the ends",
        (u >= 0, e >= 0, f >= 0),
        lambda: [f <= e - u, e - u <= e] if u <= e - f else True,
        lambda: [e <= e + u, e + u <= f] if u <= f - e else True,
    )


def _sizes() -> Iterator[Obligation]:
    yield claimed(
        "sizes: before slices of g in all and after gathers of k in all the tile is no smaller",
        (m >= 0, g >= 1, k >= 1),
        lambda: [m <= m * g, m <= m * k],
    )
    yield claimed(
        "sizes: one slice more, one gather more",
        (m >= 0, g >= 1, p >= 2),
        lambda: [m * g <= (m * g) * p, ceil_div((m * g) * p, p) == m * g],
    )
    yield claimed(
        "sizes: a move keeps the tile", (a >= 1, b >= 1, p >= 2), lambda: (a * p) * b == a * (b * p)
    )
    yield claimed(
        "sizes: a permute keeps the cuts", (k >= 1, a >= 1, b >= 1), lambda: k * a * b == k * b * a
    )


def _order() -> Iterator[Obligation]:
    i, j, o = symbols("i j o")
    yield claimed(
        "order: who gives before those that give to it gives nothing that it was given",
        (i < j, j < o),
        lambda: o != i,
    )
    digits = (u >= 1, w >= 1, d >= 0, d < u, e >= 0, e < w, i >= 0, j >= 0)
    yield claimed(
        "order: a block of neighbours is one axis",
        digits,
        lambda: [
            e * u + d >= 0,
            e * u + d < w * u,
            (i * w + e) * u + d == i * (w * u) + (e * u + d),
        ],
    )
    there = (j * w + e) * u + d
    yield claimed(
        "order: U to the right, W U to the left, U to the right",
        digits,
        lambda: [there // (w * u) == j, there % (w * u) == e * u + d],
        lambda: [(i * (w * u) + (e * u + d)) // u == i * w + e],
        lambda: (i * (w * u) + (e * u + d)) % u == d,
    )


def _limits() -> Iterator[Obligation]:
    least = symbols("least")[0]
    several = (*SIZES, least >= 0, middle >= least)
    yield claimed(
        "limits: several steps, kept, hold the source, a middle and the target",
        several,
        lambda: live(middle, target, False, False) >= source + target + least,
    )
    yield claimed(
        "limits: several steps, donated, hold an end and a middle, of both ends",
        several,
        lambda: live(source, middle, True, True) >= source + least,
        lambda: live(middle, target, False, True) >= target + least,
    )
    ends = (*SIZES, middle == least, least <= source, least <= target)
    yield claimed(
        "limits: cut as far as can be, the steps hold no more",
        ends,
        lambda: [
            live(source, middle, True, False) <= source + target + least,
            live(middle, middle, False, False) <= source + target + least,
            live(middle, target, False, False) <= source + target + least,
        ],
        lambda: [
            live(source, middle, True, True) <= max(source, target) + least,
            live(middle, middle, False, True) <= max(source, target) + least,
            live(middle, target, False, True) <= max(source, target) + least,
        ],
    )


def _bytes() -> Iterator[Obligation]:
    yield claimed(
        "bytes: of p q pairs of parts at most p + q - 1 overlap, so a third lacks at least",
        (p >= 2, q >= 3),
        lambda: 3 * (p * q - (p + q - 1)) >= p * q,
    )
    yield claimed(
        "bytes: with one prime half lacks at least", (p >= 2,), lambda: 2 * (p * p - p) >= p * p
    )
    yield claimed(
        "bytes: a gather and c flat steps receive at most c targets",
        (m >= 0, n >= m, c >= 1),
        lambda: n - m + c * m <= c * n,
    )


# Wrong variants -----------------------------------------------------------------------------


def _axis(name: str, size: int) -> SubAxis:
    return SubAxis(name, 1, size)


def _whole_axes() -> Obligation:
    small = (p >= 2, p <= 6, a >= 2, a <= 6, c >= 2, c <= 6, b >= 1, a * c == p * b)

    def divides() -> Any:
        return True if a % p == 0 else c % p == 0

    return claimed("whole", small, divides, shown=(p, a, c))


def _show_whole_axes(values: Mapping[str, int]) -> Shown:
    size = values["a"] * values["c"]
    where = f"x={values['p']},y={values['a']}"
    asked = Asked(f"i32[{size}{{y}}]", f"i32[{size}{{y,x}}]", where)
    text = f"{values['p']} divides the dim, so it could be cut by it once more"
    return refused_step("normal-whole", asked, Slice(((_axis("x", values["p"]), 0),)), text)


def _gather_first() -> Obligation:
    small = (a == 2, b >= 2, b <= 3, n == a * b)
    return claimed("gather", small, lambda: n <= max(n // a, n // b), shown=(n, a, b))


def _show_gather_first(values: Mapping[str, int]) -> Shown:
    where = f"a={values['a']},b={values['b']}"
    size = values["n"]
    plan = Wanted(f"i32[{size}{{a}}]", f"i32[{size}{{b}}]", where).plan()
    assert [step.op for step in plan.steps] == ["all_gather", "slice"]
    ends = plan.source.tile_bytes, plan.target.tile_bytes
    said = ends[0] + 2 * max(ends)
    return wrong_peak("normal-gather", plan, said, "gathered first, no tile above the larger end")


def _slice_all() -> Obligation:
    small = (n >= 2, n <= 6, a >= 2, b >= 2, c >= 1, d >= 1, n == a * c, n == b * d)
    return claimed("slice", small, lambda: n % (a * b) == 0, shown=(n, a, b))


def _show_slice_all(values: Mapping[str, int]) -> Shown:
    size, where = values["n"], f"a={values['a']},b={values['b']}"
    asked = Asked(f"i32[{size}{{a}}]", f"i32[{size}{{a,b}}]", where)
    action = Slice(((_axis("b", values["b"]), 0),))
    return refused_step("normal-slice", asked, action, "every axis of the target sliced first")


def _any_order() -> Obligation:
    i, j, o = symbols("i j o")
    small = (i >= 0, i <= 1, j >= 0, j <= 1, o >= 0, o <= 1, i != j, j != o)
    return claimed("order", small, lambda: o != i, shown=(i, j, o))


def _show_any_order(values: Mapping[str, int]) -> Shown:
    asked = Asked("i32[6{a}, 6{b}]", "i32[6{b}, 6{a}]", "a=2,b=3")
    i, j, o = values["i"], values["j"], values["o"]
    axes = {0: _axis("a", 2), 1: _axis("b", 3)}
    action = AllToAll((((axes[i],), i, j), ((axes[j],), j, o)))
    return refused_step("normal-order", asked, action, "a dim gives after it has been given")


def _no_middle() -> Obligation:
    small = (source >= 1, source <= 9, target >= 1, target <= 9, middle >= 1)
    within = (middle <= source, middle <= target)

    def enough() -> Any:
        return live(middle, target, False, False) <= source + max(source, target)

    return claimed("middle", (*small, *within), enough, shown=(source, target, middle))


def _show_no_middle(values: Mapping[str, int]) -> Shown:
    del values  # on a real array: from 3 tiles to 2 by way of 6
    plan = Wanted("i32[6{b}]", "i32[6{a}]", "a=2,b=3", strategy="collectives").plan()
    assert len(plan.steps) > 1
    ends = plan.source.tile_bytes, plan.target.tile_bytes
    said = ends[0] + max(ends) + max(step.staging_bytes for step in plan.steps)
    return wrong_peak("normal-middle", plan, said, "several steps in source + the larger end")


def _large_padding() -> Obligation:
    small = (k >= 2, k <= 4, g >= 2, g <= 3, c == 1, n >= 1, n <= k * g * c, k * g * c - n <= k)
    return claimed("padding", small, lambda: ceil_div(n, k) == g * c, shown=(n, k, g))


def _show_large_padding(values: Mapping[str, int]) -> Shown:
    size, where = values["n"], f"x={values['k']},y={values['g']}"
    asked = Asked(f"i32[{size}{{x}}]", f"i32[{size}{{x,y}}]", where)
    return wrong_received(asked, 0, "a padding as large as the cut, and tiles nest")


THEOREM = Theorem(
    "normal_form",
    "Between even types on one mesh, sub-axes included, slice, all_permute, all_to_all, all_permute, "
    "all_gather always lead from one to the other, each at most once; tiles on the way are N / lcm of the "
    "numbers of tiles, so none is larger than the smaller end. The least limit of several steps is source + "
    "target + the smallest even tile (kept) or the larger end + that tile (donated).",
    "One prime after another; slices, moves and gathers by induction over differences of counts.",
    "How few bytes: choices are for bytes, and only the bound of 9 times the least is claimed, where "
    "sub-axes do not disagree. Uneven dims beyond the padding rule, and two meshes, where larger tiles may "
    "be needed. Reductions, which are done on the smallest tile. Messages and time. That a table of counts "
    "stands for all types that permutes join is said in words.",
    obligations,
    (
        Twin("axes not split into primes", _whole_axes, _show_whole_axes),
        Twin("gather before slicing", _gather_first, _show_gather_first),
        Twin("every axis of the target can be sliced first", _slice_all, _show_slice_all),
        Twin("moves in any order", _any_order, _show_any_order),
        Twin("several steps without the middle tile", _no_middle, _show_no_middle),
        Twin("a padding as large as the cut", _large_padding, _show_large_padding),
    ),
)
