"""Pairing: every send has its receive, no wait can be part of a circle, no slot is written too early.

Statement. Ranks pass data on in rounds. Between nodes each pair of ranks has one message in a round,
or none; a rank posts its receives, then its sends, a few at a time, and waits for all of them at the end
of the round; where staging has two halves, it posts those of the next round before it meets for this one.
Within a node every rank writes what its neighbours need into a slot of its pool, they meet, and read;
slots alternate from meeting to meeting. For every number of ranks, nodes, pieces and rounds:
(1) a message is sent exactly where one is received, with the same pieces in the same order, so of the
same size; so the k-th message that a rank sends another is the k-th that the other receives from it.
(2) A rank that waits, at a meeting or for messages, even if sends are not buffered, waits for ranks
that are behind it in one order of all events. So there is no circle of ranks that wait for each other,
and the rank that is furthest behind can always go on: no schedule deadlocks.
(3) What is read from a slot is what was written for that meeting; nobody writes a slot that a
neighbour may still read; slots for even and odd meetings do not overlap, whatever their sizes. When a
rank has left a meeting, everything that was read before it is read, so arrays that neighbours read in
place may be changed or freed after it. A piece between two ranks of a node is copied by exactly one of
them: the sender where the receiver has opened its tile to be written, else the receiver; an opened tile
is written after its owner has come to the first meeting, and all of it before the owner leaves the last.
(4) Of two halves of staging, what is packed or received for the
next round lies in the one that this round does not use, and the round before is done with it.

Encoding. Ranks, pieces, sizes, meetings and times are symbols. :func:`sends` and :func:`receives` say
which pieces a rank puts into a message and expects in one, as ``Compiler.round`` does; tests compare
them with it, and the order of events with ``Stage``. Events of a rank stand in blocks: post, arrive,
leave, done, and between post and arrive, ahead: the post of the next block; a round is one block (the
first round of a stage two: it meets before it posts), a meeting without messages is one too, which
nodes that do not meet there skip. ``ControlPage.slot`` is the program's
own function (:mod:`proofs.engine.branches`).

What joins the obligations. *Messages*: base and step of an induction over the list of all pieces of a
step, of which each rank has its own in the same order, and over rounds; that all ranks cut a piece
alike is because parts and rounds are made from numbers that all ranks agreed on (``all_max``), and
``part_of`` depends on nothing else. MPI keeps messages of a pair in order. *Waits*: all ranks that take
part in a block have it at the same number; by induction over positions every event happens. *Times*: a
meeting is left after all have arrived; meetings that lie further apart are joined by induction, base
and step being obligations. Long messages are cut by their size alone, which both ends know, and their
parts keep their order. *Progress*: a rank that waits, be it at a meeting or for messages, calls MPI
again and again (``Meeting.wait_until``, ``wait_for``), so what it has posted is delivered meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import z3

from proofs.engine.branches import claimed, symbols
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.passing import Post, brought, delivered, passed, pieces_of, pooled
from proofs.evidence.showing import Asked, wrong_received
from redist.plan.rates import FLAT
from redist.runtime.ranks.control_page import ControlPage
from redist.runtime.schedule.pieces import box_at, pieces_of_step
from redist.runtime.schedule.rounds import RoundPart, part_counts, part_of
from redist.runtime.simulator import random_tiles, simulate

POST, AHEAD, ARRIVE, LEAVE, DONE = range(5)
"""What a rank does in a block, in this order, each if there is reason to."""


def obligations() -> Iterator[Obligation]:
    """See the module."""
    yield from _messages()
    yield from _waits()
    yield from _times()
    yield from _opened()
    yield _slots_apart()
    yield from _halves()


# Messages -----------------------------------------------------------------------------------


def sends(me: Any, peer: Any, sender: Any, receiver: Any, is_near: Any) -> bool:
    """Whether a rank puts a piece into its message to a peer; ``is_near``: it shares its memory."""
    is_mine = bool(sender == me) or bool(receiver == me)
    return is_mine and bool(receiver != me) and not is_near and bool(receiver == peer)


def receives(me: Any, peer: Any, sender: Any, receiver: Any, is_near: Any) -> bool:
    """Whether a rank expects a piece in the message from a peer."""
    is_mine = bool(sender == me) or bool(receiver == me)
    return is_mine and bool(receiver == me) and not is_near and bool(sender == peer)


def _messages() -> Iterator[Obligation]:
    a, b, node_a, node_b, sender, receiver, size = symbols("a b node_a node_b sender receiver size")
    sent, got, before, expected = symbols("sent got before expected")
    ranks = (a >= 0, b >= 0, a != b, sender >= 0, receiver >= 0, size >= 0)

    def step() -> list[Any]:
        is_near = bool(node_a == node_b)
        out = sends(a, b, sender, receiver, is_near)
        into = receives(b, a, sender, receiver, is_near)
        place = (sent, got)  # where the piece lies in the message, on either side
        return [
            out == into,
            place[0] == place[1],
            sent + (size if out else 0) == got + (size if into else 0),
        ]

    yield claimed(
        "messages: base, without pieces there is none", (*ranks, sent == 0, got == 0),
        lambda: sent == got,
    )  # fmt: skip
    yield claimed(
        "messages: step, a piece goes into the message where it is expected, at the same place",
        (*ranks, sent == got),
        step,
    )
    parts, n, number = symbols("parts n number")

    def cut_alike() -> Any:
        (count,) = part_counts((n,), parts)
        (other,) = part_counts((n,), expected)
        sizes = [box_at((n,), (k,), (number,))[1][0] for k in (count, other)]
        return sizes[0] == sizes[1]

    yield claimed(
        "messages: parts of the same number, of pieces cut into as many, have the same size",
        (n >= 1, parts >= 1, expected == parts, number >= 0),
        cut_alike,
    )
    yield claimed(
        "messages: step over rounds, the next one sent is the next one received",
        (before >= 0, expected == before, sent >= 0, got == sent),
        lambda: before + (1 if sent > 0 else 0) == expected + (1 if got > 0 else 0),
    )


# Waits --------------------------------------------------------------------------------------


def position(block: Any, kind: int) -> Any:
    """Where an event stands in the one order of all events; the same for all ranks."""
    return 5 * block + kind


def posted(block: Any, early: bool) -> Any:
    """Where the messages of a block are posted: in it, or ahead, in the block before."""
    return position(block - 1, AHEAD) if early else position(block, POST)


def waits_for(mine: Any, other: Any, block: Any) -> Any:
    """Whether a rank whose next event is ``mine`` waits in a block for one whose next is ``other``.

    It cannot leave a meeting to which the other has not come, nor end messages, received or sent
    without a buffer, whose other end is not posted, be it early or not. Sends that have yet to take
    their turn go on only when their rank waits for messages: until then, whoever expects them waits. A
    turn comes when the sends before it are done, so for receives that are not posted.
    """
    leaves = z3.And(mine == position(block, LEAVE), other <= position(block, ARRIVE))
    done = mine == position(block, DONE)
    ends = [z3.And(done, other <= posted(block, early)) for early in (False, True)]
    turns = z3.And(done, other <= position(block, LEAVE))
    return z3.Or(leaves, *ends, turns)


def _waits() -> Iterator[Obligation]:
    block, later, mine, other, third = z3.Ints("block later mine other third")
    yield claimed(
        "order: what a rank does next stands later",
        (block >= 0, later > block),
        lambda: [position(block, k) < position(block, k + 1) for k in (POST, AHEAD, ARRIVE, LEAVE)],
        lambda: position(block, DONE) < position(later, POST),
    )
    yield claimed(
        "waits: a rank that is waited for is behind",
        (block >= 0, waits_for(mine, other, block)),
        lambda: other < mine,
    )
    yield claimed(
        "waits: step, so is a rank waited for through others; it is never the same",
        (block >= 0, third < mine, waits_for(third, other, block)),
        lambda: [other < mine, other != mine],
    )
    yield claimed(
        "waits: a rank that has none behind it can go on",
        (block >= 0, mine >= 0, mine <= other),
        lambda: z3.Not(waits_for(mine, other, block)),
    )


# Times --------------------------------------------------------------------------------------

Int = z3.IntSort()
arrive, leave, write, read = (
    z3.Function(name, Int, Int, Int) for name in "arrive leave write read".split()
)
"""When a rank comes to a meeting, leaves it, writes its slot for it, and reads what others wrote."""


def meeting_facts(ranks: Sequence[Any], meetings: Sequence[Any]) -> list[Any]:
    """What holds of these ranks of a node at these meetings and those next to them.

    Nobody leaves before all have come; ranks come to meetings in order; a slot is written between
    leaving the meeting before and coming to this one, and read between leaving this one and coming to
    the next.
    """
    facts = []
    for q in (number + by for number in meetings for by in (-1, 0, 1)):
        for r in ranks:
            facts += [leave(r, q) >= arrive(p, q) for p in ranks]
            facts += [leave(r, q) <= arrive(r, q + 1)]
            facts += [leave(r, q - 1) <= write(r, q), write(r, q) <= arrive(r, q)]
            facts += [leave(r, q) <= read(r, q), read(r, q) <= arrive(r, q + 1)]
    return facts


def in_order(r: Any, early: Any, late: Any) -> Any:
    """That a rank leaves an earlier meeting before it comes to a later one."""
    return z3.Implies(early < late, leave(r, early) <= arrive(r, late))


def _times() -> Iterator[Obligation]:
    a, b, q, later = z3.Ints("a b q later")
    two = (*meeting_facts((a, b), (q, later)), q >= 1)
    yield claimed(
        "times: base, a meeting is left before the next is come to",
        (*meeting_facts((a,), (q,)), later == q + 1),
        lambda: in_order(a, q, later),
    )
    yield claimed(
        "times: step, and so before every later one",
        (*meeting_facts((a,), (later,)), q < later, in_order(a, q, later)),
        lambda: in_order(a, q, later + 1),
    )
    yield claimed(
        "slot: what is read at a meeting was written before", two, lambda: write(a, q) <= read(b, q)
    )
    yield claimed(
        "slot: it is written for a later meeting only when it has been read",
        (*two, later > q, in_order(b, q + 1, later - 1), q % 2 == later % 2),
        lambda: write(a, later) >= read(b, q),
    )
    yield claimed(
        "slot: nor is what was written overwritten before: a rank writes for meetings in order",
        (*two, later > q, in_order(a, q, later), in_order(a, q, later - 1)),
        lambda: write(a, later) >= write(a, q),
    )
    yield claimed(
        "reads: who has left a meeting finds everything read that was read before it",
        (*two, later > q, in_order(b, q + 1, later)),
        lambda: leave(a, later) >= read(b, q),
    )
    yield claimed(
        "meetings: nobody is two ahead of another, so two control words are enough",
        two,
        lambda: arrive(a, q + 1) >= arrive(b, q),
    )


def copies(me: Any, sender: Any, receiver: Any, is_open: Any) -> bool:
    """Whether a rank copies a piece of its node; ``is_open``: the receiver's tile may be written."""
    if bool(receiver != me):
        return bool(sender == me) and is_open
    return bool(sender == me) or not is_open


