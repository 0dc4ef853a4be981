"""Refits: slices of a request are all of it, and no order of messages can make ranks wait in a circle.

Statement. A refit goes in rounds 0, 1, 2, ... In each round a rank posts a receive for everything that it
receives in that round and a send for everything that it sends, in any order, waits for all of them, in any
order, and goes on to the next round. (1) The slices of a request have each of its elements once, in order,
and none has more than its share, rounded up; so what was reckoned for a slice is enough. (2) Where a
message is, both ends have it in the same round. A rank that waits for a message waits only for a rank that
has come less far; so no ranks wait in a circle, and the rank furthest behind can go on, whether sends are
buffered or wait for their receives. (3) A rank that is in a round has finished those before it, so it never
has more under way than in one round.

Encoding. ``share`` of :mod:`redist.refits.rounds` is the program's own function, run on symbols. A rank is
at the place ``2 * round`` before it has posted what belongs to the round and ``2 * round + 1`` behind.

What joins the obligations. *Slices*: the first begins at 0, each begins where the one before ends, the last
ends at the number of elements. *Waits*: a wait leads to a smaller place, or to one that is not waited for;
places are whole numbers from 0 on, so by induction over places every rank comes to every round. That both
ends list a message in the same round and order is compared by tests and by the machine that carries out
runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import z3

from proofs.engine.branches import claimed, symbols
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from redist import Mesh, Weights, refit
from redist.refits.rounds import share

elems, k, slices = symbols("elems k slices")
SLICE = (elems >= 0, slices >= 1, k >= 0, k < slices)
mine, other, third, number, later = z3.Ints("mine other third number later")


def posted(round_: Any) -> Any:
    """The place of a rank that has posted all of a round, and waits."""
    return 2 * round_ + 1


def waits_for(round_: Any, other: Any) -> Any:
    """Whether a rank that waits in a round must wait for one at another place: it has not posted."""
    return other < posted(round_)


def obligations() -> Iterator[Obligation]:
    """See the module."""
    yield claimed(
        "slices: the first begins at 0",
        (elems >= 0, slices >= 1),
        lambda: share(elems, 0, slices) == 0,
    )
    yield claimed(
        "slices: the last ends at the end", (elems >= 0, slices >= 1),
        lambda: share(elems, slices, slices) == elems,
    )  # fmt: skip
    yield claimed(
        "slices: none is negative", SLICE,
        lambda: share(elems, k + 1, slices) >= share(elems, k, slices),
    )  # fmt: skip
    yield claimed(
        "slices: none has more than its share, rounded up", SLICE,
        lambda: share(elems, k + 1, slices) - share(elems, k, slices) <= -(-elems // slices),
    )  # fmt: skip
    rounds = (number >= 0, later >= 0)
    yield Obligation(
        "waits: a rank that is waited for has come less far",
        (*rounds, mine == posted(number), waits_for(number, other), other >= mine),
    )
    yield Obligation(
        "waits: two ranks in the same round, both posted, do not wait for each other",
        (*rounds, mine == posted(number), other == posted(number),
         z3.Or(waits_for(number, other), waits_for(number, mine))),
    )  # fmt: skip
    yield Obligation(
        "waits: step, so is a rank waited for through others; it is never the same",
        (*rounds, other < mine, other == posted(later), waits_for(later, third), third >= mine),
    )
    yield Obligation(
        "waits: the rank furthest behind waits for nobody",
        (*rounds, mine == posted(number), mine <= other, waits_for(number, other)),
    )
    yield Obligation(
        "rounds: who has posted a round has finished those before it",
        (*rounds, mine == posted(number), later < number, mine <= posted(later)),
    )


# Wrong variants -----------------------------------------------------------------------------


def stuck(one_by_one: bool) -> list[int]:
    """Ranks that wait for ever in a refit in which two ranks swap their halves.

    Sends wait for their receives. ``one_by_one``: a rank sends first and receives then, instead of posting
    both.
    """
    halves = Mesh(x=2), Mesh({"x": 2}, ranks=[1, 0])
    plan = refit(*(Weights({"w": "f32[8{x}]"}, mesh) for mesh in halves))
    sends = {rank: plan.runs(rank, sends=True)["peer"].tolist() for rank in plan.ranks}
    takes = {rank: plan.runs(rank)["peer"].tolist() for rank in plan.ranks}
    open_receives = {rank: [] if one_by_one else list(takes[rank]) for rank in plan.ranks}
    waiting = set(plan.ranks)
    moved = True
    while moved:
        moved = False
        for rank in sorted(waiting):
            left = [peer for peer in sends[rank] if rank not in open_receives[peer]]
            if not left:
                open_receives[rank] = list(takes[rank])
                waiting.discard(rank)
                moved = True
    return sorted(waiting)


def _sends_first() -> Obligation:
    """A rank sends before it posts its receives: two ranks at the same place may wait for each other."""
    return Obligation(
        "sends first",
        (number >= 0, number <= 3, mine == 2 * number, other == 2 * number, waits_for(number, other),
         waits_for(number, mine)),
        (number, mine, other),
    )  # fmt: skip


def _show_sends_first(v: Mapping[str, int]) -> Shown:
    wrong, right = stuck(True), stuck(False)
    return Shown(
        "python -m proofs refit",
        bool(wrong) and not right,
        f"in round {v['number']} two ranks that send first would wait for each other: ranks {wrong} for "
        f"ever, in a swap of halves; with all receives posted none waits",
    )


def _rounded_up() -> Obligation:
    """Every slice has its share rounded up: together they have more than there is."""
    return claimed(
        "rounded up", (elems >= 1, elems <= 20, slices >= 2, slices <= 8),
        lambda: -(-elems // slices) * slices <= elems, shown=(elems, slices),
    )  # fmt: skip


def _show_rounded_up(v: Mapping[str, int]) -> Shown:
    n, pieces = v["elems"], v["slices"]
    taken = sum(share(n, i + 1, pieces) - share(n, i, pieces) for i in range(pieces))
    return Shown(
        "python -m proofs refit",
        taken == n != -(-n // pieces) * pieces,
        f"{pieces} slices of {n} elements, each rounded up, have {-(-n // pieces) * pieces}; those of the "
        f"program have {taken}",
    )


THEOREM = Theorem(
    "refit",
    "Rounds of a refit: slices of a request have each of its elements once and none more than its share; a "
    "rank that waits, waits for ranks that have come less far, in whatever order messages are posted and "
    "arrive, so no order can deadlock; no rank has more than one round under way.",
    "Induction over places; base and step are obligations.",
    "That both ranks list a message in the same round and order: compared by tests. That senders hold what "
    "they send and every element arrives once: each plan is judged by itself. Ranks that fail.",
    obligations,
    (
        Twin("sends before receives are posted", _sends_first, _show_sends_first),
        Twin("every slice rounded up", _rounded_up, _show_rounded_up),
    ),
)
