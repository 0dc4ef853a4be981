"""Traces: every redistribution with its plan, its bytes, its seconds and the line that caused it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from redist.pgas.watch.call_site import Line, calling_line
from redist.plan.plan import Plan
from redist.runtime.ranks.waiting import gather
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.text.columns import table
from redist.text.units import format_bytes, format_time


@dataclass(frozen=True, slots=True)
class Move:
    """Data that went between ranks: as it happened, or, without seconds, as it would.

    ``received_bytes`` is what this rank receives from others, counted by the transport;
    ``planned_bytes`` is what the plan has for all ranks together. What indexing and sorting exchange
    has no plan: each rank fetches what it lacks. ``started_s`` is a reading of the clock.
    """

    line: Line
    source: str
    target: str
    steps: str
    received_bytes: int
    started_s: float = 0.0
    seconds: float | None = None
    plan: Plan | None = None

    @staticmethod
    def of(
        plan: Plan,
        line: Line,
        received_bytes: int,
        started_s: float = 0.0,
        seconds: float | None = None,
    ) -> Move:
        """A move by a plan."""
        steps = ", ".join(step.op for step in plan.steps) or "copy"
        other = "" if plan.source.mesh == plan.target.mesh else f" on {plan.target.mesh}"
        source, target = str(plan.source), f"{plan.target}{other}"
        return Move(line, source, target, steps, received_bytes, started_s, seconds, plan)

    @property
    def planned_bytes(self) -> int:
        """What the plan has for all ranks together."""
        return 0 if self.plan is None else self.plan.received_bytes

    @property
    def model_ps(self) -> int:
        """The modelled time."""
        return 0 if self.plan is None else self.plan.time_ps


class Watcher(Protocol):
    """Who wants to know of moves."""

    def saw(self, move: Move) -> None:
        """A move has happened."""


WATCHERS: list[Watcher] = []


class Watching:
    """Tells the watchers of an exchange that has no plan, where there are watchers.

    ``with Watching("select", a.type, t) as seen: seen.received_bytes = exchange(...)``
    """

    __slots__ = ("_start", "_words", "received_bytes")

    def __init__(self, steps: str, source: object, target: object) -> None:
        self._words = steps, source, target
        self.received_bytes = 0
        self._start = 0.0

    def __enter__(self) -> Watching:
        self._start = time.perf_counter()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if WATCHERS and kind is None:
            steps, source, target = self._words
            seconds = time.perf_counter() - self._start
            move = Move(
                calling_line(), str(source), str(target), steps, self.received_bytes, self._start,
                seconds,
            )  # fmt: skip
            for watcher in WATCHERS:
                watcher.saw(move)


class Trace:
    """Records redistributions while its block runs: ``with redist.trace() as t: ...; print(t)``.

    ``moves`` has them in order; ``print`` joins those of one line with the same types.
    """

    def __init__(self, moves: Sequence[Move] = ()) -> None:
        self.moves: list[Move] = list(moves)
        self._offset = 0.0

    def __enter__(self) -> Trace:
        self._offset = time.time() - time.perf_counter()
        WATCHERS.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        WATCHERS.remove(self)

    def saw(self, move: Move) -> None:
        """A move has happened."""
        self.moves.append(move)

    @property
    def received_bytes(self) -> int:
        """What this rank has received from others."""
        return sum(move.received_bytes for move in self.moves)

    @property
    def planned_bytes(self) -> int:
        """What the plans have for all ranks together."""
        return sum(move.planned_bytes for move in self.moves)

    @property
    def seconds(self) -> float:
        """What moving took on this rank."""
        return sum(move.seconds or 0.0 for move in self.moves)

    def __str__(self) -> str:
        if not self.moves:
            return "no array moved"
        head = ("line", "moves", "from", "to", "steps", "received here", "by all", "model", "took")
        rows = [_row(same) for same in _joined(self.moves)]
        total = (
            "total", str(len(self.moves)), "", "", "", format_bytes(self.received_bytes),
            format_bytes(self.planned_bytes), _model(self.moves), _took(self.moves),
        )  # fmt: skip
        return "\n".join(table([head, *rows, total], left=(0, 2, 3, 4)))

    def svg(self, file: str | os.PathLike[str], comm: Comm | None = None) -> None:
        """**Collective over** ``comm``. Draw what every rank did, and when; rank 0 writes the file."""
        from redist.pgas.watch.timeline import Bar, draw

        comm = comm_or_world(comm)
        bars = [
            Bar(
                self._offset + move.started_s,
                move.seconds or 0.0,
                str(move.line),
                f"{move.source} -> {move.target}",
                move.steps,
                move.received_bytes,
            )
            for move in self.moves
        ]
        lanes: list[list[Bar]] = gather(comm, bars, 300.0)
        if comm.rank == 0:
            with open(file, "w", encoding="utf-8") as out:
                out.write(draw(lanes))


def trace() -> Trace:
    """**Local.** Record every redistribution of global arrays while a block runs.

    In an SPMD program::

        with redist.trace() as t:
            c = pgas.matmul(a, b)
        print(t)                    # a table: line, types, steps, bytes, seconds
        t.svg("trace.svg")          # collective: a timeline of every rank
    """
    return Trace()


def _joined(moves: Sequence[Move]) -> list[list[Move]]:
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


def _took(moves: Sequence[Move]) -> str:
    if any(move.seconds is None for move in moves):
        return "-"
    return format_time(round(1e12 * sum(move.seconds or 0.0 for move in moves)))
