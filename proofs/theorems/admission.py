"""Admission: who grants memory by looking ahead in one list exceeds no limit, and nobody waits for ever.

Statement. Vertices take bytes of a place when they begin and give bytes back when they are done. They are
listed in an order in which, done one after another, they keep the limit; all that a vertex needs done is
before it in the list. A vertex whose operands are there may begin if (1) its bytes fit beside all that are
live, those of vertices under way included, and (2) afterwards all that have not begun can be done in the
order of the list, those under way ended. For any list, any sizes and any number of vertices at once: live
bytes never exceed the limit; if nothing is under way, the first of the list that has not begun may begin; so
every run ends.

Encoding. ``room`` are the bytes that nobody holds once all under way have ended. A vertex that has not begun
has ``ahead`` of it in the list others that have not begun, which keep ``ahead`` bytes in all, and ``takes``
bytes itself when it begins. It is safe if

    takes <= room - ahead,

and a state is safe if all that have not begun are. ``who`` is the vertex that asks: it takes ``asks`` bytes
now and gives ``back`` when it is done, so it ``keeps`` the difference.

What joins the obligations. Induction over the moments of a run: the state is safe at the beginning, because
the list keeps the limit, and safe after each vertex that begins; that one ends changes ``live`` alone. The
obligations speak of any one vertex in front of ``who`` and of any one behind it. Several places are several
states; a vertex begins if all admit it. Contents are those of the edges that remain: theorem
``memory_graph``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import z3

from proofs.engine.symbols import Num
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from redist.check.admission import Moment, check_run
from redist.errors import MemoryCheckError
from redist.offload.admission import Admission, content_edges
from redist.program.memory_graph import MemoryGraph, MemoryPlace, Residency, Vertex
from redist.program.tasks import MemoryTask, MemoryTile, TaskList

limit, live, coming, room = z3.Ints("limit live coming room")
ahead, takes, asks, back = z3.Ints("ahead takes asks back")
keeps = asks - back
STATE = (
    limit >= 0,
    live >= 0,
    live <= limit,
    coming >= 0,
    coming <= live,
    room == limit - live + coming,
)
"""``coming`` are the bytes that those under way will give back."""
SIZES = (takes >= 0, asks >= 0, back >= 0)


def is_safe(takes: Num, ahead: Num, room: Num) -> object:
    """Whether a vertex finds room if those ahead of it have run as listed.

    >>> is_safe(4, 2, 6), is_safe(4, 3, 6)
    (True, False)
    """
    return takes <= room - ahead


def obligations() -> Iterator[Obligation]:
    """See the module."""
    listed = z3.Int("listed")
    yield Obligation(
        "base: as listed a vertex finds room, so it is safe when nothing has begun",
        (
            *STATE, *SIZES, coming == 0, listed == live + ahead,
            listed + takes <= limit, z3.Not(is_safe(takes, ahead, room)),
        ),
    )  # fmt: skip
    yield Obligation(
        "begin: room becomes less by what the vertex keeps, whether it counts as under way or as ended",
        (
            *STATE, *SIZES, live + asks <= limit,
            z3.Not(limit - (live + asks) + (coming + back) == room - keeps),
        ),
    )  # fmt: skip
    yield Obligation(
        "begin: a vertex behind it in the list is as safe as before, it has that much less ahead",
        (
            *STATE,
            *SIZES,
            is_safe(takes, ahead, room),
            z3.Not(is_safe(takes, ahead - keeps, room - keeps)),
        ),
    )
    slack = room - ahead - takes
    yield Obligation(
        "begin: a vertex that it overtakes is safe if the least slack of these is what it keeps",
        (*STATE, *SIZES, slack >= keeps, z3.Not(is_safe(takes, ahead, room - keeps))),
    )
    yield Obligation(
        "begin: who keeps nothing overtakes whoever was safe",
        (
            *STATE, *SIZES, keeps <= 0, is_safe(takes, ahead, room),
            z3.Not(is_safe(takes, ahead, room - keeps)),
        ),
    )  # fmt: skip
    ended = z3.Int("ended")
    yield Obligation(
        "end: live bytes become fewer, and the room once all have ended is the same",
        (
            *STATE, ended >= 0, ended <= coming,
            z3.Not(z3.And(live - ended <= limit, limit - (live - ended) + (coming - ended) == room)),
        ),
    )  # fmt: skip
    yield Obligation(
        "progress: if nothing is under way, the first that has not begun fits beside all that are live",
        (
            *STATE,
            *SIZES,
            coming == 0,
            ahead == 0,
            is_safe(takes, ahead, room),
            z3.Not(live + takes <= limit),
        ),
    )


# Wrong variants -----------------------------------------------------------------------------

weight_bytes, value_bytes = z3.Ints("weight_bytes value_bytes")
SMALL = tuple(z3.And(one >= 1, one <= 9) for one in (weight_bytes, value_bytes))
BOTH = (weight_bytes, value_bytes)


def two_weights(v: Mapping[str, int]) -> MemoryGraph:
    """Two weights that pass through memory one after another, and the value that each makes of the last."""
    weight, value = v["weight_bytes"], v["value_bytes"]
    tiles = (
        *(MemoryTile(weight, (1,), (1,)) for _ in range(2)),
        MemoryTile(value),
        MemoryTile(value, ends=(0,)),
    )
    tasks = TaskList(tiles, (MemoryTask("first", (0,), (2,)), MemoryTask("second", (1, 2), (3,))))
    stays = (
        Residency(0, 1), Residency(1, 1), Residency(0, 0), Residency(2, 0), Residency(1, 0),
        Residency(3, 0),
    )  # fmt: skip
    vertices = (
        Vertex("load", reads=(0,), makes=(2,)),
        Vertex("run", 0, reads=(2,), makes=(3,), before=(0,)),
        Vertex("drop", reads=(0,), ends=(2,), before=(0, 1)),
        Vertex("load", reads=(1,), makes=(4,)),
        Vertex("run", 1, reads=(4, 3), makes=(5,), before=(1, 3)),
        Vertex("drop", reads=(1,), ends=(4,), before=(3, 4)),
        Vertex("free", ends=(3,), before=(1, 4)),
    )
    places = (MemoryPlace("memory", weight + 2 * value), MemoryPlace("disk"))
    return MemoryGraph(tasks, places, stays, 2, vertices)


Grants = Callable[[Admission, int], bool]


def run_latest_first(graph: MemoryGraph, grants: Grants) -> str:
    """Run a graph, of those that are granted always the last of the list; what goes wrong, if anything."""
    admission, before = Admission(graph), content_edges(graph)
    moments: list[Moment] = []
    running: list[int] = []
    begun: set[int] = set()
    ended: set[int] = set()
    while True:
        ready = [n for n, edges in enumerate(before) if n not in begun and ended.issuperset(edges)]
        granted = [number for number in ready if grants(admission, number)]
        if granted:
            running.append(granted[-1])
            begun.add(granted[-1])
            admission.begin(granted[-1])
            moments.append(("begin", granted[-1]))
        elif running:
            number = running.pop(0)
            ended.add(number)
            admission.end(number)
            moments.append(("end", number))
        else:
            break
    try:
        check_run(graph, moments)
    except MemoryCheckError as error:
        return error.reason
    return ""


def looks_at_now(admission: Admission, vertex: int) -> bool:
    """Whether the bytes of a vertex fit beside those that are live, and no more."""
    return all(room.live + room.takes[vertex] <= room.limit for room in admission._rooms)


def counts_on_ends(admission: Admission, vertex: int) -> bool:
    """Looks ahead, but counts those under way as ended at once."""
    kept = [room.limit for room in admission._rooms]
    for room in admission._rooms:
        room.limit = 2**40
    good = admission.may_begin(vertex)
    for room, limit_bytes in zip(admission._rooms, kept, strict=True):
        room.limit = limit_bytes
    return good


def _shown(what: str, grants: Grants) -> Callable[[Mapping[str, int]], Shown]:
    def show(v: Mapping[str, int]) -> Shown:
        graph = two_weights(v)
        found, right = run_latest_first(graph, grants), run_latest_first(graph, Admission.may_begin)
        return Shown(
            "python -m proofs admission",
            bool(found) and not right,
            f"weights of {v['weight_bytes']} and values of {v['value_bytes']} bytes, {what}: a run gives "
            f"{found!r}; with both conditions it ends, and is right",
        )

    return show


def _without_looking_ahead() -> Obligation:
    """The second weight fits in the place of a value; then the first task finds no room."""
    first_task = is_safe(value_bytes, weight_bytes, room - weight_bytes)
    return Obligation(
        "without looking ahead",
        (*SMALL, limit == weight_bytes + 2 * value_bytes, room == limit, z3.Not(first_task)),
        BOTH,
    )


def _ended_before_they_have() -> Obligation:
    """While the second task runs, what it frees is counted as free: the limit is exceeded."""
    there = weight_bytes + value_bytes
    return Obligation(
        "those under way counted as ended",
        (
            *SMALL, limit == weight_bytes + 2 * value_bytes, live == there, coming == weight_bytes,
            z3.Not(live + weight_bytes <= limit), weight_bytes <= limit - live + coming,
        ),
        BOTH,
    )  # fmt: skip


THEOREM = Theorem(
    "admission",
    "If every vertex that begins fits beside all bytes that are live, and leaves enough for those that have "
    "not begun to be done as listed, no limit is ever exceeded and every run ends, whichever vertices begin, "
    "in any order and several at once.",
    "Induction over the moments of a run.",
    "That a vertex under way ends. That operands are right: the edges that remain say it, as in "
    "memory_graph. How long a run takes.",
    obligations,
    (
        Twin(
            "without looking ahead",
            _without_looking_ahead,
            _shown("granted what fits now", looks_at_now),
        ),
        Twin(
            "those under way counted as ended",
            _ended_before_they_have,
            _shown("granted before others have ended", counts_on_ends),
        ),
    ),
)
