"""Rewrites: what the synthesizer does to a problem keeps every tile where it is and bounds the peak.

Statement. The search does not walk over types as they are written. It splits axes into factors, drops
axes of size 1, looks only behind the axes that a dim has in common before and after, walks moves of
minor-most axes backwards, keeps one of several spellings of a layout, puts slices first and gathers
last, joins steps into one, takes a step apart, and names a general step after a collective. For all
sizes of dims, tiles and axes:

rewrite                  | where                                  | keeps                 | peak
axis split or joined     | ``prime_parts``, ``merged``, ``Space`` | box of every device   | the same
axis of size 1 dropped   | ``merged``                             | box of every device   | the same
common axes left out     | ``shared_prefix``, ``_gather_slice``   | place inside the tile | the same
move walked backwards    | ``_moves``, ``move_classes``           | tile numbers          | the same
one spelling of a layout | ``Space._first_of_layout``             | box of every device   | the same
exchange named           | ``name_step``, ``MiddleSearch._named`` | types, bytes received | the same
slice first, gather last | ``normal_form``                        | ends                  | + the middle
steps joined             | ``name_step``, fused ``AllToAll``      | ends                  | not above
step taken apart         | ``axis_by_axis``, ``_gathers``         | ends                  | + the middle

"+ the middle": at most one middle tile more than one step would need, where moves are between even
dims; a donated array needs no more where slices come first. Types on the way may be cut down to
those no larger than the larger end (``within_ends``, ``Space.over``): then no step holds more than the
source and twice the larger end.

Encoding. Boxes are those of ``layout.cuts.EvenCut``, live bytes those of ``plan.memory.hop_live_bytes``,
both run on symbols (:mod:`proofs.engine.branches`); a tile number is the mixed-radix number of digits, major
first. Bytes are tiles without staging: every step has the same budget for that (theorem ``memory``).

What joins the obligations. A type keeps its tiles if cuts and tile numbers of every dim are kept.
Rewrites of several axes are rewrites of one axis after another, and several steps are joined or taken
apart two at a time. That a rewritten route leads from source to target is checked when it is made:
every hop of a named route is put through the typing rules, which the theorem ``rules`` is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from proofs.engine.branches import claimed, symbols
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.showing import Asked, wrong_received
from proofs.evidence.weighing import wrong_peak
from proofs.theorems.memory import (
    ARRAY,
    SIZES,
    columns,
    middle,
    other,
    rows,
    source,
    target,
    tile,
    wanted,
    x,
    y,
)
from redist.layout.cuts import EvenCut
from redist.plan.memory import hop_live_bytes, staging_for
from redist.text.units import ceil_div

n, i, k, s, t, d, e, q = symbols("n i k s t d e q")
DIGITS = (s >= 1, t >= 1, d >= 0, d < s, e >= 0, e < t)


def obligations() -> Iterator[Obligation]:
    """See the module."""
    yield from _axes()
    yield from _prefix()
    yield from _spellings()
    yield from _sizes()
    yield from _peaks()


def _axes() -> Iterator[Obligation]:
    below = d * t + e
    yield claimed(
        "axis split: digits of two parts are one digit of their product",
        DIGITS,
        lambda: [below >= 0, below < s * t],
    )
    yield claimed(
        "axis split: a number taken apart by parts is taken apart by their product",
        (*DIGITS, q >= 0),
        lambda: [q * (s * t) + below == (q * s + d) * t + e],
    )
    yield claimed(
        "axis split: the last digit of a number, and what stands above it",
        (t >= 1, q >= 0, e >= 0, e < t),
        lambda: [(q * t + e) // t == q, (q * t + e) % t == e],
    )
    yield claimed(
        "axis split: cuts and tile number of the dim stay",
        (*DIGITS, k >= 1, i >= 0, i < k),
        lambda: [(i * s + d) * t + e == i * (s * t) + below, (k * s) * t == k * (s * t)],
    )
    yield claimed(
        "axis of size 1: cuts and tile number of the dim stay",
        (k >= 1, i >= 0, i < k, s == 1, d >= 0, d < s),
        lambda: [k * s == k, i * s + d == i],
    )
    place = symbols("place")[0]
    yield claimed(
        "move backwards: an axis that moves to a minor end and back leaves both dims as they were",
        (k >= 1, i >= 0, i < k, place >= 0, s >= 1, d >= 0, d < s),
        lambda: [(i * s + d) // s == i, (place * s + (i * s + d) % s) // s == place],
        lambda: [(k * s) // s == k, i * s + (place * s + d) % s == i * s + d],
    )


def nests(n: Any, coarse: Any, g: Any, i: Any) -> bool:
    """What ``layout.cuts.nests_in`` asks of tile i: that it begins where the first of its g parts does."""
    return bool(EvenCut(n, coarse).range_of(i)[0] == EvenCut(n, coarse * g).range_of(i * g)[0])


def _prefix() -> Iterator[Obligation]:
    part = symbols("part")[0]
    dim = (n >= 0, k >= 1, s >= 1, i >= 0, i < k, part >= 0)

    def inside(claim: Callable[[Any, Any, Any, Any], Any]) -> Callable[[], Any]:
        def claimed_of_nested() -> Any:
            if not nests(n, k, s, i) or (i + 1 < k and not nests(n, k, s, i + 1)):
                return True
            return claim(*EvenCut(n, k).range_of(i), *EvenCut(n, k * s).range_of(i * s + part))

        return claimed_of_nested

    yield claimed(
        "common axes: a part begins within the common tile",
        (*dim, part < s),
        inside(lambda lo, hi, start, end: lo <= start),
    )
    yield claimed(
        "common axes: a part ends within the common tile",
        (*dim, part < s),
        inside(lambda lo, hi, start, end: end <= hi),
    )
    yield claimed(
        "common axes: it lies there as in an array of the tile's own size",
        (*dim, part <= s),
        inside(lambda lo, hi, start, end: start - lo == min(part * ceil_div(n, k * s), hi - lo)),
    )
    other = symbols("other")[0]
    yield claimed(
        "common axes: other common tiles have no index of it",
        (n >= 0, k >= 1, i >= 0, i < k, other >= 0, other < k, other < i),
        lambda: EvenCut(n, k).range_of(other)[1] <= EvenCut(n, k).range_of(i)[0],
    )


def _spellings() -> Iterator[Obligation]:
    here, there = symbols("here there")
    tile_0: Any = 0

    def same_tile() -> Any:
        lo, hi = EvenCut(n, here).range_of(tile_0)
        low, high = EvenCut(n, there).range_of(i)
        return ceil_div(n, here) <= ceil_div(n, there) if lo == low and hi == high else True

    yield claimed(
        "one spelling: the rank of tile 0 shows that full tiles are no larger in the other",
        (n >= 0, here >= 1, there >= 1, i >= 0, i < there),
        same_tile,
    )
    box, kept, received, budget, itemsize = symbols("box kept received budget itemsize")

    def named() -> list[Any]:
        lo, hi = EvenCut(s, s).range_of(
            d
        )  # the axes outside a collective's group, cut into single numbers
        mine = max(0, min(hi, hi) - max(lo, lo))
        lacking = box * (hi - lo) - kept * mine
        staging = [staging_for(x, budget, itemsize) for x in (lacking, received)]
        return [lacking == received, staging[0] == staging[1]]

    yield claimed(
        "exchange named: a device lacks the same within its group, so staging is the same",
        (s >= 1, d >= 0, d < s, kept >= 0, kept <= box, received == box - kept, itemsize >= 1),
        named,
    )


def _sizes() -> Iterator[Obligation]:
    a, b = symbols("a b")
    yield claimed(
        "slice, gather: a tile never grows when its dim is cut more",
        (n >= 0, k >= 1, s >= 1),
        lambda: ceil_div(n, k * s) <= ceil_div(n, k),
    )
    yield claimed(
        "even tiles: a dim of k tiles of c, cut into k, has tiles of c",
        (rows >= 0, k >= 1),
        lambda: ceil_div(k * rows, k) == rows,
    )
    yield claimed(
        "even tiles: an axis that moves from dim to dim keeps the size of the tile",
        (rows >= 0, columns >= 0, a >= 1),
        lambda: rows * (a * columns) == (a * rows) * columns,
    )
    yield claimed(
        "even tiles: step, elements of a tile are all elements over all cuts",
        (rows >= 0, columns >= 0, a >= 1, b >= 1),
        lambda: (a * rows) * (b * columns) == (a * b) * (rows * columns),
    )
    yield claimed(
        "normal form: sliced by what the target has, ungathered by what the source has: one size",
        (n >= 0, a >= 1, b >= 1, k >= 1),
        lambda: ceil_div(n, (k * a) * b) == ceil_div(n, (k * b) * a),
    )
    yield claimed(
        "normal form: that size is at most either end's",
        (n >= 0, a >= 1, b >= 1, k >= 1),
        lambda: ceil_div(n, k * a * b) <= ceil_div(n, k * a),
        lambda: ceil_div(n, k * b * a) <= ceil_div(n, k * b),
    )


def live(before: Any, after: Any, first: bool, donate: bool) -> Any:
    """Bytes of tiles that a step holds."""
    hop = tile(source), tile(target), tile(before), tile(after), first, donate
    return hop_live_bytes(*hop)


def joined(before: Any, after: Any, first: bool, donate: bool) -> tuple[Any, Any]:
    """What two steps by way of the middle hold, and what one step holds."""
    two = live(before, middle, first, donate), live(middle, after, False, donate)
    return max(two), live(before, after, first, donate)


def _peaks() -> Iterator[Obligation]:
    before, after = symbols("before after")
    given = (*SIZES, before >= 0, after >= 0)
    orders = {
        "falling, as slices do": (before >= middle, middle >= after),
        "rising, as gathers do": (before <= middle, middle <= after),
        "of one size, as moves of axes and permutes do": (before == middle, middle == after),
    }

    def not_above(first: bool, donate: bool) -> Callable[[], Any]:
        def claim() -> Any:
            two, one = joined(before, after, first, donate)
            return one <= two

        return claim

    def at_most_a_middle_more(first: bool, donate: bool) -> Callable[[], Any]:
        def claim() -> Any:
            two, one = joined(before, after, first, donate)
            return two <= one + middle

        return claim

    def between_middles(first: bool, donate: bool) -> Callable[[], Any]:
        def claim() -> list[Any]:
            one = live(before, after, first, donate) + middle
            steps = (other, middle), (middle, other)
            return [live(*step, False, donate) <= one for step in steps]

        return claim

    every = [(first, donate) for first in (False, True) for donate in (False, True)]
    starts = (before == source,)
    for name, order in orders.items():
        for first, donate in every:
            facts = (*given, *order, *(starts if first else ()))
            where = f"{'first' if first else 'later'}, {'donated' if donate else 'kept'}"
            yield claimed(f"joined: steps {name}; {where}", facts, not_above(first, donate))
    yield claimed(
        "joined: the first steps, source kept, by way of any tile",
        (*given, *starts),
        not_above(True, False),
    )
    for name, first, facts in (("later", False, ()), ("first", True, starts)):
        yield claimed(
            f"taken apart in two, {name} steps: at most the middle tile more",
            (*given, *facts),
            *(at_most_a_middle_more(first, donate) for donate in (False, True)),
        )
        yield claimed(
            f"taken apart in more, {name} steps: the same where middle tiles are within the last",
            (*given, *facts, other <= middle, middle <= after),
            *(between_middles(first, donate) for donate in (False, True)),
        )
    small = (middle <= source, middle <= target)
    whole = source + target
    yield claimed(
        "slice first, gather last: donated not above one step, kept the middle tile above it",
        (*given, *small),
        lambda: [
            live(source, middle, True, True) <= whole,
            live(middle, target, False, True) <= whole,
        ],
        lambda: live(middle, middle, False, True) <= whole,
        lambda: live(middle, target, False, False) == whole + middle,
        lambda: live(middle, middle, False, False) <= whole + middle,
    )

    def capped() -> list[Any]:
        larger = max(source, target)
        if before > larger or after > larger:
            return [True]
        held = [live(before, after, first, donate) for first, donate in every]
        return [total <= source + larger + larger for total in held]

    yield claimed(
        "no tile above the larger end: the source and twice the larger end", given, capped
    )


# Wrong variants -----------------------------------------------------------------------------


def _prefix_always() -> Obligation:
    part = symbols("part")[0]
    small = (n >= 1, n <= 12, k >= 2, k <= 3, s >= 2, s <= 3, i >= 0, i < k, part >= 0, part < s)

    def inside() -> Any:
        lo, hi = EvenCut(n, k).range_of(i)
        start, end = EvenCut(n, k * s).range_of(i * s + part)
        return True if start >= end else [lo <= start, end <= hi]

    return claimed("always", small, inside, shown=(n, k, s, i, part))


def _show_prefix_always(v: Mapping[str, int]) -> Shown:
    asked = Asked(f"i32[{v['n']}{{x}}]", f"i32[{v['n']}{{x,y}}]", f"x={v['k']},y={v['s']}")
    text = f"if part {v['part']} of tile {v['i']} lay in it, cutting along y too would be local"
    return wrong_received(asked, 0, text)


def _parts_swapped() -> Obligation:
    small = (*DIGITS, s >= 2, s <= 3, t >= 2, t <= 3)
    return claimed("swapped", small, lambda: d * t + e == e * s + d, shown=(s, t, d, e))


def _show_parts_swapped(v: Mapping[str, int]) -> Shown:
    size = v["s"] * v["t"]
    parts = f"x:({v['s']}){v['t']},x:(1){v['s']}"
    asked = Asked(f"i32[{size}{{x}}]", f"i32[{size}{{{parts}}}]", f"x={size}")
    return wrong_received(asked, 0, "if the minor part of an axis could stand first")


def _joined_always() -> Obligation:
    def not_above() -> Any:
        two, one = joined(source, target, True, True)
        return one <= two

    return claimed("joined", ARRAY, not_above, shown=(rows, columns, x, y))


def _show_joined_always(v: Mapping[str, int]) -> Shown:
    two, one = (replace(wanted(v, how), donate=True).plan() for how in ("no_permute", "direct"))
    assert [step.op for step in two.steps] == ["slice", "all_gather"]
    text = "donated, one step for a slice and a gather"
    return wrong_peak("rewrites-joined", one, two.peak_bytes, text)


THEOREM = Theorem(
    "rewrites",
    "What the synthesizer does to a problem keeps every tile: axes split, joined or dropped, common "
    "axes left out where tiles nest, moves walked backwards, one spelling of a layout, exchanges "
    "named. Joining steps that fall, rise or keep the size does not raise the peak; slicing first and "
    "gathering last, and taking steps apart (moves between even dims), cost one middle tile at most.",
    "One axis, one dim, two steps at a time; routes are put through the typing rules when made.",
    "Peaks here are tiles; staging may differ between the two forms of a route, within one budget "
    "(memory). Not true in general, and so not claimed: joining steps of a donated array by way of a "
    "smaller tile (it raises the peak, see the wrong variant), and moves of axes between uneven "
    "dims, whose tiles may grow or shrink on the way; the certificate of each plan covers these. "
    "Normal form is for even tiles without reductions. That the search looks at all types of its space "
    "and finds the best. Equal primes are not treated as interchangeable by the program.",
    obligations,
    (
        Twin("common axes left out where tiles do not nest", _prefix_always, _show_prefix_always),
        Twin("parts of an axis swapped", _parts_swapped, _show_parts_swapped),
        Twin("joining steps never raises the peak", _joined_always, _show_joined_always),
    ),
)
