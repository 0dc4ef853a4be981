"""The limit that a program keeps on every rank, and what its layouts were planned for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from redist.errors import NoPlanError
from redist.text.progress import Work
from redist.text.units import format_beside, format_bytes

PLANNING_LINE_S = 5.0
"""With ``progress`` a line says so often that planning goes on."""


@dataclass(frozen=True, slots=True)
class RunLimit:
    """What a program may hold on a rank, and the folder to spill to: None if nothing may be put away."""

    limit_bytes: int
    spill: str | None = None
    is_own: bool = False
    """Whether the program says where to spill to, not ``redist.memory_limit``."""

    def planning(self, name: str, speaks: bool, progress: bool = False) -> Work:
        """What says, while a program is planned, that it still is; of all ranks, one ``speaks``."""
        label = f"the planner of {name} within {format_bytes(self.limit_bytes)} a rank"
        return Work(label, True if progress else None, speaks, line_s=PLANNING_LINE_S)

    def refusal(self, name: str, needed_bytes: int, why: str) -> NoPlanError:
        """The error of a program that needs more; ``why`` names what does."""
        folder = "" if self.spill else ", a folder to spill to (spill=)"
        limit, needed = self.limit_bytes, needed_bytes
        size = f" ({format_bytes(needed, round_up=True)})"
        return NoPlanError(
            f"cannot run {name} within {format_beside(limit, needed)} a rank: {why}; "
            f"give limit={needed}{size}{folder}, or more ranks",
            needed,
        )


class LayoutsFor(Enum):
    """What the layouts of a program were planned for: its limit, speed alone, or nothing, as written."""

    LIMIT = "limit"
    SPEED = "speed"
    NOTHING = "nothing"
