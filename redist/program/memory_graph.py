"""A program within a memory limit, as a value: what runs, loads, stores and frees, and after what.

Whoever runs it may take any vertex whose ``before`` are done, in any order and several at once: bytes that a
vertex takes were given back by vertices before it, its *credits*, so no order exceeds a limit. Whoever counts
bytes itself may grant them by admission instead (:mod:`redist.offload.admission`), and needs no credits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from redist.errors import RequestError
from redist.program.tasks import TaskList
from redist.text.units import format_bytes

# What was shown about the memory of a program: in every order of its work.


VERDICTS = ("proved", "refuted", "unknown")


@dataclass(frozen=True, slots=True)
class MemoryCertificate:
    """A verdict on the claim that live bytes stay within the limit of every place, in every order.

    ``bound_bytes`` has for every place the most bytes that any order reaches: exactly if ``is_exact`` (a
    minimum cut), otherwise at most this many (what the credits prove). A place without a limit has None.

    >>> print(MemoryCertificate("proved", (24,), (32,), True, "minimum cut"))
    proved for every order: 24 B of 32 B (minimum cut)
    """

    verdict: str
    bound_bytes: tuple[int | None, ...]
    limit_bytes: tuple[int | None, ...]
    is_exact: bool
    method: str
    reason: str = ""
    scope: str = "every order"

    def __post_init__(self) -> None:
        assert self.verdict in VERDICTS

    def __str__(self) -> str:
        places = zip(self.bound_bytes, self.limit_bytes, strict=True)
        known = [
            f"{'' if self.is_exact else 'at most '}{format_bytes(bound)} of {format_bytes(limit)}"
            for bound, limit in places
            if bound is not None and limit is not None
        ]
        if self.verdict == "proved":
            return f"proved for {self.scope}: {', '.join(known)} ({self.method})"
        return f"{self.verdict}: {self.reason} ({self.method})"


KINDS = ("run", "load", "store", "drop", "free")


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """A memory with a limit of its own, or none; a byte takes ``byte_fs`` between it and the place before.

    >>> gpu, host, disk = MemoryPlace("gpu", 2**30), MemoryPlace("host", 2**33, 20), MemoryPlace("disk")
    """

    name: str
    limit_bytes: int | None = None
    byte_fs: int = 0

    def __post_init__(self) -> None:
        if (self.limit_bytes is not None and self.limit_bytes < 0) or self.byte_fs < 0:
            raise RequestError(f"cannot make {self}: limit and time are not negative")


@dataclass(frozen=True, slots=True)
class Residency:
    """A stay of a tile in a place, the ``number``-th there: its bytes count until a vertex ends it."""

    tile: int
    place: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class Credit:
    """Bytes of a place that a vertex takes from a ``giver`` that gave them back; None is the limit itself."""

    giver: int | None
    place: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Vertex:
    """What is done at once, and the numbers of the vertices ``before`` it.

    ======== =========================================================================================
    ``run``   a task: residencies that it reads, updates and makes, in the order of the task's tiles
    ``load``  copies a residency (``reads``) to the place before it (``makes``)
    ``store`` copies a residency to the place behind it (``makes``, or ``updates`` an older copy there)
              and ends it (``ends``), or leaves it there too
    ``drop``  ends a residency of which ``reads`` is another copy, as new
    ``free``  ends a residency that nobody needs any more
    ======== =========================================================================================

    A task takes its staging too, and gives it back when it is done.
    """

    kind: str
    task: int | None = None
    reads: tuple[int, ...] = ()
    updates: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    credits: tuple[Credit, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryGraph:
    """Tasks, places, and the vertices that do the tasks within the limits of the places.

    Vertices are listed in one of the orders that are allowed: ``before`` has smaller numbers only. The
    first ``n_given`` residencies are there at the beginning; those that no vertex ends are there at the end.
    """

    tasks: TaskList
    places: tuple[MemoryPlace, ...]
    residencies: tuple[Residency, ...]
    n_given: int
    vertices: tuple[Vertex, ...]

    def bytes_of(self, residency: int) -> int:
        """The bytes of a residency."""
        return self.tasks.tiles[self.residencies[residency].tile].size_bytes

    def taken_bytes(self, vertex: int) -> dict[int, int]:
        """By place, the bytes that a vertex takes when it begins: what it makes, and its task's staging."""
        one = self.vertices[vertex]
        return self._sums(one.makes, one.task)

    def returned_bytes(self, vertex: int) -> dict[int, int]:
        """By place, the bytes that a vertex gives back when it is done: what it ends, and staging."""
        one = self.vertices[vertex]
        return self._sums(one.ends, one.task)

    def _sums(self, residencies: tuple[int, ...], task: int | None) -> dict[int, int]:
        out: dict[int, int] = {}
        for one in residencies:
            place = self.residencies[one].place
            out[place] = out.get(place, 0) + self.bytes_of(one)
        if task is not None and self.tasks.tasks[task].staging_bytes:
            out[0] = out.get(0, 0) + self.tasks.tasks[task].staging_bytes
        return out

    @property
    def given_bytes(self) -> list[int]:
        """By place, the bytes that are there at the beginning."""
        out = [0] * len(self.places)
        for one in range(self.n_given):
            out[self.residencies[one].place] += self.bytes_of(one)
        return out

    def lane_of(self, vertex: int) -> str:
        """Where a vertex waits: a task's lane, ``load``, ``store``, or ``now`` if it takes no time."""
        one = self.vertices[vertex]
        match one.kind:
            case "run":
                assert one.task is not None
                return self.tasks.tasks[one.task].lane
            case "load" | "store":
                return one.kind
            case _:
                return "now"

    def time_ps(self, vertex: int) -> int:
        """The modelled time of a vertex."""
        one = self.vertices[vertex]
        match one.kind:
            case "run":
                assert one.task is not None
                return self.tasks.tasks[one.task].time_ps
            case "load":
                place = self.residencies[one.reads[0]].place
            case "store":
                place = self.residencies[(one.makes or one.updates)[0]].place
            case _:
                return 0
        return self.bytes_of(one.reads[0]) * self.places[place].byte_fs // 1000

    @property
    def moved_bytes(self) -> Mapping[str, int]:
        """Bytes that are loaded and stored, all places together."""
        moved = Counter({"load": 0, "store": 0})
        for one in self.vertices:
            if one.kind in moved:
                moved[one.kind] += self.bytes_of(one.reads[0])
        return dict(moved)

    def __str__(self) -> str:
        n = Counter(one.kind for one in self.vertices)
        moved = self.moved_bytes
        limits = ", ".join(
            f"{p.name} {'unlimited' if p.limit_bytes is None else format_bytes(p.limit_bytes)}"
            for p in self.places
        )
        return (
            f"{n['run']} tasks, {n['load']} loads ({format_bytes(moved['load'])}), "
            f"{n['store']} stores ({format_bytes(moved['store'])}), {n['drop'] + n['free']} frees; {limits}"
        )
