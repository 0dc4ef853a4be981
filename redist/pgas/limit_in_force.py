"""The memory limit in force: a value in a context variable, not a switch of the process."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """What global arrays may hold on a rank, of the host's memory and of a GPU's each; None for no limit.

    Where a memory has no room, ``spill_from`` is asked to spill arrays to the place that ``spill`` names,
    until this many bytes more fit.
    """

    limit_bytes: int | None = None
    spill: str | None = None
    spill_from: Callable[[Any, int], None] | None = None


_LIMIT: ContextVar[MemoryLimit | None] = ContextVar("limit", default=None)
"""The limit of a ``with`` block, or of the last call in this context."""
_OF_PROCESS = [MemoryLimit()]
"""The limit where a context has none, as in a new thread: that of the last call outside any block."""


def current_limit() -> MemoryLimit:
    """**Local.** The limit in force here."""
    found = _LIMIT.get()
    return _OF_PROCESS[0] if found is None else found


def set_limit(limit: MemoryLimit) -> Token[MemoryLimit | None]:
    """**Local.** Let a limit be in force in this context."""
    return _LIMIT.set(limit)


def reset_limit(token: Token[MemoryLimit | None]) -> None:
    """**Local.** Let the limit before be in force again."""
    _LIMIT.reset(token)


def set_limit_of_process(limit: MemoryLimit) -> MemoryLimit:
    """**Local.** Let a limit be in force where a context has none; that before."""
    before, _OF_PROCESS[0] = _OF_PROCESS[0], limit
    return before
