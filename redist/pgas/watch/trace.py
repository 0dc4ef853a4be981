"""Traces: every redistribution with its plan, its bytes, its seconds and the line that caused it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from redist.pgas.memory import Tile
from redist.pgas.watch.seam import (
    ByLists,
    CopiedRows,
    ElementExchange,
    FarRead,
    Note,
    R,
    RankTraffic,
    SparedMove,
    TileMove,
    VisitCounts,
    Wait,
    WrappedTraffic,
    plus,
    through,
    traffic,
)
from redist.pgas.watch.timeline import Bar, draw
from redist.plan.plan import Plan
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.runtime.transfer import Transfer
from redist.text.call_site import Line, calling_line
from redist.text.columns import table
from redist.text.svg import write_if
from redist.text.units import format_bytes, format_seconds, format_time

HEAD = ("line", "moves", "from", "to", "steps", "received here", "by all", "model", "took")
COUNTS = {
    FarRead: ("far reads", "hits", "misses", "were there", "fetched", "wasted"),
    VisitCounts: (
        "visits", "times", "in place", "fetched", "ahead", "kept", "bytes fetched", "waited",
    ),
    ByLists: ("by lists", "inspected", "exchanges", "received here", "messages"),
    CopiedRows: ("from GPU to memory", "times", "bytes here"),
}  # fmt: skip
"""Heads of tables of what lines did besides moves."""


@dataclass(frozen=True, slots=True)
class Move:
    """Data that passed between ranks or, without ``seconds``, data that would pass.

    ``received_bytes`` is what this rank receives from others, counted by the transport;
    ``planned_bytes`` is what the plan has for all ranks together. Exchanges by indexing and sorting
    have no plan: each rank fetches what it lacks. ``started_s`` is a reading of the clock.
    """

    line: Line
    source: str
    target: str
    steps: str
    received_bytes: int
    started_s: float = 0.0
    seconds: float | None = None
    plan: Plan | None = None
    waited_s: float | None = None
    """Of a move that was started early: how long this rank waited for it in the end."""
    together: int = 1
    """How many moves were one operation, this one among them."""
    planning_s: float = 0.0
    """Of the seconds: how long this rank planned and prepared before the data moved."""

    @staticmethod
    def of(
        plan: Plan,
        line: Line,
        received_bytes: int,
        started_s: float = 0.0,
        seconds: float | None = None,
        waited_s: float | None = None,
    ) -> Move:
        """A move by a plan."""
        steps = ", ".join(step.op for step in plan.steps) or "copy"
        other = "" if plan.source.mesh == plan.target.mesh else f" on {plan.target.mesh}"
        source, target = str(plan.source), f"{plan.target}{other}"
        return Move(line, source, target, steps, received_bytes, started_s, seconds, plan, waited_s)

    @property
    def planned_bytes(self) -> int:
        """What the plan has for all ranks together."""
        return 0 if self.plan is None else self.plan.received_bytes

    @property
    def model_ps(self) -> int:
        """The modelled time."""
        return 0 if self.plan is None else self.plan.time_ps


class TracedTraffic(WrappedTraffic):
    """Traffic that happens as without it, with every move noted in a list."""

    def __init__(self, inner: RankTraffic, trace: Trace) -> None:
        super().__init__(inner)
        self.moves, self._trace = trace.moves, trace

    def note(self, line: Line, what: Note) -> None:
        """Add it to what the trace has of the line."""
        self._trace.add(line, what)
        self.inner.note(line, what)

    def redistribute(
        self, move: TileMove, comm: Comm, limit_bytes: int | None
    ) -> tuple[Tile | None, Transfer | None]:
        """Move one array, and note its plan, bytes and seconds."""
        started = time.perf_counter()
        tile, transfer = self.inner.redistribute(move, comm, limit_bytes)
        seconds = time.perf_counter() - started
        if transfer is not None:
            received = transfer.received_bytes
            done = Move.of(transfer.plan, calling_line(), received, started, seconds)
            planning = max(0.0, transfer.ready_s - started)
            self.moves.append(replace(done, planning_s=planning))
        return tile, transfer

    def start(self, move: TileMove, comm: Comm) -> Wait:
        """Begin to move; seconds, and those that were waited, are noted when it has been waited for."""
        transfer, line = move.prepared, calling_line()
        assert transfer is not None
        inner, started = self.inner.start(move, comm), time.perf_counter()

        def wait() -> Tile | None:
            begin = time.perf_counter()
            tile = inner()
            end, received = time.perf_counter(), transfer.received_bytes
            done = Move.of(transfer.plan, line, received, started, end - started, end - begin)
            self.moves.append(done)
            return tile

        return wait

    def redistribute_together(
        self, moves: Mapping[str, TileMove], comm: Comm, prepared: Transfer | None = None
    ) -> tuple[dict[str, Tile | None], Transfer | None]:
        """Move several arrays, and note each with its share of the seconds."""
        started = time.perf_counter()
        tiles, transfer = self.inner.redistribute_together(moves, comm, prepared)
        if transfer is not None:
            share = (time.perf_counter() - started) / len(moves)
            planning = max(0.0, transfer.ready_s - started) / len(moves)
            for number, plan in enumerate(transfer.plans.values()):
                received, begin = transfer.received_bytes_of(number), started + number * share
                move = Move.of(plan, calling_line(), received, begin, share)
                self.moves.append(replace(move, together=len(moves), planning_s=planning))
        return tiles, transfer

    def perform(
        self,
        exchange: ElementExchange,
        work: Callable[..., tuple[R, int]],
        args: Sequence[Any],
        instead: Callable[[], R] | None = None,
        expected_bytes: Callable[[], int] = lambda: 0,
        into: Any = None,
    ) -> R:
        """Do the work, and note what came of it, if it was done."""
        done: list[int] = []

        def counted(*given: Any) -> tuple[R, int]:
            result, received_bytes = work(*given)
            done.append(received_bytes)
            return result, received_bytes

        started = time.perf_counter()
        result = self.inner.perform(exchange, counted, args, instead, expected_bytes, into)
        seconds = time.perf_counter() - started
        for received in done:
            what, source, target = exchange
            line = calling_line()
            self.moves.append(
                Move(line, str(source), str(target), what, received, started, seconds)
            )
        return result


class Trace:
    """Records redistributions while its block runs: ``with redist.trace() as t: ...; print(t)``.

    ``moves`` lists them in order; ``print`` combines those of one line with the same types. ``spared`` lists
    the moves that programs have at their lines but did not make, because they are shared or their results are
    kept from an earlier call.
    """

    def __init__(self, moves: Sequence[Move] = ()) -> None:
        self.moves: list[Move] = list(moves)
        self.reads: dict[Line, FarRead] = {}
        """By line: one-sided reads of tiles on other nodes."""
        self.visits: dict[Line, VisitCounts] = {}
        """By line: visits to the tiles of all ranks."""
        self.by_lists: dict[Line, ByLists] = {}
        """By line: reads at global arrays of indices, whose lists ranks tell each other once."""
        self.copied: dict[Line, CopiedRows] = {}
        """By line: what was copied from a GPU to memory, because the work is not done on GPUs. Samples of a
        sort, by which ranks agree where to cut, and counts are not among it."""
        self.spared: list[SparedMove] = []
        self._counts: dict[type, dict[Line, Any]] = {
            FarRead: self.reads, VisitCounts: self.visits, ByLists: self.by_lists,
            CopiedRows: self.copied,
        }  # fmt: skip
        self._offset = 0.0
        self._scope: AbstractContextManager[None] = nullcontext()

    def add(self, line: Line, what: Note) -> None:
        """Add a note to those of its line."""
        if isinstance(what, SparedMove):
            self.spared.append(what)
            return
        here = self._counts[type(what)]
        here[line] = plus(here[line], what) if line in here else what

    def __enter__(self) -> Trace:
        self._offset = time.time() - time.perf_counter()
        self._scope = through(TracedTraffic(traffic(), self))
        self._scope.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._scope.__exit__(None, None, None)

    @property
    def received_bytes(self) -> int:
        """The bytes that this rank has received from others."""
        return sum(move.received_bytes for move in self.moves)

    @property
    def planned_bytes(self) -> int:
        """The bytes in the plans for all ranks together."""
        return sum(move.planned_bytes for move in self.moves)

    @property
    def seconds(self) -> float:
        """The time that moves took on this rank."""
        return sum(move.seconds or 0.0 for move in self.moves)

    def __str__(self) -> str:
        counts = [one for one in self._counts.values() if one]
        parts = [self._moves_text()] if self.moves or not counts else []
        parts += [_spared_text(self.spared)] if self.spared else []
        parts += map(_counts_text, counts)
        return "\n".join(parts)

    def _moves_text(self) -> str:
        if not self.moves:
            return "no array moved"
        head: tuple[str, ...] = HEAD
        rows = [_row(same) for same in _group_by_line(self.moves)]
        total: tuple[str, ...] = (
            "total", str(len(self.moves)), "", "", "", format_bytes(self.received_bytes),
            format_bytes(self.planned_bytes), _model(self.moves), _took(self.moves),
        )  # fmt: skip
        more: list[tuple[str, Callable[[Sequence[Move]], str]]] = []
        if any(move.planning_s for move in self.moves):
            more.append(("of it planning", _planning))
        if any(move.waited_s is not None for move in self.moves):  # those that were started early
            more.append(("waited", _waited))
        for name, column in more:
            head, total = (*head, name), (*total, column(self.moves))
            groups = zip(rows, _group_by_line(self.moves), strict=True)
            rows = [(*row, column(same)) for row, same in groups]
        return "\n".join(table([head, *rows, total], left=(0, 2, 3, 4)))

    def svg(self, file: str | os.PathLike[str] | None = None, comm: Comm | None = None) -> str:
        """**Collective over** ``comm``. Draw what every rank did, and when; rank 0 writes the file.

        Returns the text of the picture, which is SVG, on all ranks.
        """
        comm = comm_or_world(comm)
        bars = [
            Bar(
                self._offset + move.started_s,
                move.seconds or 0.0,
                str(move.line),
                f"{move.source} -> {move.target}",
                _steps_text(move),
                move.received_bytes,
                move.planning_s,
            )
            for move in self.moves
        ]
        lanes: list[list[Bar]] = gather(comm, bars, TIMEOUT_S)
        return write_if(draw(lanes), file if comm.rank == 0 else None)


def trace() -> Trace:
    """**Local.** Record every redistribution of global arrays while a block runs.

    In an SPMD program::

        with redist.trace() as t:
            c = pgas.matmul(a, b)
        print(t)                    # a table: line, types, steps, bytes, seconds
        t.svg("trace.svg")          # collective: a timeline of every rank
    """
    return Trace()


def _group_by_line(moves: Sequence[Move]) -> list[list[Move]]:
    """Moves of one line between the same types, in the order of the first."""
    found: dict[tuple[Line, str, str], list[Move]] = {}
    for move in moves:
        found.setdefault((move.line, move.source, move.target), []).append(move)
    return list(found.values())


def _row(moves: Sequence[Move]) -> tuple[str, ...]:
    first = moves[0]
    return (
        str(first.line),
        str(len(moves)),
        first.source,
        first.target,
        first.steps,
        format_bytes(sum(move.received_bytes for move in moves)),
        "-" if first.plan is None else format_bytes(sum(move.planned_bytes for move in moves)),
        _model(moves),
        _took(moves),
    )


def _model(moves: Sequence[Move]) -> str:
    known = [move.model_ps for move in moves if move.plan is not None]
    return format_time(sum(known)) if known else "-"


Counted = FarRead | VisitCounts | ByLists | CopiedRows


def _counts_text(counts: Mapping[Line, Counted]) -> str:
    """Counts of one kind, by line, as a table."""
    head = COUNTS[type(next(iter(counts.values())))]
    return "\n".join(table([head, *((str(line), *_cells(n)) for line, n in counts.items())]))


def _cells(n: Counted) -> tuple[str, ...]:
    match n:
        case FarRead():
            return (str(n.hits), str(n.misses), *map(format_bytes, n[2:]))
        case VisitCounts():
            times = map(str, (n.visits, n.in_place, n.fetched, n.ahead, n.kept))
            return (*times, format_bytes(n.fetched_bytes), format_seconds(n.waited_s))
        case ByLists():
            told = f"{n.inspected} times" if n.inspected else "before"
            told = "once" if n.inspected == 1 else told
            return (told, str(n.exchanges), format_bytes(n.received_bytes), str(n.messages))
        case CopiedRows():
            return (str(n.times), format_bytes(n.copied_bytes))


def _spared_text(spared: Sequence[SparedMove]) -> str:
    """Moves that were not made as a table; equal ones as one row."""
    head = ("not moved", "times", "from", "to", "why")
    rows = [
        (str(one.line), str(n), str(one.source), str(one.target), one.why)
        for one, n in Counter(spared).items()
    ]
    return "\n".join(table([head, *rows], left=(0, 2, 3, 4)))


def _steps_text(move: Move) -> str:
    """The steps of a move, and whether it began early."""
    if move.waited_s is None:
        return move.steps
    return f"{move.steps}; began early, waited for {format_seconds(move.waited_s)}"


def _planning(moves: Sequence[Move]) -> str:
    seconds = sum(move.planning_s for move in moves)
    return format_seconds(seconds) if seconds else ""


def _waited(moves: Sequence[Move]) -> str:
    known = [move.waited_s for move in moves if move.waited_s is not None]
    return format_seconds(sum(known)) if known else ""


def _took(moves: Sequence[Move]) -> str:
    if any(move.seconds is None for move in moves):
        return "-"
    return format_seconds(sum(move.seconds or 0.0 for move in moves))