def _opened() -> Iterator[Obligation]:
    """What a rank brings, it writes when others would read: see :func:`meeting_facts`."""
    a, b, sender, receiver, is_open = symbols("a b sender receiver is_open")
    ends = (a == sender, b == receiver, a >= 0, b >= 0)
    yield claimed(
        "opened: a piece is copied by its sender or by its receiver, never by both",
        (*ends, a != b),
        lambda: [
            copies(a, sender, receiver, opened) != copies(b, sender, receiver, opened)
            for opened in (bool(is_open > 0),)
        ],
    )
    yield claimed(
        "opened: what stays is copied once, by the rank itself",
        (*ends, a == b),
        lambda: copies(a, sender, receiver, bool(is_open > 0)),
    )
    owner, other, first, last = z3.Ints("owner other first last")
    facts = (*meeting_facts((owner, other), (first, last)), first >= 1, last > first)
    brought = read(other, first)
    yield claimed(
        "opened: a tile is written after its owner has come with it",
        facts,
        lambda: brought >= arrive(owner, first),
    )
    yield claimed(
        "opened: and before its owner leaves the meeting after the last round",
        (*facts, in_order(other, first + 1, last)),
        lambda: brought <= leave(owner, last),
    )


def _halves() -> Iterator[Obligation]:
    """Round k uses half k % 2, and is posted ahead in the block of round k - 1."""
    k, size, offset, start = symbols("k size offset start")
    yield claimed(
        "halves: the next round lies in the half that this one does not use",
        (k >= 1,),
        lambda: [(k + 1) % 2 != k % 2, (k + 1) % 2 == (k - 1) % 2],
    )
    yield claimed(
        "halves: it is posted when the round before is done, and that was the last in its half",
        (k >= 1,),
        lambda: position(k - 1, DONE) < posted(k + 1, True),
    )
    yield claimed(
        "halves: they do not overlap",
        (k >= 0, start >= 0, offset >= 0, offset < size),
        lambda: start + (k % 2) * size + offset < start + (k % 2 + 1) * size,
    )


