"""A wait that takes long: neighbours see its call, the user is told, and some day it is an error."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from redist.errors import ArgumentError, PeerError
from redist.text.call_site import call_text
from redist.text.units import ranks_in_words

LONG_S = 0.05
"""A wait that takes longer looks around so often."""
FIRST_WORD_S, NEXT_WORD = 10.0, 3
"""After so long a wait says so, and again each time it has taken this many times as long."""
DEFAULT_TIMEOUT_S = 300.0
CROSSED = (
    "all ranks are in this line but wait for different partners: do they give different indices or "
    "arguments? a.get(...) reads a rank's own part; REDIST_CHECK_CALLS=1 shows what each says"
)
VARIABLE = "REDIST_TIMEOUT_S"
LATE = f"it has begun it, and may still work on its part; {VARIABLE}=inf waits for it"


def timeout_from(text: str | None) -> float | None:
    """The seconds that ``REDIST_TIMEOUT_S`` says; None for ever.

    >>> timeout_from("20"), timeout_from("inf"), timeout_from(None)
    (20.0, None, 300.0)
    """
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ArgumentError(
            f"cannot use {VARIABLE}={text}: it is not a time above 0; give seconds, or inf for ever"
        )
    return None if math.isinf(seconds) else seconds


def check_timeout(timeout_s: Any) -> None:
    """**Local.** Raise unless this is a time to wait: seconds above 0, or None for ever.

    >>> check_timeout(5), check_timeout(None)
    (None, None)
    """
    is_number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if timeout_s is not None and not (is_number and timeout_s > 0):
        raise ArgumentError(
            f"cannot wait timeout_s={timeout_s!r}: need seconds above 0, or None for ever"
        )


class Surroundings(Protocol):
    """What a wait knows of the other ranks."""

    def say_waiting(self, call: str | None) -> None:
        """**Local.** Tell the neighbours in which call this rank waits; None: it waits no more."""

    def raise_if_apart(self) -> None:
        """**Local.** Raise if a neighbour waits in another call, and both would wait for ever."""

    def all_wait_here(self) -> bool:
        """**Local.** Whether all ranks are known to wait in the same line as this one."""

    def absent(self) -> tuple[list[int], list[int], int]:
        """**Local.** The neighbours that wait too, those that have not come, and how many ranks there are."""


_BEGUN: ContextVar[bool] = ContextVar("begun", default=False)


@contextmanager
def begun_by_all() -> Iterator[None]:
    """**Local.** A block that every rank is known to have begun: who waits in it waits for others' work."""
    token = _BEGUN.set(True)
    try:
        yield
    finally:
        _BEGUN.reset(token)


def is_begun() -> bool:
    """**Local.** Whether such a block is under way."""
    return _BEGUN.get()


class LongWait:
    """One wait, once it takes long, until :meth:`end`."""

    __slots__ = ("_around", "_looked", "_next_s", "_start", "_timeout_s", "call")

    def __init__(
        self, start: float, timeout_s: float | None, around: Surroundings | None = None
    ) -> None:
        self._start, self._timeout_s, self._around = start, timeout_s, around
        self._looked, self._next_s = start, FIRST_WORD_S
        self.call = call_text()
        if around is not None:
            around.say_waiting(self.call)

    def look(self, now: float) -> None:
        """Look at the others now and then; raise if they wait for something else, or if time is up."""
        waited = now - self._start
        if self._timeout_s is not None and waited > self._timeout_s:
            who = "a partner" if self._is_crossed() else self._who()[1]
            raise PeerError(
                f"{who} did not come within {self._timeout_s:g} s to {self.call}; {self._advice()}"
            )
        if now - self._looked < LONG_S:
            return
        self._looked = now
        if self._around is not None:
            self._around.raise_if_apart()
        if waited >= self._next_s:
            self._next_s = NEXT_WORD * max(self._next_s, waited / NEXT_WORD)
            self._say(waited)

    def end(self) -> None:
        """The wait is over, well or not."""
        if self._around is not None:
            self._around.say_waiting(None)

    def _say(self, waited: float) -> None:
        """One line for all who wait on this node."""
        waiting, who = self._who()
        if waiting is None:
            return
        said = f"{waiting} waited {waited:.0f} s in {self.call} for {who}; {self._advice()}"
        if is_begun() and not self._is_crossed():
            said = (
                f"{waiting} finished {'its' if waiting.endswith('has') else 'their'} part of {self.call} and "
                f"waited {waited:.0f} s for {who} to finish"
            )
        print(said, file=sys.stderr, flush=True)

    def _is_crossed(self) -> bool:
        """Whether all ranks wait in this line, and so none can come."""
        return self._around is not None and self._around.all_wait_here()

    def _advice(self) -> str:
        if self._is_crossed():
            return CROSSED
        return LATE if is_begun() else "every rank must make this call"

    def _who(self) -> tuple[str | None, str]:
        """Who waits, if this rank is to say it, and for whom."""
        if self._around is None:
            return "a rank has", "other ranks"
        waiting, absent, size = self._around.absent()
        has = "has" if len(waiting) == 1 else "have"
        says = f"{ranks_in_words(waiting, size)} {has}" if waiting else None
        return says, ranks_in_words(absent, size) if absent else "other ranks"


TIMEOUT_S = timeout_from(os.environ.get(VARIABLE))
"""So long ranks wait for each other unless a caller says otherwise."""
