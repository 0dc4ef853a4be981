"""Say how far long work has come: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO, TypeVar

T = TypeVar("T")

BAR = 30
REDRAW_S = 0.1
LINE_S = 10.0


class Progress:
    """Call it with what is done, how much there is in all, and the name of what comes next.

    >>> import io
    >>> quiet = io.StringIO()
    >>> Progress("proofs", quiet)(1, 4, "tiles: cover")
    >>> quiet.getvalue()            # not a terminal, and nothing took long
    ''

    ``bar`` says whether to draw a bar; by default it is drawn if ``stream`` (stderr) is a terminal.
    Work that is over within ``after_s`` has none. Elsewhere a line is written every ``line_s`` seconds.
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
        """Say so, unless something was said a moment ago; a bar goes when all is done."""
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


Said = Callable[[int, int], None]
"""Is told what is done, and how much there is in all."""


def nothing(done: int, total: int) -> None:
    """Say nothing."""


def said_if(label: str, asked: bool | None, speaks: bool = True) -> Said:
    """What says how far work has come: if asked, or on a terminal if nobody says (None); else nothing.

    Of several ranks only one ``speaks``.

    >>> said_if("HDBSCAN", False) is nothing, said_if("HDBSCAN", True, speaks=False) is nothing
    (True, True)
    """
    shows = sys.stderr.isatty() if asked is None else asked
    return Progress(label) if shows and speaks else nothing


def track(items: Iterable[T], total: int, label: str, stream: TextIO | None = None) -> Iterator[T]:
    """Hand the items on one by one and say how many of ``total`` are done.

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


def line_text(label: str, done: int, total: int, seconds: float) -> str:
    """One line for a file.

    >>> line_text("quality", 5, 20, 3.0)
    'quality: 5 of 20 done in 3 s, about 9 s to go'
    """
    left = seconds / done * (total - done)
    return f"{label}: {done} of {total} done in {seconds:.0f} s, about {left:.0f} s to go"
