"""How far long work has come: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

T = TypeVar("T")

BAR = 30
REDRAW_S = 0.1
LINE_S = 30.0


def track(items: Iterable[T], total: int, label: str, stream: TextIO | None = None) -> Iterator[T]:
    """The items one by one, saying on stderr how many of ``total`` are done.

    >>> import io
    >>> list(track("ab", 2, "letters", io.StringIO()))
    ['a', 'b']
    """
    out = sys.stderr if stream is None else stream
    bar = out.isatty()
    started = last = time.monotonic()
    done = 0
    for item in items:
        yield item
        done += 1
        now = time.monotonic()
        if now - last < (REDRAW_S if bar else LINE_S):
            continue
        last = now
        print(
            _text(label, done, total, now - started, bar),
            end="" if bar else "\n",
            file=out,
            flush=True,
        )
    if bar:
        print("\r\x1b[K", end="", file=out, flush=True)


def _text(label: str, done: int, total: int, seconds: float, bar: bool) -> str:
    """One line of progress.

    >>> _text("quality", 5, 20, 3.0, bar=False)
    'quality: 5 of 20 done in 3 s, about 9 s to go'
    """
    left = seconds / max(1, done) * max(0, total - done)
    if not bar:
        return f"{label}: {done} of {total} done in {seconds:.0f} s, about {left:.0f} s to go"
    filled = BAR * done // max(1, total)
    return (
        f"\r{label} [{'#' * filled}{'.' * (BAR - filled)}] {done}/{total}, {left:.0f} s to go\x1b[K"
    )
