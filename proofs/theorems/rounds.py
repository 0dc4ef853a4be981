"""Rounds: they take every element of every piece once, and what passes at a time fits its slot.

Statement. A piece (a box that goes from one rank to another) is cut into at most ``parts`` boxes, one
for each round, by cutting its dims one after another. For every shape, every number of parts and
every slot: the boxes of all rounds partition the piece; none has more than ``part_elems`` elements,
which does not grow with the number of parts and falls to one; ``parts_needed`` ends with a number for
which the need fits the slot, or with the most there can be; ``make_rounds`` takes every part of every
array once, in order, and arrays that share a round fit the slot together; where arrays take turns,
each piece has one turn, in which all its parts pass in order; boxes in a slot do not
overlap; and the rounds that a plan announces are enough for its staging, and not one too many.

Encoding. ``box_at``, ``part_counts``, ``part_elems``, ``parts_needed``, ``make_rounds``, ``turn_of``,
``take_turns``, ``Exports`` and ``rounds_for`` are the program's own functions, run on symbols
(:mod:`proofs.engine.branches`).

What joins the obligations. *Along a dim*: the first box begins at 0, each begins where the one before
ends, the last ends at n, none is negative; so they partition the dim. *Dims*: a box of several dims
is one box for each dim, so places, one number for each dim, partition the piece. *Numbers*: the two
claims are the step of an induction over dims: the number of a round and the place of its box
correspond one to one; without dims there is one box. *Counts*: a dim takes k of the parts and leaves
parts // k to the dims behind it; by induction the product is at most ``parts``, so every box has its
round. *Largest part*: one factor for each dim, so the claims about ``part_elems`` are the step of an
induction over dims, joined by the lemma on products; without dims there is one element. *Loops*: what
``parts_needed`` carries from one pass to the next is one number from 1 to ``most``, and the first
guess can be any of them; what ``make_rounds`` carries is the weight in the open round, and a first
array can bring any. So one pass from there is the step for every pass. *Turns*: ``take_turns`` goes
through the arrays one by one, and does the same for every turn and every part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from proofs.engine.branches import claimed, symbols
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.passing import Cut, passed
from proofs.evidence.showing import Asked, wrong_received
from proofs.evidence.weighing import Wanted
from redist.plan.memory import rounds_for
from redist.plan.pieces import Piece
from redist.runtime.schedule.pieces import box_at
from redist.runtime.schedule.rounds import (
    Exports,
    RoundPart,
    make_rounds,
    part_counts,
    part_elems,
    part_of,
    parts_needed,
    place_at,
    take_turns,
    turn_of,
)
from redist.runtime.simulator import random_tiles, simulate

n, m, k, i, parts, more = symbols("n m k i parts more")
CUT = (n >= 0, k >= 1)
PLACE = (*CUT, i >= 0, i < k)
PARTS = (n >= 1, parts >= 1)


def obligations() -> Iterator[Obligation]:
    """See the module."""
    yield from _along_a_dim()
    yield from _numbers_and_counts()
    yield from _largest_part()
    yield _parts_needed()
    yield from _sharing_rounds()
    yield from _turns()
    yield from _slots()


def _box(n: Any, k: Any, i: Any) -> tuple[Any, Any]:
    """Start and size of box i of a dim."""
    lo, size = box_at((n,), (k,), (i,))
    return lo[0], size[0]


def _along_a_dim() -> Iterator[Obligation]:
    yield claimed("dim: the first box begins at 0", CUT, lambda: _box(n, k, 0)[0] == 0)
    yield claimed("dim: the last box ends at n", CUT, lambda: sum(_box(n, k, k - 1)) == n)
    yield claimed(
        "dim: each box begins where the one before ends",
        (*PLACE, i + 1 < k),
        lambda: _box(n, k, i + 1)[0] == sum(_box(n, k, i)),
    )
    yield claimed("dim: no box is negative", PLACE, lambda: _box(n, k, i)[1] >= 0)
    other, place = symbols("other place")

    def apart() -> list[Any]:
        both = box_at((n, m), (k, other), (i, place))
        each = _box(n, k, i), _box(m, other, place)
        return [both[half][dim] == each[dim][half] for half in (0, 1) for dim in (0, 1)]

    yield claimed(
        "dims: a box of two dims is one of each", (*PLACE, m >= 0, other >= 1, place >= 0), apart
    )


def _numbers_and_counts() -> Iterator[Obligation]:
    outer, number, place = symbols("outer number place")

    def placed() -> list[Any]:
        major, minor = place_at(number, (outer, k))
        return [major >= 0, major < outer, minor >= 0, minor < k, major * k + minor == number]

    def numbered() -> list[Any]:
        major, minor = place_at(place * k + i, (outer, k))
        return [place * k + i < outer * k, major == place, minor == i]

    yield claimed(
        "number: step, a number below the product is one place of each dim",
        (k >= 1, outer >= 1, number >= 0, number < outer * k),
        placed,
    )
    yield claimed(
        "number: step, every place has a number, which leads back to it",
        (*PLACE, place >= 0, place < outer),
        numbered,
    )

    def one_dim() -> list[Any]:
        (count,) = part_counts((n,), parts)
        return [count >= 1, count <= parts]

    def two_dims() -> Any:
        first, second = part_counts((n, m), parts)
        return second == part_counts((m,), parts // first)[0]

    given = (n >= 0, m >= 0, parts >= 1)
    yield claimed("counts: a dim takes one part or more, not more than there are", given, one_dim)
    yield claimed("counts: what it leaves goes to the dims behind it", given, two_dims)
    left = symbols("left")[0]
    yield claimed(
        "counts: step, the product is at most the parts",
        (k >= 1, k <= parts, left * k <= parts, parts < left * k + k, outer >= 1, outer <= left),
        lambda: [left == parts // k, left >= 1, k * outer <= parts],
    )

    yield claimed(
        "part: it is the box of its number, in both tiles",
        (*PARTS, number >= 0, number < parts),
        _part_is_box,
    )


def _part_is_box() -> list[Any]:
    number, here, there = symbols("number here there")
    piece = Piece(0, 1, 0, (here,), (there,), (n,), (n,), (n,))
    part = part_of(piece, RoundPart(0, parts, number))
    (count,) = part_counts((n,), parts)
    lo, size = _box(n, count, number)
    if part is None:
        return [number >= count or size == 0]
    return [part.src_lo[0] == here + lo, part.dst_lo[0] == there + lo, part.shape[0] == size]


def _largest_part() -> Iterator[Obligation]:
    behind, above = symbols("behind above")

    def bounded() -> list[Any]:
        (count,) = part_counts((n,), parts)
        size = _box(n, count, i)[1]
        return [size >= 0, size <= part_elems((n,), parts)]

    def falls() -> list[Any]:
        (count,), (finer,) = part_counts((n,), parts), part_counts((n,), more)
        left, right = parts // count, more // finer
        return [part_elems((n,), parts) >= part_elems((n,), more), left >= 1, left <= right]

    def one() -> list[Any]:
        (count,) = part_counts((n,), parts)
        return [part_elems((n,), parts) == 1, parts // count >= m]

    def factors() -> list[Any]:
        left = parts // part_counts((n,), parts)[0]
        return [part_elems((n, m), parts) == part_elems((n,), parts) * part_elems((m,), left)]

    yield claimed(
        "lemma: a product does not grow when its factors fall",
        (k >= 0, k <= n, behind >= 0, behind <= above),
        lambda: k * behind <= n * above,
    )
    yield claimed("largest part: one factor for each dim", (*PARTS, m >= 1), factors)
    yield claimed("largest part: step, no box is larger", (*PARTS, i >= 0), bounded)
    yield claimed(
        "largest part: step, more parts do not make it grow", (*PARTS, parts <= more), falls
    )
    yield claimed(
        "largest part: step, a part for each element makes it one element",
        (*PARTS, m >= 1, parts >= n * m),
        one,
    )


class _GoesOn(Exception):
    """The loop takes another pass."""


def _parts_needed() -> Obligation:
    limit, first, second, most = symbols("limit first second most")

    def one_pass() -> list[Any]:
        asked: list[Any] = []

        def need(parts: Any) -> Any:
            asked.append(parts)
            if len(asked) == 3:
                raise _GoesOn
            return (first, second)[len(asked) - 1]

        try:
            found = parts_needed(need, limit, most)
        except _GoesOn:
            return [asked[1] >= 1, asked[1] < asked[2], asked[2] <= most]
        if len(asked) == 1 or found == most:
            return [found == most]
        return [found >= 1, found < most, found == asked[1], second <= limit]

    given = (most >= 1, limit >= 0, first >= 0, second >= 0)
    return claimed("parts needed: it ends with parts that fit, or with the most", given, one_pass)


def _sharing_rounds() -> Iterator[Obligation]:
    first, second, slot = symbols("first second slot")
    given = (first >= 0, second >= 0, slot >= 0)

    def shared(cut: tuple[int, int]) -> list[Any]:
        rounds = make_rounds((first, second), cut, slot)
        round_parts = [round_part for together in rounds for round_part in together]
        wanted = [RoundPart(item, k, number) for item, k in enumerate(cut) for number in range(k)]
        several = [together for together in rounds if len(together) > 1]
        weights = [
            sum((first, second)[round_part.item] for round_part in together) for together in several
        ]
        whole = all(round_part.parts == 1 for together in several for round_part in together)
        return [
            round_parts == wanted and whole and all(rounds),
            *(weight <= slot for weight in weights),
        ]

    for cut in ((1, 1), (2, 1), (1, 2), (2, 2)):
        yield claimed(
            f"rounds: step, an array in {cut[1]} after one in {cut[0]}",
            given,
            lambda cut=cut: shared(cut),  # type: ignore[misc]
        )


def _turns() -> Iterator[Obligation]:
    sender, receiver, first, second, slot, turns = symbols(
        "sender receiver first second slot turns"
    )
    ends = (sender >= 0, receiver >= 0)

    def one_turn() -> list[Any]:
        turn = turn_of(sender, receiver, False, turns)
        return [turn >= 0, turn < turns, turn_of(sender, receiver, True, turns) == 0]

    yield claimed("turns: every piece has one of them", (*ends, turns >= 1), one_turn)

    def passes(cut: tuple[int, int], many: tuple[int, int], is_near: bool) -> bool:
        rounds = take_turns(make_rounds((first, second), cut, slot), many)
        taken = [
            [
                part.number
                for together in rounds
                for part in together
                if part.item == item
                and bool(turn_of(sender, receiver, is_near, part.turns) == part.turn)
            ]
            for item in (0, 1)
        ]
        return taken == [[*range(k)] for k in cut]

    given = (*ends, first > slot, second >= 0, slot >= 0)
    for cut, many in (((1, 1), (2, 1)), ((2, 1), (2, 1)), ((2, 2), (4, 1)), ((1, 2), (4, 1))):
        yield claimed(
            f"turns: in {many[0]}, {cut[0]} parts of a piece pass once each, in order, and others' too",
            given,
            lambda cut=cut, many=many: [passes(cut, many, near) for near in (False, True)],  # type: ignore[misc]
        )


def _slots() -> Iterator[Obligation]:
    itemsize, start = symbols("itemsize start")
    one, two = ((0,), (n,), ()), ((1,), (m,), ())
    for align in (1, 64):
        both, only = Exports((one, two), itemsize, align), Exports((one,), itemsize, align)

        def behind(both: Exports = both, only: Exports = only) -> list[Any]:
            at, room = both.offsets(parts, start), only.bytes_for(parts)
            return [
                at[one] == start,
                at[two] == start + room,
                room >= part_elems((n,), parts) * itemsize,
                both.bytes_for(parts) >= room,
            ]

        def smallest(only: Exports = only, align: int = align) -> list[Any]:
            room = only.bytes_for(parts)
            return [room >= itemsize, room < itemsize + align]

        given = (*PARTS, m >= 1, itemsize >= 1, start >= 0)
        name = f"aligned to {align}"
        yield claimed(f"slot: boxes lie one behind another, {name}", given, behind)
        yield claimed(
            f"slot: cut to the last, a box takes one element, {name}",
            (*given, parts >= n),
            smallest,
        )
    busiest, staging = symbols("busiest staging")

    def announced() -> list[Any]:
        rounds = rounds_for(busiest, staging)
        return [rounds * staging >= 2 * busiest, (rounds - 1) * staging < 2 * busiest]

    yield claimed(
        "announced rounds: enough, and not one too many", (busiest >= 1, staging >= 1), announced
    )


# Wrong variants -----------------------------------------------------------------------------

FEW = (n <= 9, parts >= 2, parts <= 4, parts <= n)


def _shown(n: int, parts: int, rounds: int, cut: Cut, text: str) -> Shown:
    """Each of two ranks has n elements that the other needs, in so many rounds cut like this."""
    asked = Asked(f"i32[{2 * n}{{x}}]", f"i32[{2 * n}]", "x=2")
    plan = asked.plan()
    right = simulate(plan, random_tiles(plan.source)).tiles
    good, wrong = passed(plan, parts, parts, part_of), passed(plan, parts, rounds, cut)
    shown = wrong_received(asked, wrong[1], text)
    same = [all(np.array_equal(got[r], right[r]) for r in right) for got, _ in (good, wrong)]
    return replace(shown, contradicts=shown.contradicts and same == [True, False])


def _round_too_few() -> Obligation:
    def covered() -> Any:
        return sum(_box(n, part_counts((n,), parts)[0], parts - 2)) == n

    return claimed("a round too few", FEW, covered, shown=(n, parts))


def _show_round_too_few(v: Mapping[str, int]) -> Shown:
    text = f"{v['n']} elements in {v['parts']} parts, but {v['parts'] - 1} rounds"
    return _shown(v["n"], v["parts"], v["parts"] - 1, part_of, text)


def rounded_down(n: Any, k: Any, i: Any) -> tuple[Any, Any]:
    """Start and size of box i if boxes were n / k rounded down."""
    start = min(i * (n // k), n)
    return start, min(start + n // k, n) - start


def _boxes_rounded_down() -> Obligation:
    given = (n >= 1, n <= 9, k >= 2, k <= 4, k <= n)
    return claimed("down", given, lambda: sum(rounded_down(n, k, k - 1)) == n, shown=(n, k))


def _show_boxes_rounded_down(v: Mapping[str, int]) -> Shown:
    def cut(piece: Piece, round_part: RoundPart) -> Piece:
        lo, size = rounded_down(piece.shape[0], round_part.parts, round_part.number)
        to = (piece.src_lo[0] + lo,), (piece.dst_lo[0] + lo,)
        return replace(piece, src_lo=to[0], dst_lo=to[1], shape=(size,))

    text = f"{v['n']} elements in {v['k']} boxes of {v['n'] // v['k']}"
    return _shown(v["n"], v["k"], v["k"], cut, text)


def too_few(busiest: Any, staging: Any) -> Any:
    """Rounds if they were rounded down."""
    return max(1, 2 * busiest // staging)


def _announced_rounded_down() -> Obligation:
    elems, room = symbols("elems room")
    given = (elems >= 1, elems <= 9, room >= 1, room <= elems)

    def enough() -> Any:
        return too_few(4 * elems, 4 * room) * room >= 2 * elems

    return claimed("announced", given, enough, shown=(elems, room))


def _show_announced_rounded_down(v: Mapping[str, int]) -> Shown:
    n, room = v["elems"], 4 * v["room"]
    asked = Wanted(f"i32[{2 * n}{{x}}]", f"i32[{2 * n}]", "x=2", limit_bytes=12 * n + room)
    plan = asked.plan()
    (step,) = plan.steps
    received = max(simulate(plan, random_tiles(plan.source)).received_bytes.values())
    wrong = too_few(4 * n, step.staging_bytes)
    return Shown(
        asked.command("simulate"),
        step.staging_bytes == room and wrong * room < 2 * received <= step.rounds * room,
        f"{wrong} rounds of {room // 2} bytes each way bring {wrong * room // 2}; "
        f"the simulator measures {received} on each rank, in {step.rounds} rounds",
    )


THEOREM = Theorem(
    "rounds",
    "The rounds of a step take every element of every piece exactly once; no part is larger than what "
    "staging was reckoned with; arrays that share a round fit the slot together, boxes in a slot do "
    "not overlap; the rounds that a plan announces suffice.",
    "Induction over dims (places, counts, largest part) and over the turns of two loops; steps are "
    "obligations on the program's own functions.",
    "A slot is kept only where one element of each box fits it (cut to the last, boxes take one "
    "element each, rounded up to 64 bytes in slots of 64 KiB and more): with more boxes than that the "
    "pool grows beyond the slot. How pieces are found, see exchange; that all ranks cut alike, see "
    "pairing.",
    obligations,
    (
        Twin("a round too few", _round_too_few, _show_round_too_few),
        Twin("boxes rounded down", _boxes_rounded_down, _show_boxes_rounded_down),
        Twin(
            "announced rounds rounded down", _announced_rounded_down, _show_announced_rounded_down
        ),
    ),
)