def _slots_apart() -> Obligation:
    pool, even, odd, start = symbols("pool even odd start")
    page: Any = SimpleNamespace(pool_address=start, pool_bytes=pool)

    def apart() -> list[Any]:
        front, back = ControlPage.slot(page, 0, even), ControlPage.slot(page, 1, odd)
        return [front == start, front + even <= back, back + odd == start + pool]

    return claimed(
        "slot: those for even and odd meetings do not overlap, of whatever transfers they are",
        (start >= 0, even >= 0, odd >= 0, 2 * even <= pool, 2 * odd <= pool),
        apart,
    )


# Wrong variants -----------------------------------------------------------------------------


def _gather(n: int) -> Asked:
    """Two ranks that each have n elements that the other needs."""
    return Asked(f"i32[{2 * n}{{x}}]", f"i32[{2 * n}]", "x=2")


def _one_slot() -> Obligation:
    a, b, q, n = z3.Ints("a b q n")
    given = (*meeting_facts((a, b), (q, q + 1)), q >= 1, a != b, n >= 2, n <= 6)
    return claimed("one slot", given, lambda: write(a, q + 1) >= read(b, q), shown=(n,))


def _show_one_slot(v: Mapping[str, int]) -> Shown:
    asked = _gather(v["n"])
    plan = asked.plan()
    right = simulate(plan, random_tiles(plan.source)).tiles
    runs = [pooled(plan, 2, slots) for slots in (1, 2)]
    same = [all(np.array_equal(got[r], right[r]) for r in right) for got, _ in runs]
    text = "with one slot, staged again before it is read, part of the data arrives"
    shown = wrong_received(asked, runs[0][1], text)
    return replace(shown, contradicts=shown.contradicts and same == [False, True])


