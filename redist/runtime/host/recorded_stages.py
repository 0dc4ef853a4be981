"""The stages of a call that ran, with the arrays that each read and wrote, if the kernel can repeat them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from redist.runtime.copies.reduce import kernel_code
from redist.runtime.host.executor import CallRecord, HostExecutor
from redist.runtime.host.stage import MOST_ROUNDS, Stage, StageReplay


class Whose(Enum):
    """Whose array a stage reads or writes."""

    SOURCE = auto()
    TARGET = auto()
    BETWEEN = auto()


End = tuple[Whose, int]
"""Whose array, and which of a batch."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedStage:
    """One stage of a recorded call: what it did, and which arrays each of its parts reads and writes."""

    stage: Stage
    replay: StageReplay
    reads: tuple[End, ...]
    writes: tuple[End, ...]


def recorded_stages(host: HostExecutor, record: CallRecord) -> list[RecordedStage]:
    """The stages of a call; empty if the kernel cannot repeat one of them."""
    schedule = host.schedule

    def end(item: int, buffer: int) -> End:
        whose = {0: Whose.SOURCE, schedule.last(item): Whose.TARGET}
        return whose.get(buffer, Whose.BETWEEN), item

    found = []
    for stage, ran, parts in zip(host.stages, record.stages, schedule.stages, strict=True):
        reads = tuple(end(part.item, part.source) for part in parts)
        writes = tuple(end(part.item, part.target) for part in parts)
        between = any(whose is Whose.BETWEEN for whose, _ in (*reads, *writes))
        if ran.replay is None or (between and not host.keeps_tiles):
            return []
        found.append(RecordedStage(stage, ran.replay, reads, writes))
    return found if all(map(_can_repeat, found)) else []


def _can_repeat(recorded: RecordedStage) -> bool:
    """Whether a stage is nothing but what the kernel can do."""
    parts, rounds = recorded.stage.parts, recorded.replay.rounds
    return (
        not any(part.step.fills for part in parts)
        and len(rounds) <= MOST_ROUNDS
        and all(kernel_code(c.op, c.dtype) is not None for r in rounds for c in r.combines)
    )
