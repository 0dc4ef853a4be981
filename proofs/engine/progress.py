"""How far the proofs have come: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

BAR = 24
LINE_S = 10.0


class Progress:
    """Call it with checks done, checks in all, and the name of the next.

    >>> import io
    >>> quiet = io.StringIO()
    >>> Progress(quiet)(1, 4, "tiles: cover")
    >>> quiet.getvalue()            # not a terminal, and nothing took long
    ''
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._out = sys.stderr if stream is None else stream
        self._bar = self._out.isatty()
        self._last = time.monotonic()

    def __call__(self, done: int, total: int, name: str) -> None:
        """Say so."""
        now = time.monotonic()
        if self._bar:
            text = "" if done == total else bar_text(done, total, name)
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{text[:width]}\x1b[K", end="", file=self._out, flush=True)
        elif done and now - self._last >= LINE_S:
            self._last = now
            print(f"proofs: {done} of {total} checks done", file=self._out, flush=True)


def bar_text(done: int, total: int, name: str) -> str:
    """One line of progress.

    >>> bar_text(1, 4, "tiles: cover")
    '[######..................] 1/4 tiles: cover'
    """
    filled = BAR * done // max(1, total)
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {done}/{total} {name}"
