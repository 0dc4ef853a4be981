"""Count what a transfer does, and report it step by step beside the model."""

from __future__ import annotations

import logging
import math
import os
import sys
from dataclasses import dataclass
from functools import cached_property

from redist.runtime.ranks.waiting import gather
from redist.runtime.ranks.world import World
from redist.runtime.schedule.stages import StagePart, TransferStages
from redist.text.columns import table
from redist.text.units import count_of, format_bytes

LOG = logging.getLogger("redist")
LOG.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class StepReport:
    """One stage, over all ranks; bytes and seconds are per call.

    Repeated calls of several steps are timed as a whole: their seconds stand at the first step.
    """

    name: str
    received_bytes: int
    planned_bytes: int
    sent_worst_bytes: int
    received_worst_bytes: int
    messages_worst: int
    seconds: float
    modelled_s: float
    slowest_rank: int


@dataclass(frozen=True, slots=True)
class Report:
    """Steps of a transfer as they ran. ``print`` it."""

    calls: int
    ranks: int
    steps: tuple[StepReport, ...]

    def __str__(self) -> str:
        head = (
            "step",
            "received",
            "planned",
            "sent/rank",
            "received/rank",
            "messages",
            "ms",
            "model ms",
            "slowest",
        )
        rows = [
            (
                step.name,
                format_bytes(step.received_bytes),
                format_bytes(step.planned_bytes),
                format_bytes(step.sent_worst_bytes),
                format_bytes(step.received_worst_bytes),
                str(step.messages_worst),
                f"{step.seconds * 1e3:.3f}",
                f"{step.modelled_s * 1e3:.3f}",
                f"rank {step.slowest_rank}",
            )
            for step in self.steps
        ]
        lines = table([head, *rows], gap="  ")
        head_line = f"{count_of(self.calls, 'call')} on {count_of(self.ranks, 'rank')}"
        return "\n".join([head_line, *lines])


class TransferCounts:
    """Counts what this rank does; with ``REDIST_DEBUG=1`` prints a line per step."""

    def __init__(self, world: World, schedule: TransferStages) -> None:
        self.world = world
        self.schedule = schedule
        self.calls = 0
        self.seconds = [0.0] * len(schedule.stages)
        self.loud = os.environ.get("REDIST_DEBUG", "") not in ("", "0")
        self.quiet = not self.loud and not LOG.isEnabledFor(logging.DEBUG)

    def count(self, stage: int, seconds: float) -> None:
        """Note that a stage took this long."""
        self.seconds[stage] += seconds
        if self.quiet:
            return
        got = sum(self._count_moved(part)[1] for part in self.schedule.stages[stage])
        line = (
            f"rank {self.world.rank} step {stage + 1} {self._name(stage)}: "
            f"received {format_bytes(got)} in {seconds * 1e3:.3f} ms"
        )
        LOG.debug(line)
        if self.loud:
            print(f"redist: {line}", file=sys.stderr, flush=True)

    @cached_property
    def received_bytes(self) -> tuple[int, ...]:
        """What this rank receives from others in a call, of every array."""
        out = [0] * len(self.schedule.plans)
        for part in (part for parts in self.schedule.stages for part in parts):
            out[part.item] += self._count_moved(part)[1]
        return tuple(out)

    def report(self, timeout_s: float | None) -> Report:
        """**Collective.** The figures of all ranks, joined."""
        mine = []
        for number, parts in enumerate(self.schedule.stages):
            moved = [self._count_moved(part) for part in parts]
            mine.append(
                (*(sum(column) for column in zip(*moved, strict=True)), self.seconds[number])
            )
        everyone = gather(self.world.comm, mine, timeout_s)
        steps = []
        for number in range(len(self.schedule.stages)):
            rows = [ranks[number] for ranks in everyone]
            seconds = [row[3] / max(1, self.calls) for row in rows]
            planned, modelled = self._count_planned(number)
            steps.append(
                StepReport(
                    self._name(number),
                    sum(row[1] for row in rows),
                    planned,
                    max(row[0] for row in rows),
                    max(row[1] for row in rows),
                    max(row[2] for row in rows),
                    max(seconds),
                    modelled,
                    seconds.index(max(seconds)),
                )
            )
        return Report(self.calls, self.world.size, tuple(steps))

    def _count_moved(self, part: StagePart) -> tuple[int, int, int]:
        """Bytes that this rank sends and receives for one array of a stage, and from how many ranks."""
        me = self.world.rank
        itemsize = self.schedule.plans[part.item].source.dtype.itemsize
        sent = got = 0
        peers = set()
        for piece in part.step.pieces:
            n_bytes = math.prod(piece.shape) * itemsize
            if piece.sender == me != piece.receiver:
                sent += n_bytes
            if piece.receiver == me != piece.sender:
                got += n_bytes
                peers.add(piece.sender)
        return sent, got, len(peers)

    def _count_planned(self, stage: int) -> tuple[int, float]:
        """Bytes and seconds that the plans have for a stage; a step of two stages counts once."""
        n_bytes, seconds = 0, 0.0
        for part in self.schedule.stages[stage]:
            steps = self.schedule.plans[part.item].steps
            if not steps:
                continue
            step = steps[part.step_number]
            share = 2 if step.op == "all_reduce" else 1
            n_bytes += step.received_bytes // share
            seconds += step.time_ps / 1e12 / share
        return n_bytes, seconds

    def _name(self, stage: int) -> str:
        names = []
        for part in self.schedule.stages[stage]:
            steps = self.schedule.plans[part.item].steps
            name = steps[part.step_number].op if steps else "copy"
            names.append(f"{name} (gather)" if part.step.again else name)
        first = names[0]
        return first if len(names) == 1 else f"{first} and {len(names) - 1} more"