def _no_last_meeting() -> Obligation:
    """Owners that use an opened tile when their own copies are done."""
    a, b, q, n = z3.Ints("a b q n")
    given = (*meeting_facts((a, b), (q,)), q >= 1, a != b, n >= 2, n <= 6)
    return claimed("no last meeting", given, lambda: read(b, q) <= read(a, q), shown=(n,))


def _show_no_last_meeting(v: Mapping[str, int]) -> Shown:
    """Rank 1 is slow: when rank 0 has brought its part, its own tile lacks what rank 1 brings."""
    n = v["n"]
    asked = Asked(f"i32[{2 * n}{{x}}, 2]", f"i32[{2 * n}, 2{{x}}]", "x=2")
    plan = asked.plan()
    (phase,) = pieces_of_step(plan.steps[0], plan.source, 0, FLAT)
    right = simulate(plan, random_tiles(plan.source)).tiles
    after = [brought(plan, ranks)[0] for ranks in ((0,), (0, 1))]
    same = [bool(np.array_equal(tiles[0], right[0])) for tiles in after]
    text = "without a meeting at the end, a tile is used before all of it has been brought"
    shown = wrong_received(asked, brought(plan, (0,))[1], text)
    right_way = phase.is_brought and same == [False, True]
    return replace(shown, contradicts=shown.contradicts and right_way)


