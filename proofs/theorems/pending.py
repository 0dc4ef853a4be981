"""Pending reductions: how many receives combining partial values takes at least, and who needs more.

Statement. An element has g partial values; each device holds at most one of them (several may hold
the same), and r devices need the combination of all. Whatever the steps, that takes at least
g + r - 1 receives of one value each, one less if a device that needs it holds a partial value; and
so many are enough. This is what ``layout.lower_bound.lower_bound_bytes`` adds up where the target leaves
nothing pending. A reduce_scatter takes that many where one device needs the element, an all_reduce
where partial values have no copies or g = 2; both take more elsewhere.

Encoding. Receives happen one after another. A device v that receives from w knows afterwards at
most what v and w knew. ``part(x)`` is the partial value that device x holds at first.

What joins the obligations. Let u be the first device that knows all g. By induction over receives,
"known: step" says that whoever knows a partial value held it at first or a device that held it has
sent, and "sent: step" that one receive makes a sender of at most one partial value more; so up to
that moment there were g receives, one less if u held one ("early"). "complete: step" says that
every later receive completes at most one device, so there are r more, one less if u is among them
("late"). "least" adds up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import z3

from proofs.engine.symbols import Fact, Num, between
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.showing import Asked, wrong_received

INT, BOOL = z3.IntSort(), z3.BoolSort()
part = z3.Function("part", INT, INT)
known = z3.Function("known", INT, INT, BOOL)
sent = z3.Function("sent", INT, BOOL)
g, r, v, w, x, x2, p, p2 = z3.Ints("g r v w x x2 p p2")
HERE = (g >= 2, r >= 1)


def least_receives(g: Num, r: Num, some: Num) -> Num:
    """Receives that an element needs; ``some`` is 1 if a device that needs it holds a part, else 0.

    >>> least_receives(4, 4, 1), least_receives(4, 1, 1)        # all_reduce, reduce_scatter
    (6, 3)
    """
    return g + r - 1 - some


def ring_receives(g: Num, copies: Num) -> Num:
    """Receives in an all_reduce over g devices, in as many groups as partial values have copies.

    >>> ring_receives(4, 1)
    6
    """
    return copies * 2 * (g - 1)


def scatter_receives(g: Num, r: Num, own: Num) -> Num:
    """Receives in a reduce_scatter to r devices, of which ``own`` hold a partial value."""
    return r * g - own


def known_after(x: Num, p: Num) -> Fact:
    """Device x knows partial value p after v has received from w."""
    return z3.Or(known(x, p), z3.And(x == v, known(w, p)))


def sent_after(p: Num) -> Fact:
    """A device that held p at first has sent, after w has."""
    return z3.Or(sent(p), part(w) == p)


def obligations() -> Iterator[Obligation]:
    """See the module."""
    at_first = known(x, p) == (part(x) == p)
    yield Obligation(
        "known: base, at first devices know what they hold",
        (at_first, known(x, p), z3.Not(z3.Or(part(x) == p, sent(p)))),
    )
    so_far = [z3.Implies(known(y, p), z3.Or(part(y) == p, sent(p))) for y in (x, w)]
    yield Obligation(
        "known: step, who knows a partial value held it or a holder has sent",
        (*so_far, known_after(x, p), z3.Not(z3.Or(part(x) == p, sent_after(p)))),
    )
    neither = (p != p2, z3.Not(sent(p)), z3.Not(sent(p2)))
    yield Obligation(
        "sent: step, one receive makes holders of at most one partial value senders",
        (*neither, z3.And(sent_after(p), sent_after(p2))),
    )
    new = [z3.And(known_after(y, q), z3.Not(known(y, q))) for y, q in ((x, p), (x2, p2))]
    yield Obligation(
        "complete: step, one receive teaches one device at most", (x != x2, z3.And(*new))
    )
    yield from _sums()
    yield from _steps()


def _sums() -> Iterator[Obligation]:
    early, late, senders, holds, needs, some = z3.Ints("early late senders holds needs some")
    bits = (*between(0, holds, 1), *between(0, needs, 1), *between(0, some, 1))
    new = z3.Int("new")
    complete = z3.Int("complete")
    start = (early == 0, late == 0, senders == 0, complete == 1)
    yield Obligation(
        "early, late: base, before a receive nobody has sent; u is complete before the later ones",
        (*start, z3.Not(z3.And(senders <= early, complete <= 1 + late))),
    )
    yield Obligation(
        "early: step, no more partial values have senders than there were receives",
        (early >= 0, senders <= early, *between(0, new, 1), senders + new > early + 1),
    )
    yield Obligation(
        "late: step, no more devices are complete than there were receives, and the first",
        (late >= 0, complete <= 1 + late, *between(0, new, 1), complete + new > 1 + late + 1),
    )
    count = (senders >= g - holds, early >= senders, late >= r - needs)
    chosen = z3.Implies(z3.And(holds == 1, needs == 1), some == 1)
    total = early + late
    yield Obligation(
        "least: no sequence of receives is shorter",
        (*HERE, *bits, *count, chosen, total < least_receives(g, r, some)),
    )
    collected = (g - some) + (r - 1)
    yield Obligation(
        "least: collecting at a device that needs it, one that holds a part if any does, is enough",
        (*HERE, *bits, collected != least_receives(g, r, some)),
    )


def _steps() -> Iterator[Obligation]:
    copies, own = z3.Ints("copies own")
    ring, least = ring_receives(g, copies), least_receives(g, g * copies, 1)
    alone = z3.Or(copies == 1, g == 2)
    yield Obligation(
        "all_reduce: takes the least where partial values have no copies or g = 2, else more",
        (*HERE, copies >= 1, z3.Not(z3.And(ring >= least, (ring == least) == alone))),
    )
    scatter = scatter_receives(g, r, own)
    least = least_receives(g, r, z3.If(own > 0, 1, 0))
    enough = z3.And(scatter >= least, z3.Implies(r == 1, scatter == least))
    yield Obligation(
        "reduce_scatter: takes the least where one device needs the element, never less",
        (*HERE, own >= 0, own <= r, z3.Not(enough)),
    )


# Wrong variants -----------------------------------------------------------------------------


def _one_way() -> Obligation:
    n = z3.Int("n")
    small = (*between(1, n, 4), *between(2, g, 4), r == g)
    return Obligation("one way", (*small, least_receives(g, r, 1) > g - 1), (n, g))


def _show_one_way(v: Mapping[str, int]) -> Shown:
    asked = Asked(f"i32[{v['n']}] sum{{x}}", f"i32[{v['n']}]", f"x={v['g']}")
    text = f"if {v['g'] - 1} receives an element gave all {v['g']} devices the sum"
    return wrong_received(asked, v["n"] * (v["g"] - 1), text)


def _one_is_lost() -> Obligation:
    n = z3.Int("n")
    small = (*between(2, n, 8), *between(2, g, 4), r == 1)
    return Obligation("lost", (*small, least_receives(g, r, 1) > g - 2), (n, g))


def _show_one_is_lost(v: Mapping[str, int]) -> Shown:
    asked = Asked(f"i32[{v['n']}] sum{{x}}", f"i32[{v['n']}{{x}}]", f"x={v['g']}")
    text = f"if {v['g'] - 2} receives brought the sum of {v['g']} partial values together"
    return wrong_received(asked, v["n"] * (v["g"] - 2), text)


THEOREM = Theorem(
    "pending",
    "Combining g partial values of an element for r devices takes at least g + r - 1 receives, one "
    "less if one of them holds a partial value, and no more; a reduce_scatter takes that many for "
    "r = 1, an all_reduce where partial values have no copies or g = 2.",
    "Induction over the receives of one element; base and step are obligations.",
    "Values move whole and are combined by devices that received them. The bound where the target "
    "leaves a reduction pending is compared with brute force by tests, not proved. A reduce_scatter to "
    "several devices, or an all_reduce with copies of more than two partial values, takes more.",
    obligations,
    (
        Twin("an all_reduce in g - 1 receives", _one_way, _show_one_way),
        Twin("a reduce_scatter in g - 2 receives", _one_is_lost, _show_one_is_lost),
    ),
)
