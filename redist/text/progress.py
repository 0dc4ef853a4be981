"""Report how far long work has come: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TextIO, TypeVar

T = TypeVar("T")

BAR = 30
REDRAW_S = 0.1
LINE_S = 10.0
ASKED_S, UNASKED_S = (2.0, 5.0, 10.0), 5.0
"""After how many seconds of work its first lines come if they are asked for, and the first if not."""


class Progress:
    """Call it with how much is done, how much there is in all, and the name of what comes next.

    >>> import io
    >>> quiet = io.StringIO()
    >>> Progress("proofs", quiet)(1, 4, "tiles: cover")
    >>> quiet.getvalue()            # not a terminal, and nothing took long
    ''

    ``bar`` says whether to draw a bar; by default one is drawn if ``stream`` (stderr) is a terminal. Work
    that finishes within ``after_s`` has none. Elsewhere a line is written every ``line_s`` seconds.
    """

    def __init__(
        self,
        label: str,
        stream: TextIO | None = None,
        bar: bool | None = None,
        after_s: float = 0.0,
        line_s: float | None = None,
    ) -> None:
        self._label, self._line_s = label, line_s
        self._out = sys.stderr if stream is None else stream
        self._bar = self._out.isatty() if bar is None else bar
        self._started = time.monotonic()
        self._last = self._started - REDRAW_S + after_s if self._bar else self._started
        self._drawn = not after_s

    def __call__(self, done: int, total: int, name: str = "") -> None:
        """Report it, unless something was reported a moment ago; the bar disappears when all is done."""
        now = time.monotonic()
        seconds, ended = now - self._started, self._bar and done >= total
        if ended and not self._drawn:
            return
        pause = REDRAW_S if self._bar else LINE_S if self._line_s is None else self._line_s
        if not ended and (now - self._last < pause or not total):
            return
        self._last = now
        self._drawn = True
        if self._bar:
            text = "" if ended else bar_text(self._label, done, total, name, seconds)
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{text[:width]}\x1b[K", end="", file=self._out, flush=True)
        elif done:
            print(line_text(self._label, done, total, seconds), file=self._out, flush=True)


class Said(Protocol):
    """Is told what is done, how much there is in all, and of what: ``rows of rank 0``."""

    def __call__(self, done: int, total: int, what: str = "", /) -> None:
        """Note it."""


def nothing(done: int, total: int, what: str = "", /) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class _Point:
    """Where work is: in which phase, since when, and how much of what is done."""

    name: str
    started: float
    done: int = 0
    total: int = 0
    what: str = ""


class Work:
    """Work in several phases, timed by one clock; reports its progress even while it cannot be asked.

    >>> import io
    >>> quiet = io.StringIO()
    >>> with Work("HDBSCAN", True, stream=quiet):
    ...     phase("tree")(1, 4)
    >>> quiet.getvalue()            # nothing took long
    ''

    If ``asked`` is True, lines are written after ``ASKED_S`` seconds, then every ``line_s``, and when a
    phase begins, unless nothing was written yet. If it is None, there is a bar on a terminal, and elsewhere
    a line after ``UNASKED_S``, then after twice as long each time, up to a minute. If it is False, nothing
    is written. Of several ranks only one ``speaks``. Work inside other work counts as part of it.
    """

    def __init__(
        self,
        label: str,
        asked: bool | None = None,
        speaks: bool = True,
        stream: TextIO | None = None,
        line_s: float = LINE_S,
    ) -> None:
        self._label, self._asked, self._line_s = label, asked, line_s
        self._out = sys.stderr if stream is None else stream
        self._speaks = speaks and asked is not False
        self._bar = self._speaks and self._out.isatty()
        self._started = time.monotonic()
        self._now = _Point("", self._started)
        self._has_told = False
        self._over = threading.Event()

    def __enter__(self) -> None:
        self._outer = _current.get()
        if self._outer is None:
            _current.set(self)
            if self._speaks:
                self._watch = threading.Thread(target=self._tell, daemon=True)
                self._watch.start()

    def __exit__(self, *problem: object) -> None:
        if self._outer is None:
            _current.set(None)
            if self._speaks:
                self._over.set()
                self._watch.join()

    def phase(self, name: str, number: int = 1, of: int = 1) -> Said:
        """What is told how far a phase has come: the ``number``-th of some."""
        if not self._speaks:
            return nothing
        name, started = f"{number} of {of}, {name}" if of > 1 else name, time.monotonic()
        self._now = _Point(name, started)
        if self._asked and self._has_told and not self._bar:
            print(
                f"{self._label}, {name}: begins after {started - self._started:.0f} s",
                file=self._out,
                flush=True,
            )
        draw = Progress(f"{self._label}, {name}", self._out) if self._bar else None

        def said(done: int, total: int, what: str = "", /) -> None:
            self._now = _Point(name, started, done, total, what)
            if draw is not None:
                draw(done, total)

        return said

    def stage(self, name: str) -> None:
        """Note where the work is, where nobody knows how much there is in all: ``round 12``."""
        if self._speaks:
            self._now = _Point(name, self._started)

    def _tell(self) -> None:
        """Write a line now and then, until the work is over."""
        pauses = self._pauses()
        while not self._over.wait(next(pauses)):
            at = self._now
            if not (self._bar and at.done < at.total):
                print(self._line(at, time.monotonic()), file=self._out, flush=True)
                self._has_told = True

    def _pauses(self) -> Iterator[float]:
        """The seconds from line to line."""
        if self._asked:
            yield from (now - before for before, now in pairwise((0.0, *ASKED_S)))
        pause = self._line_s if self._asked else UNASKED_S
        while True:
            yield pause
            pause = pause if self._asked else min(2 * pause, 60.0)

    def _line(self, at: _Point, now: float) -> str:
        if not self._asked:
            return worked_text(self._label, at.name, at.done, at.total, now - self._started)
        label = f"{self._label}, {at.name}" if at.name else self._label
        seconds = now - at.started
        if 0 < at.done < at.total:
            return line_text(label, at.done, at.total, seconds, at.what)
        every = f"all {at.total}{at.what and ' '}{at.what} done, " if at.done else ""
        return f"{label}: {every}{seconds:.0f} s so far"


_current: ContextVar[Work | None] = ContextVar("work", default=None)


def phase(name: str, number: int = 1, of: int = 1) -> Said:
    """What is told how far a phase of the work that goes on has come; nothing outside any.

    Where work has several phases, it is the ``number``-th ``of`` them.
    """
    work = _current.get()
    return nothing if work is None else work.phase(name, number, of)


def stage(name: str) -> None:
    """Note where the current work is, if there is any: ``start 3 of 50, round 12``."""
    work = _current.get()
    if work is not None:
        work.stage(name)


def track(items: Iterable[T], total: int, label: str, stream: TextIO | None = None) -> Iterator[T]:
    """Yield the items one by one, and report how many of ``total`` are done.

    >>> import io
    >>> list(track("ab", 2, "letters", io.StringIO()))
    ['a', 'b']
    """
    progress = Progress(label, stream)
    for done, item in enumerate(items, start=1):
        yield item
        progress(done, max(total, done))


def bar_text(label: str, done: int, total: int, name: str, seconds: float) -> str:
    """One line with a bar.

    >>> bar_text("proofs", 1, 4, "tiles: cover", 3.0)
    'proofs [#######.......................] 1/4 tiles: cover, 9 s to go'
    """
    filled = BAR * done // total
    left = f", {seconds / done * (total - done):.0f} s to go" if done else ""
    what = f" {name}" if name else ""
    return f"{label} [{'#' * filled}{'.' * (BAR - filled)}] {done}/{total}{what}{left}"


def line_text(label: str, done: int, total: int, seconds: float, what: str = "") -> str:
    """One line for a file.

    >>> line_text("quality", 5, 20, 3.0), line_text("DBSCAN", 5, 20, 3.0, "rows of rank 0")[:40]
    ('quality: 5 of 20 done in 3 s, about 9 s to go', 'DBSCAN: 5 of 20 rows of rank 0 done in 3')
    """
    left = seconds / done * (total - done)
    some = f"{done} of {total}{what and ' '}{what}"
    return f"{label}: {some} done in {seconds:.0f} s, about {left:.0f} s to go"


def worked_text(label: str, name: str, done: int, total: int, seconds: float) -> str:
    """One line of work that nobody asked about.

    >>> worked_text("HDBSCAN", "tree", 12, 100, 5.0), worked_text("KMeans", "", 0, 0, 5.0)
    ('HDBSCAN has been running for 5 s: tree, 12 %', 'KMeans has been running for 5 s')
    """
    share = f", {100 * done // total} %" if total else ""
    return f"{label} has been running for {seconds:.0f} s" + (f": {name}{share}" if name else "")
