"""Meeting order: ranks of a program make their moves in one order, and no wait can be part of a circle.

Statement. A program makes moves and exchanges number 0, 1, 2, ..., captured in the same order by all
ranks. What a rank computes between two of them is a gap. On each rank the source of a move is there
from some gap on, which is at most that of its own number. A move that begins early does so in the
latest of these gaps over all ranks, and all are put in order by the gap in which they start, then by
number. For any number of ranks and moves: (1) no two stand at one place, and the order is the same on
all ranks. (2) A move begins where its source is there, on every rank. (3) If one move needs what
another brings, on any rank, that one stands before it. (4) A rank that waits, for others to come to a
move or for a move that it began before, waits for ranks that have come less far in this order: there is
no circle of ranks that wait for each other, and the rank that is furthest behind can go on.

Encoding. ``start_key`` of :mod:`redist.pgas.programs.passes.order` as one number: gap * many + number, where
there are fewer moves than ``many``. A rank is at the place of the move that it makes next.

What joins the obligations. That gaps are the latest of all ranks is what ``most_of`` does; that a rank
begins moves in this order and waits for one where its value is needed is compared with ``start_early``
by tests. By induction over places every rank comes to every move: the one furthest behind waits for
nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import z3

from proofs.engine.symbols import Num, below, between
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from redist.pgas.ghosts.tape import COLLECTIVE, Ref, Task, TaskKind, refs_in
from redist.pgas.programs.passes.order import start_early

i, j, many, gap_i, gap_j = z3.Ints("i j many gap_i gap_j")
own_i, own_j, other_i, other_j = z3.Ints("own_i own_j other_i other_j")
MOVES = (*below(i, many), *below(j, many))
GAPS = (*between(0, gap_i, i), *between(0, gap_j, j))


def place(gap: Num, number: Num, many: Num) -> Num:
    """Where a move stands, as one number.

    >>> [place(gap, number, 10) for gap, number in ((0, 1), (0, 3), (2, 2))]
    [1, 3, 22]
    """
    return gap * many + number


def latest(gap: Num, *own: Num) -> tuple[object, ...]:
    """A gap is the latest of those of some ranks."""
    return (*(gap >= one for one in own), z3.Or(*(gap == one for one in own)))


def waits_for(mine: Num, other: Num) -> object:
    """Whether a rank at one place must wait for one at another: it has not come there yet."""
    return other < mine


def obligations() -> Iterator[Obligation]:
    """See the module."""
    here, there = place(gap_i, i, many), place(gap_j, j, many)
    yield Obligation(
        "order: no two moves stand at one place", (*MOVES, *GAPS, i != j, here == there)
    )
    yield Obligation(
        "order: an earlier gap comes first, and of one gap what was captured first",
        (*MOVES, *GAPS, z3.Or(gap_i < gap_j, z3.And(gap_i == gap_j, i < j)), here >= there),
    )
    shared = (*latest(gap_i, own_i, other_i), *latest(gap_j, own_j, other_j))
    ranks = (
        *between(0, own_i, i),
        *between(0, other_i, i),
        *between(0, own_j, j),
        *between(0, other_j, j),
    )
    yield Obligation(
        "sources: a move begins where its source is there on every rank, and not behind its place",
        (*MOVES, *shared, *ranks, z3.Not(z3.And(gap_i >= own_i, gap_i >= other_i, gap_i <= i))),
    )
    yield Obligation(
        "needs: what brings a source stands before the move that needs it, whichever rank does",
        (*MOVES, *GAPS, *shared, *ranks, z3.Or(own_i >= j + 1, other_i >= j + 1), there >= here),
    )
    yield Obligation(
        "needs: an exchange stays behind all that was captured before it and starts in its gap",
        (*MOVES, gap_i == i, *between(0, gap_j, j), j < i, there >= here),
    )
    mine, other, third = z3.Ints("mine other third")
    yield Obligation(
        "waits: a rank that is waited for is behind", (waits_for(mine, other), other >= mine)
    )
    yield Obligation(
        "waits: step, so is a rank waited for through others; it is never the same",
        (third < mine, waits_for(third, other), z3.Not(z3.And(other < mine, other != mine))),
    )
    yield Obligation(
        "waits: a rank that has none behind it can go on", (mine <= other, waits_for(mine, other))
    )


# Wrong variants -----------------------------------------------------------------------------

SMALL = (many == 4, *between(0, i, 3), *between(0, j, 3), i != j)
OWN = (
    *between(0, own_i, i),
    *between(0, other_i, i),
    *between(0, own_j, j),
    *between(0, other_j, j),
)


def begun(gaps: Mapping[int, int], given: Mapping[int, int], n: int) -> list[Task]:
    """What a rank does whose sources are there in some gaps, if it is told others.

    Each move brings a value that is looked at right behind its place.
    """
    tasks: list[Task] = []
    for number in range(n):
        tasks += [
            Task(TaskKind.PURE, abs, (), {}, 100 + move, (), (), 0)
            for move in range(n)
            if gaps.get(move, move) == number
        ]
        source = (Ref(100 + number),)
        tasks.append(Task(TaskKind.MOVE, _Mover(number), source, {}, number, (), (), 0))
        tasks.append(Task(TaskKind.PURE, abs, (Ref(number),), {}, 300 + number, (), (), 0))
    return start_early(tasks, {}, [given.get(k, k) for k in range(n)], [True] * n, 200)


def order_of(done: Sequence[Task]) -> list[int]:
    """In which order moves begin."""
    starts = [task for task in done if task.kind in (*COLLECTIVE, TaskKind.START)]
    return [task.function() for task in starts]


def used_too_early(done: Sequence[Task]) -> list[int]:
    """The moves whose values are looked at before they are there."""
    there: set[int | None] = set()
    late = []
    for task in done:
        late += [n for n in refs_in(task.args) if n < 100 and n not in there]
        if task.kind in (TaskKind.MOVE, TaskKind.WAIT):
            there.add(task.out)
    return late


@dataclass(frozen=True, slots=True)
class _Mover:
    """A move that only has a number, whether it is done or begun."""

    number: int
    begins: bool = False

    def __call__(self) -> int:
        return self.number


def _own_gaps() -> Obligation:
    """Every rank takes its own gaps: two ranks may begin two moves in different orders."""
    mine = place(own_i, i, many) < place(own_j, j, many)
    theirs = place(other_i, i, many) > place(other_j, j, many)
    return Obligation(
        "own gaps", (*SMALL, *OWN, mine, theirs), (i, j, own_i, own_j, other_i, other_j)
    )


def _show_own_gaps(v: Mapping[str, int]) -> Shown:
    first = {v["i"]: v["own_i"], v["j"]: v["own_j"]}
    second = {v["i"]: v["other_i"], v["j"]: v["other_j"]}
    orders = [order_of(begun(gaps, gaps, 4)) for gaps in (first, second)]
    agreed = {k: max(first[k], second[k]) for k in first}
    same = [order_of(begun(gaps, agreed, 4)) for gaps in (first, second)]
    return Shown(
        "python -m proofs meeting_order",
        orders[0] != orders[1] and same[0] == same[1],
        f"two ranks would begin moves in the orders {orders[0]} and {orders[1]}, and wait for each "
        f"other; with gaps agreed on both take {same[0]}",
    )


def _earliest_gap() -> Obligation:
    """The earliest gap of all ranks in the place of the latest: what others need waits for a source."""
    early = z3.Or(gap_i == own_i, gap_i == other_i)
    least = (gap_i <= own_i, gap_i <= other_i)
    behind = (
        j < own_i,
        gap_i < j,
        j < i,
    )  # j stands behind i, but is needed before i's source is there
    return Obligation(
        "earliest gap", (*SMALL, *OWN, early, *least, *behind), (i, j, own_i, other_i, gap_i)
    )


def _show_earliest_gap(v: Mapping[str, int]) -> Shown:
    own, told = {v["i"]: v["own_i"]}, {v["i"]: v["gap_i"]}
    late = used_too_early(begun(own, told, 4))
    return Shown(
        "python -m proofs meeting_order",
        v["j"] in late and not used_too_early(begun(own, own, 4)),
        f"move {v['i']}, told to begin in gap {v['gap_i']}, has its source in gap {v['own_i']} only: "
        f"the values of moves {late}, which stand behind it, would be used before they are there",
    )


THEOREM = Theorem(
    "meeting_order",
    "Ranks of a program make its moves and exchanges in one total order, whatever they compute in "
    "between: moves begun early begin where their sources are there on every rank, what a move needs "
    "stands before it, and no rank can wait in a circle.",
    "Induction over places of the order; base and step are obligations.",
    "Ranks that captured different programs: these are refused before anything moves. That a move, once all "
    "ranks have come to it, ends: see pairing. That Python calls programs in the same order on all ranks.",
    obligations,
    (
        Twin("every rank takes its own gaps", _own_gaps, _show_own_gaps),
        Twin("the earliest gap of all ranks", _earliest_gap, _show_earliest_gap),
    ),
)