def _sends_first() -> Obligation:
    """Ranks that end their sends, one after another, before they post a receive."""
    block, mine, other, n = z3.Ints("block mine other n")
    send, receive = POST, ARRIVE
    waits = z3.And(mine == position(block, send), other <= position(block, receive))
    return claimed(
        "sends first", (block >= 0, other >= 0, waits, n >= 1, n <= 6), lambda: other < mine,
        shown=(n,),
    )  # fmt: skip


def _show_sends_first(v: Mapping[str, int]) -> Shown:
    asked = _gather(v["n"])
    pieces = [p for p in pieces_of(asked.plan()) if p.sender != p.receiver]
    first: dict[int, list[list[Post]]] = {0: [], 1: []}
    together: dict[int, list[list[Post]]] = {0: [[]], 1: [[]]}
    for p in pieces:
        first[p.sender].append([("to", p.receiver)])
        together[p.sender][0].append(("to", p.receiver))
        together[p.receiver][0].append(("from", p.sender))
    for p in pieces:
        first[p.receiver].append([("from", p.sender)])
    wanted = {(p.sender, p.receiver) for p in pieces}
    arrived = delivered(first)
    elems = sum(p.shape[0] for p in pieces if (p.sender, p.receiver) in arrived)
    shown = wrong_received(asked, elems, "if sends came first, both ranks would wait for ever")
    return replace(shown, contradicts=shown.contradicts and set(delivered(together)) == wanted)


def _own_parts() -> Obligation:
    n, parts = symbols("n parts")

    def alike() -> Any:
        counts = [part_counts((n,), k)[0] for k in (parts, parts + 1)]
        sizes = [box_at((n,), (k,), (0,))[1][0] for k in counts]
        return sizes[0] == sizes[1]

    given = (n >= 2, n <= 9, parts >= 1, parts <= 4, parts < n)
    return claimed("own parts", given, alike, shown=(n, parts))


def _show_own_parts(v: Mapping[str, int]) -> Shown:
    asked = _gather(v["n"])
    plan = asked.plan()
    (piece,) = [p for p in pieces_of(plan) if (p.sender, p.receiver) == (0, 1)]
    sizes = []
    for parts in (v["parts"], v["parts"] + 1):
        cut = [part_of(piece, RoundPart(0, parts, number)) for number in range(parts)]
        sizes.append([0 if part is None else part.shape[0] for part in cut])
    alike = sum(a for a, b in zip(*sizes, strict=False) if a == b)
    right = simulate(plan, random_tiles(plan.source)).tiles
    got, _ = passed(plan, v["parts"], v["parts"], part_of)
    text = f"messages of {sizes[0]} elements, expected {sizes[1]}: only those alike can arrive"
    shown = wrong_received(asked, 2 * alike, text)
    same = all(np.array_equal(got[r], right[r]) for r in right)
    return replace(shown, contradicts=shown.contradicts and same)


THEOREM = Theorem(
    "pairing",
    "For every number of ranks and nodes: each message has exactly one receive of the same size and "
    "order; waits, also of sends without buffers, are for ranks that are behind, so no schedule can "
    "deadlock; a pool slot is never overwritten while a neighbour may read it; every piece is copied "
    "once, and an opened tile is written only between the meetings that open and close it.",
    "Induction over pieces and rounds (messages), over positions (waits) and over meetings (times).",
    "Ranks that fail, are killed or call in another order than the others (these end in errors, by "
    "tests). That MPI keeps the order of a pair's messages and delivers what was posted while a rank "
    "waits in its calls; a rank that has returned to its caller makes no progress for MPI. Memory order "
    "of the machine: meetings are taken to make earlier writes visible. Repeated calls by script "
    "are written to do the same in the same order; tests compare their results only.",
    obligations,
    (
        Twin("one slot in place of two", _one_slot, _show_one_slot),
        Twin("no meeting after what is brought", _no_last_meeting, _show_no_last_meeting),
        Twin("sends before receives", _sends_first, _show_sends_first),
        Twin("each rank its own number of parts", _own_parts, _show_own_parts),
    ),
)
