"""Typing rules: every step keeps the global array.

Statement. A state of a type stands for a global array A if every device has at offset
j - start of its tile, for every index j of its tile, the value A[j]. With axes that carry a pending
reduction it has the value of its partial array there, and A is the combination of the partial
arrays. For every rule of ``plan.rules`` and all sizes: if a state stands for A under the type
before the step, what the step leaves stands for A under the type after it. The step is taken as it
runs: each device puts together its new tile from its own and from tiles of devices in its group.

Encoding. ``V(i, offset)`` is what the devices of tile i have; values are of an unknown sort. A dim
of n is cut into k tiles of c (coarse) and k g tiles of f (fine); tile i g + d of the fine cut is
that of digit d on an axis of size g at the minor end. ``nests_in`` is the rule's test: the starts of
coarse tiles are starts of fine ones. A reduction is an unknown operation; the laws it needs
(associative, commutative, identity) are assumed for the very values at hand.

What joins the obligations. A box is a product of tiles, so an obligation for one dim holds for every
dim that a rule touches, and the dims it leaves alone agree; several axes of one dim are one axis of
the product of their sizes (theorem tiles). By rule:
slice: "slice". all_gather: "gather"; the sender it names differs on the gathered axes only.
all_to_all: "all_to_all" for one move; a fused one is a composition: every move stays inside the
group, so for each index the group has a device that held it at first, and any holder has A[j].
all_permute: "permute". exchange: "exchange"; a source mesh of its own changes nothing, because
the holder it names is found by digits of the source alone.
Pending reductions: partial values are the rows of one dim more ("row"), cut into single rows by
the pending axes, so that a reduce_scatter is an exchange that needs all rows and then combines them,
and rows of axes that stay pending never mix. "combine: ..." are base and steps of an induction over
partial values in the order of the devices, and inside it over groups: combining within groups and
then the groups (reduce_scatter, all_reduce of some axes) gives what combining all gives. "pending:
..." are an induction over the coordinates of an axis that becomes pending: coordinate 0 has the
values and the others identities (idle axis; exchange that adds pending axes), or each has the values of
its own fine tile and identities around them (minor axis of a dim).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import z3

from proofs.engine.symbols import Fact, Num, below, between, end, holds, is_tile, quotient, start
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.showing import Asked, refused_step, wrong_step
from redist.layout.axes import SubAxis
from redist.plan.steps import AllGather, AllToAll, Slice

n, k, g, c, f, i, j, d, q, r, m = z3.Ints("n k g c f i j d q r m")
g2, DIGIT_1, DIGIT_2 = z3.Ints("g2 d1 d2")
IN_BLOCK = (g >= 1, g2 >= 1, i >= 0, *below(DIGIT_1, g), *below(DIGIT_2, g2))
"""Digits of two neighbours behind tile i of their dim."""
VALUE = z3.DeclareSort("Value")
A = z3.Function("A", z3.IntSort(), VALUE)
V = z3.Function("V", z3.IntSort(), z3.IntSort(), VALUE)


def nested_at(n: Num, c: Num, f: Num, g: Num, i: Num) -> Fact:
    """Coarse tile i starts where fine tile i g starts: the test of ``layout.cuts.nests_in``.

    >>> [nested_at(10, 5, 3, 2, i) for i in range(2)], [nested_at(12, 6, 3, 2, i) for i in range(2)]
    ([True, False], [True, True])
    """
    return start(n, c, i) == start(n, f, i * g)


def stands_for(n: Num, c: Num, i: Num, j: Num) -> Fact:
    """The devices of tile i have A[j] at the offset of j, if j is theirs."""
    return z3.Implies(holds(n, c, i, j), V(i, j - start(n, c, i)) == A(j))


COARSE = (*is_tile(n, k, c), *below(i, k))
FINE = (g >= 1, *is_tile(n, k * g, f))
NESTED = (
    *COARSE,
    *FINE,
    nested_at(n, c, f, g, i),
    z3.Implies(i + 1 < k, nested_at(n, c, f, g, i + 1)),
)
IN_ORDER = (d * f >= 0, d * f + f <= g * f)
"""Fine tile d of a group starts with the group or later and ends with it or before."""


def obligations() -> Iterator[Obligation]:
    """See the module."""
    yield from _nesting()
    yield from _moves()
    yield from _combining()
    yield from _becoming_pending()


def _nesting() -> Iterator[Obligation]:
    """Where ``nests_in`` answers at once, the starts agree."""
    yield Obligation(
        "nested: one coarse tile", (*COARSE, *FINE, k == 1, z3.Not(nested_at(n, c, f, g, i)))
    )
    even = (*COARSE, *FINE, m >= 0, n == m * (k * g))
    yield Obligation("nested: even, fine tiles have m", (*even, f != m))
    yield Obligation("nested: even, coarse tiles have m g", (*even, c != m * g))
    yield Obligation(
        "nested: even, the starts agree",
        (m >= 0, g >= 1, i >= 0, f == m, c == m * g, z3.Not(nested_at(n, c, f, g, i))),
    )
    yield Obligation(
        "nested: fine tiles of a group stand in order",
        (g >= 1, f >= 0, *below(d, g), z3.Not(z3.And(*IN_ORDER))),
    )
    last = (*COARSE, *FINE, i == k - 1)
    meet = z3.And(end(n, c, i) == n, start(n, f, (i + 1) * g) == n)
    yield Obligation("nested: both cuts end with the dim", (*last, z3.Not(meet)))


def _moves() -> Iterator[Obligation]:
    index = (*is_tile(n, k, c), *below(j, n))
    fine = (*below(d, g), holds(n, f, i * g + d, j))
    here = V(i, j - start(n, c, i)) == A(j)
    yield Obligation(
        "slice: a fine tile is cut out of the coarse one",
        (*NESTED, *fine, *IN_ORDER, stands_for(n, c, i, j), z3.Not(here)),
    )
    sender = z3.And(i * g <= q, q < (i + 1) * g, holds(n, f, q, j))
    right = V(q, j - start(n, f, q)) == A(j)
    needed = (holds(n, c, i, j), *quotient(j, f, q, r))
    yield Obligation(
        "gather: index j of a coarse tile comes from digit j / f - i g of the group",
        (*NESTED, *needed, stands_for(n, f, q, j), z3.Not(z3.And(sender, right))),
    )
    yield from _all_to_all()
    k2 = z3.Int("k2")
    alike = (*is_tile(n, k, c), *is_tile(n, k2, c), *below(i, k2), holds(n, c, i, j))
    yield Obligation(
        "permute: with equal tiles, tile i of the target is tile i of the source",
        (*alike, stands_for(n, c, i, j), z3.Not(z3.And(i < k, here))),
    )
    found = z3.And(*below(q, k), V(q, j - start(n, c, q)) == A(j))
    yield Obligation(
        "exchange: index j of any box comes from tile j / c of the source",
        (*index, q == j / c, stands_for(n, c, q, j), z3.Not(found)),
    )
    row = z3.And(c == 1, holds(n, c, i, j) == (j == i))
    yield Obligation(
        "row: a dim of n cut into n has single rows", (*COARSE, n == k, *below(j, n), z3.Not(row))
    )


def _all_to_all() -> Iterator[Obligation]:
    """One move from dim 1 (coarse after) to dim 2 (fine after); the sender has digit e.

    What "gather" says of dim 1 and "slice" of dim 2 stands among the assumptions.
    """
    n2, c2, f2, i2, j2, e = z3.Ints("n2 c2 f2 i2 j2 e")
    array = z3.Function("array", z3.IntSort(), z3.IntSort(), VALUE)
    tile = z3.Function("tile", *[z3.IntSort()] * 4, VALUE)
    gather = z3.Implies(holds(n, c, i, j), z3.And(*below(e, g), holds(n, f, i * g + e, j)))
    slicing = z3.Implies(holds(n2, f2, i2 * g + d, j2), holds(n2, c2, i2, j2))
    needed = (holds(n, c, i, j), *below(d, g), holds(n2, f2, i2 * g + d, j2))
    held = z3.And(holds(n, f, i * g + e, j), holds(n2, c2, i2, j2))
    value = tile(i * g + e, i2, j - start(n, f, i * g + e), j2 - start(n2, c2, i2))
    stands = z3.Implies(held, value == array(j, j2))
    right = z3.And(*below(e, g), value == array(j, j2))
    yield Obligation(
        "all_to_all: element (j, j2) comes from a device that differs on the moved axis only",
        (gather, slicing, *needed, stands, z3.Not(right)),
    )
    one = DIGIT_1 * g2 + DIGIT_2
    yield Obligation(
        "all_to_all: neighbours that move as a block are one axis of the product of their sizes",
        (
            *IN_BLOCK,
            z3.Not(
                z3.And(*below(one, g * g2), (i * g + DIGIT_1) * g2 + DIGIT_2 == i * (g * g2) + one)
            ),
        ),
    )


# Reductions ---------------------------------------------------------------------------------

PLUS = z3.Function("plus", VALUE, VALUE, VALUE)
ZERO = z3.Const("zero", VALUE)


def associative(a: Any, b: Any, c: Any) -> Fact:
    """The law for three values."""
    return PLUS(PLUS(a, b), c) == PLUS(a, PLUS(b, c))


def _combining() -> Iterator[Obligation]:
    """Fold of groups F_0, F_1, ...; a partial value v joins the total and one group."""
    before, here, after, later, v = z3.Consts("before here after later v", VALUE)
    yield Obligation(
        "combine: base, before the first partial value all groups are identities",
        (PLUS(ZERO, ZERO) == ZERO, before == ZERO, PLUS(before, ZERO) != ZERO),
    )
    yield Obligation(
        "combine: step, at the group that takes v the fold gains v",
        (associative(before, here, v), PLUS(before, PLUS(here, v)) != PLUS(PLUS(before, here), v)),
    )
    laws = (
        associative(before, v, later),
        associative(before, later, v),
        PLUS(v, later) == PLUS(later, v),
    )
    yield Obligation(
        "combine: step, at every later group the fold still has v more",
        (*laws, after == PLUS(before, v), PLUS(after, later) != PLUS(PLUS(before, later), v)),
    )


def _becoming_pending() -> Iterator[Obligation]:
    """``total`` is the combination over the coordinates below d."""
    total = z3.Const("total", VALUE)
    x = A(j)
    identity = (PLUS(x, ZERO) == x, PLUS(ZERO, x) == x, PLUS(ZERO, ZERO) == ZERO)
    own = z3.If(d == 0, x, ZERO)
    so_far = z3.If(d > 0, x, ZERO)
    yield Obligation(
        "pending: idle axis, coordinate 0 adds the values, the others nothing",
        (*identity, d >= 0, total == so_far, PLUS(total, own) != x),
    )
    tile = z3.Int("tile")  # i g + d: the fine tiles of a group, one after another
    part = z3.If(holds(n, f, tile, j), x, ZERO)
    so_far, upto = (z3.If(q < last, x, ZERO) for last in (tile, tile + 1))
    fine = (*is_tile(n, k, f), *below(tile, k), *below(j, n), *quotient(j, f, q, r))
    yield Obligation(
        "pending: minor axis, the digit whose fine tile has j adds its value, the others nothing",
        (*identity, *fine, total == so_far, PLUS(total, part) != upto),
    )
    yield Obligation(
        "pending: minor axis, one digit of the group has j",
        (
            *NESTED,
            holds(n, c, i, j),
            *quotient(j, f, q, r),
            z3.Not(z3.And(i * g <= q, q < (i + 1) * g)),
        ),
    )


# Wrong variants -----------------------------------------------------------------------------

SMALL = (*between(1, n, 12), *between(2, k, 3), *between(2, g, 3))


def _mesh(v: Mapping[str, int]) -> str:
    return f"x={v['k']},y={v['g']}"


def _slice_uneven() -> Obligation:
    inside = (*COARSE, *FINE, *below(d, g), holds(n, f, i * g + d, j), z3.Not(holds(n, c, i, j)))
    return Obligation("slice", (*SMALL, *inside), (n, k, g, i, d, j))


def _show_slice_uneven(v: Mapping[str, int]) -> Shown:
    asked = Asked(f"i32[{v['n']}{{x}}]", f"i32[{v['n']}{{x,y}}]", _mesh(v))
    action = Slice(((SubAxis("y", 1, v["g"]), 0),))
    text = f"device ({v['i']}, {v['d']}) would find index {v['j']} in its own tile"
    return wrong_step("slice-uneven", asked, action, text)


def _gather_major() -> Obligation:
    """Gather k, the major axis of {x,y}: the group of digit d would have what tile d of g needs."""
    coarse = z3.Int("coarse")
    even = (n == m * (k * g), m >= 1, f == m, coarse == m * k, *below(d, g))
    other = (holds(n, coarse, d, j), *quotient(j, f, q, r), *below(i, k), q != i * g + d)
    here = q / g == i
    return Obligation("gather", (*SMALL, *even, here, z3.And(*other)), (n, k, g, d, j))


def _show_gather_major(v: Mapping[str, int]) -> Shown:
    asked = Asked(f"i32[{v['n']}{{x,y}}]", f"i32[{v['n']}{{y}}]", _mesh(v))
    action = AllGather(((SubAxis("x", 1, v["k"]), 0),))
    text = f"index {v['j']} of tile {v['d']} would be found along x"
    return wrong_step("gather-major", asked, action, text)


def _move_to_major() -> Obligation:
    """Move an axis of size g to the major end of a dim cut into k: device i keeps to its tile i."""
    even = (n == m * (k * g), m >= 1, f == m, c == m * g, *below(i, k), *below(d, g))
    moved = z3.And(holds(n, f, d * k + i, j), z3.Not(holds(n, c, i, j)))
    return Obligation("all_to_all", (*SMALL, *even, moved), (n, k, g, i, d, j))


def _show_move_to_major(v: Mapping[str, int]) -> Shown:
    one, two = f"{v['g']}{{y}}, {v['n']}{{x}}", f"{v['g']}, {v['n']}{{y,x}}"
    action = AllToAll((((SubAxis("y", 1, v["g"]),), 0, 1),))
    text = f"device ({v['i']}, {v['d']}) would find index {v['j']} of dim 1 along y"
    return wrong_step("move-to-major", Asked(f"i32[{one}]", f"i32[{two}]", _mesh(v)), action, text)


def _block_turned() -> Obligation:
    """A block arrives with its last axis first."""
    small = (*IN_BLOCK, *between(2, g, 3), *between(2, g2, 3))
    turned = DIGIT_1 * g2 + DIGIT_2 != DIGIT_2 * g + DIGIT_1
    return Obligation("block", (*small, i == 0, turned), (g, g2, DIGIT_1, DIGIT_2))


def _show_block_turned(v: Mapping[str, int]) -> Shown:
    size, where = v["g"] * v["g2"], f"x={v['g']},y={v['g2']}"
    asked = Asked(f"i32[{size}{{x,y}}, {size}]", f"i32[{size}, {size}{{y,x}}]", where)
    block = SubAxis("x", 1, v["g"]), SubAxis("y", 1, v["g2"])
    text = f"digits {v['d1']} and {v['d2']} would arrive in the other order"
    return refused_step("block-turned", asked, AllToAll(((block, 0, 1),)), text)


def _slice_pending() -> Obligation:
    own, others = z3.Ints("own others")
    values = (*between(0, own, 9), *between(0, others, 9), n == k)
    return Obligation("pending", (*SMALL, *values, own + others != own), (n, k, own, others))


def _show_slice_pending(v: Mapping[str, int]) -> Shown:
    asked = Asked(f"i32[{v['n']}] sum{{x}}", f"i32[{v['n']}{{x}}]", f"x={v['k']}")
    action = Slice(((SubAxis("x", 1, v["k"]), 0),))
    return wrong_step("slice-pending", asked, action, "a partial value would be the whole sum")


THEOREM = Theorem(
    "rules",
    "Every typing rule keeps the global array: slice (also into pending axes), all_gather, "
    "all_to_all, all_permute, exchange, reduce_scatter and all_reduce leave tiles that stand, under the "
    "type after the step, for the array that the tiles before it stood for.",
    "Obligations for one dim hold for every dim of a box; reductions by induction over partial values.",
    "Reductions that are not associative and commutative: sum and prod of floats, which agree up to "
    "rounding. That the code splits pending axes into resolved, kept and added ones as sets is tested, "
    "not proved; so is the packing of pieces.",
    obligations,
    (
        Twin("slice where tiles do not nest", _slice_uneven, _show_slice_uneven),
        Twin("gather the major axis", _gather_major, _show_gather_major),
        Twin("all_to_all to the major end", _move_to_major, _show_move_to_major),
        Twin("a block arrives with its last axis first", _block_turned, _show_block_turned),
        Twin("slice along a pending axis", _slice_pending, _show_slice_pending),
    ),
)
