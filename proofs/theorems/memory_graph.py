"""Memory graph: with credits, no order of a program exceeds a limit or changes what a task finds.

Statement. Vertices take bytes of a place when they begin and give bytes back when they are done. Every byte
that a vertex takes is a credit: from the limit, or from a vertex before it that gives it back. Nobody, the
limit included, is asked for more than it has. Who reads a residency is after who wrote it last, who writes or
ends it is after all who use it. For any graph, any sizes and any number of vertices at once: (1) live bytes
never exceed the limit; (2) a task finds its operands there, with the content that they have in the order in
which the graph is listed; (3) so results are the same in every order.

Encoding. Every vertex has a moment at which it begins and a later one at which it is done; an edge says that
the one is done when the other begins. At each moment ``live`` bytes are taken, ``idle`` bytes were given back
and are not taken yet, ``spent`` bytes of the limit were taken; the invariant is

    live + idle + (limit - spent) <= limit.

What lies there at the beginning is live and spent from the beginning. A vertex that begins takes
``from_limit`` and ``from_done``; one that is done gives ``back``.

What joins the obligations. Bytes: induction over the moments of a run. ``idle`` is the sum over givers that
are done, of which two stand for all. Several places are several invariants. Contents: induction over the
vertices as listed; all writes of a residency but those next to a reader are before the one or after the
other, because writes are a chain. That the checker (:mod:`redist.check.memory_graphs`) demands these edges
and sums is compared with random graphs, and with one mutation for each rule, by tests.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

import z3

from proofs.engine.symbols import Num
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.memory_runs import WrongRunError, run_in_some_order
from redist.check.memory_graphs import check_memory_graph
from redist.errors import MemoryCheckError
from redist.program.memory_graph import Credit, MemoryGraph, MemoryPlace, Residency, Vertex
from redist.program.tasks import MemoryTask, MemoryTile, TaskList

limit, live, spent, idle = z3.Ints("limit live spent idle")
size, from_limit, from_done, back = z3.Ints("size from_limit from_done back")
NUMBERS = (limit >= 0, live >= 0, idle >= 0, spent >= 0, spent <= limit)
CREDITS = (size >= 0, from_limit >= 0, from_done >= 0)


class Moments:
    """When a vertex begins and is done, in some run."""

    def __init__(self, name: str) -> None:
        self.begin, self.end = z3.Ints(f"begin_{name} end_{name}")

    @property
    def takes_time(self) -> object:
        """It begins, and later it is done."""
        return z3.And(self.begin >= 0, self.begin < self.end)

    def is_before(self, other: Moments) -> object:
        """What an edge says."""
        return self.end <= other.begin


maker, reader, writer, ender, middle = map(Moments, "maker reader writer ender middle".split())
RUN = tuple(one.takes_time for one in (maker, reader, writer, ender, middle))


def holds(live: Num, idle: Num, spent: Num, limit: Num) -> object:
    """Live bytes, bytes given back and not taken yet, and what is left of the limit: the limit at most.

    >>> holds(8, 2, 10, 10), holds(9, 2, 10, 10)
    (True, False)
    """
    return live + idle + (limit - spent) <= limit


def obligations() -> Iterator[Obligation]:
    """See the module."""
    yield from _bytes()
    yield from _contents()


def _bytes() -> Iterator[Obligation]:
    before = holds(live, idle, spent, limit)
    taken = (from_limit <= limit - spent, from_done <= idle, size <= from_limit + from_done)
    yield Obligation(
        "bytes: base, what lies there at the beginning is spent, nothing is given back",
        (*NUMBERS, live == spent, idle == 0, z3.Not(holds(live, idle, spent, limit))),
    )
    yield Obligation(
        "bytes: step, a vertex begins: it takes what it has credits for",
        (
            *NUMBERS, *CREDITS, before, *taken,
            z3.Not(holds(live + size, idle - from_done, spent + from_limit, limit)),
        ),
    )  # fmt: skip
    yield Obligation(
        "bytes: step, a vertex is done: what it gives back was live",
        (
            *NUMBERS, before, back >= 0, back <= live,
            z3.Not(holds(live - back, idle + back, spent, limit)),
        ),
    )  # fmt: skip
    yield Obligation(
        "bytes: so live bytes are within the limit, at every moment",
        (*NUMBERS, before, z3.Not(live <= limit)),
    )
    given, used, mine, later = zip(
        *(z3.Ints(f"given{k} used{k} mine{k} later{k}") for k in (1, 2)), strict=True
    )
    sums = [given[k] - used[k] for k in (0, 1)]
    yield Obligation(
        "bytes: credits of givers that are done are idle bytes, since nobody gives more than it had",
        (
            *(one >= 0 for part in (given, used, mine, later) for one in part),
            *(used[k] + mine[k] + later[k] <= given[k] for k in (0, 1)),
            idle >= sum(sums),
            z3.Not(z3.And(sum(mine) <= idle, *(one >= 0 for one in sums))),
        ),
    )


def _contents() -> Iterator[Obligation]:
    yield Obligation(
        "edges: step, a vertex before another through others is done when that begins",
        (*RUN, maker.is_before(middle), middle.is_before(ender), z3.Not(maker.is_before(ender))),
    )
    moment = z3.Int("moment")
    runs = (moment >= reader.begin, moment < reader.end)
    yield Obligation(
        "contents: a residency is made when its user begins, and has not ended when that is done",
        (
            *RUN, maker.is_before(reader), reader.is_before(ender), *runs,
            z3.Not(z3.And(maker.end <= moment, moment < ender.end)),
        ),
    )  # fmt: skip
    yield Obligation(
        "contents: no write is under way while a reader runs, whichever of the chain it is",
        (
            *RUN, maker.is_before(reader), reader.is_before(ender),  # writes next to the reader
            _is_of_chain(writer, maker, ender), *runs,
            z3.Not(z3.Or(writer.end <= moment, moment < writer.begin)),
        ),
    )  # fmt: skip
    yield Obligation(
        "contents: the write that a reader is told by its edge is the last that is done before it",
        (
            *RUN, maker.is_before(reader), reader.is_before(ender),
            _is_of_chain(writer, maker, ender), writer.end <= reader.begin,
            z3.Not(writer.end <= maker.end),
        ),
    )  # fmt: skip
    one, other, one_listed, other_listed = z3.Ints("one other one_listed other_listed")
    result = z3.Function("result", z3.IntSort(), z3.IntSort(), z3.IntSort())
    yield Obligation(
        "contents: step, a vertex that finds what it finds as listed writes what it writes as listed",
        (
            one == one_listed, other == other_listed,
            z3.Not(result(one, other) == result(one_listed, other_listed)),
        ),
    )  # fmt: skip


def _is_of_chain(write: Moments, last: Moments, following: Moments) -> object:
    """A write is one of two that follow each other, or before the one, or after the other."""
    same_as_last = z3.And(write.begin == last.begin, write.end == last.end)
    same_as_next = z3.And(write.begin == following.begin, write.end == following.end)
    return z3.Or(same_as_last, same_as_next, write.is_before(last), following.is_before(write))


# Wrong variants -----------------------------------------------------------------------------

a_bytes, b_bytes, c_bytes = z3.Ints("a_bytes b_bytes c_bytes")
SMALL = tuple(z3.And(one >= 1, one <= 9) for one in (a_bytes, b_bytes, c_bytes))


def small_graph(v: Mapping[str, int]) -> MemoryGraph:
    """A tile is made, read, written out, read again after another took its room; all edges are there."""
    tiles = (
        MemoryTile(v["a_bytes"], name="a"),
        MemoryTile(v["b_bytes"], name="b"),
        MemoryTile(v["c_bytes"], (), (0,), name="c"),
    )
    tasks = (
        MemoryTask("make a", (), (0,)),
        MemoryTask("read a", (0,)),
        MemoryTask("make b", (), (1,)),
        MemoryTask("read b", (1,)),
        MemoryTask("change a", (), (), (0,)),
        MemoryTask("make c", (0,), (2,)),
    )
    stays = (
        Residency(0, 0), Residency(0, 1), Residency(1, 0), Residency(0, 0, 1), Residency(2, 0),
    )  # fmt: skip
    a, b, c = v["a_bytes"], v["b_bytes"], v["c_bytes"]
    most = max(a, b) + c
    left = (Credit(2, 0, a - b),) if a > b else ()
    back = (*left, Credit(5, 0, min(a, b)))  # what ``make b`` did not take, and what it gave back
    vertices = (
        Vertex("run", 0, makes=(0,), credits=(Credit(None, 0, a),)),
        Vertex("run", 1, reads=(0,), before=(0,)),
        Vertex("store", reads=(0,), makes=(1,), ends=(0,), before=(0, 1)),
        Vertex("run", 2, makes=(2,), before=(2,), credits=_credits(2, a, b)),
        Vertex("run", 3, reads=(2,), before=(3,)),
        Vertex("free", ends=(2,), before=(3, 4)),
        Vertex("load", reads=(1,), makes=(3,), before=(2, 5), credits=back),
        Vertex("run", 4, updates=(3,), before=(6,)),
        Vertex("run", 5, reads=(3,), makes=(4,), before=(7,), credits=(Credit(None, 0, c),)),
        Vertex("store", reads=(3,), updates=(1,), ends=(3,), before=(2, 6, 7, 8)),
    )
    places = (MemoryPlace("memory", most), MemoryPlace("store"))
    return MemoryGraph(TaskList(tiles, tasks), places, stays, 0, vertices)


def _credits(giver: int, has: int, wants: int) -> tuple[Credit, ...]:
    """What a giver has, and the rest from the limit."""
    first = Credit(giver, 0, min(has, wants))
    return (first, Credit(None, 0, wants - has)) if wants > has else (first,)


def changed(graph: MemoryGraph, number: int, **fields: object) -> MemoryGraph:
    """The graph with another vertex in the place of one."""
    one = graph.vertices[number]
    known = {name: getattr(one, name) for name in one.__slots__}
    vertices = list(graph.vertices)
    vertices[number] = Vertex(**{**known, **fields})
    return MemoryGraph(graph.tasks, graph.places, graph.residencies, graph.n_given, tuple(vertices))


def wrong_order(graph: MemoryGraph, tries: int = 400) -> str:
    """What goes wrong in one of many random orders; nothing if all are right."""
    rng = random.Random(1)
    for _ in range(tries):
        try:
            run_in_some_order(graph, rng, at_once=2)
        except WrongRunError as error:
            return str(error)
    return ""


def _shown(
    what: str, change: Callable[[MemoryGraph], MemoryGraph]
) -> Callable[[Mapping[str, int]], Shown]:
    """Run the small graph as it is and changed: all orders of the one are right, one of the other is not."""

    def show(v: Mapping[str, int]) -> Shown:
        right = small_graph(v)
        wrong = change(right)
        check_memory_graph(right)
        try:
            check_memory_graph(wrong)
            rejected = ""
        except MemoryCheckError as error:
            rejected = error.reason
        found = wrong_order(wrong)
        return Shown(
            "python -m proofs memory_graph",
            bool(found) and bool(rejected) and not wrong_order(right),
            f"tiles of {v['a_bytes']}, {v['b_bytes']} and {v['c_bytes']} bytes, {what}: a run gives "
            f"{found!r}; the checker says {rejected!r}; with all edges every run is right",
        )

    return show


SIZES = (a_bytes, b_bytes, c_bytes)
ENDED = (*SMALL, *RUN, maker.is_before(reader), maker.is_before(ender))
ROOM = z3.If(a_bytes >= b_bytes, a_bytes, b_bytes) + c_bytes
"""The limit of the small graph."""


def _evict_before_reader() -> Obligation:
    """No edge from the reader to who evicts: it may begin when the residency has ended."""
    return Obligation("evict before a reader", (*ENDED, z3.Not(reader.begin < ender.end)), SIZES)


def _free_before_reader() -> Obligation:
    """No edge from the reader to who frees: the residency may end while it runs."""
    begun = reader.begin < ender.end
    return Obligation(
        "free before a reader", (*ENDED, begun, z3.Not(reader.end <= ender.end)), SIZES
    )


def _credit_twice() -> Obligation:
    """Both takers of the bytes of one eviction: a is back while b is there."""
    a_back, b_there = live + a_bytes, b_bytes
    return Obligation(
        "a credit used twice",
        (*SMALL, idle == a_bytes, b_there <= idle, live == b_there, z3.Not(a_back <= ROOM)),
        SIZES,
    )


def _load_without_credits() -> Obligation:
    """A load that takes its bytes from nobody keeps no invariant."""
    held = holds(live, idle, spent, ROOM)
    return Obligation(
        "a load without credits",
        (
            *SMALL,
            live == b_bytes,
            idle == 0,
            spent == b_bytes,
            held,
            z3.Not(live + a_bytes <= ROOM),
        ),
        SIZES,
    )


def _drop_after_write() -> Obligation:
    """After a write, a copy and the one in the store are results of different tasks."""
    content = z3.Function("content", z3.IntSort(), z3.IntSort())
    version, stored = z3.Ints("version stored")
    written = (stored >= 0, version == stored + 1)
    return Obligation(
        "clean drop after a write",
        (*SMALL, *written, z3.Not(content(version) == content(stored))),
        SIZES,
    )


def _evicted_early(graph: MemoryGraph) -> MemoryGraph:
    return changed(graph, 2, before=(0,))


def _freed_early(graph: MemoryGraph) -> MemoryGraph:
    return changed(graph, 5, before=(3,))


def _used_twice(graph: MemoryGraph) -> MemoryGraph:
    """The load takes the bytes that the first eviction gave, as ``make b`` does."""
    a = graph.bytes_of(0)
    return changed(graph, 6, before=(2,), credits=(Credit(2, 0, a),))


def _loaded_on_nothing(graph: MemoryGraph) -> MemoryGraph:
    return changed(graph, 6, before=(2,), credits=())


def _dropped_dirty(graph: MemoryGraph) -> MemoryGraph:
    """What was changed is dropped, and loaded again for the last task."""
    stays = (*graph.residencies, Residency(0, 0, 2))
    v = graph.vertices
    a = graph.bytes_of(0)
    vertices = (
        *v[:8],
        Vertex("drop", reads=(1,), ends=(3,), before=(2, 6, 7)),
        Vertex("load", reads=(1,), makes=(5,), before=(2, 8), credits=(Credit(8, 0, a),)),
        Vertex("run", 5, reads=(5,), makes=(4,), before=(9,), credits=v[8].credits),
    )
    return MemoryGraph(graph.tasks, graph.places, stays, graph.n_given, vertices)


THEOREM = Theorem(
    "memory_graph",
    "A memory graph whose credits are covered keeps the limit of every place in every order of its vertices, "
    "several at once included; each task finds its operands in memory with the content that they have in the "
    "listed order, so results are the same.",
    "Induction over the moments of a run, for bytes; over vertices as listed, for contents.",
    "What tasks allocate beyond the tiles and staging that they name. That a task is a function of its "
    "operands. That a run ends: edges point back, as the checker sees, so there is no circle. How near "
    "to the limit orders come: the minimum cut says it for each graph.",
    obligations,
    (
        Twin(
            "evict before a reader",
            _evict_before_reader,
            _shown("evicted without waiting for a reader", _evicted_early),
        ),
        Twin(
            "free before a reader",
            _free_before_reader,
            _shown("freed without waiting for a reader", _freed_early),
        ),
        Twin(
            "a credit used twice",
            _credit_twice,
            _shown("one eviction's bytes taken twice", _used_twice),
        ),
        Twin(
            "a load without credits",
            _load_without_credits,
            _shown("loaded without credits", _loaded_on_nothing),
        ),
        Twin(
            "clean drop after a write",
            _drop_after_write,
            _shown("dropped after a write", _dropped_dirty),
        ),
    ),
)
