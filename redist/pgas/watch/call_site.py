"""Where in the user's program a move comes from: the nearest line outside this package."""

from __future__ import annotations

import linecache
import os
import sys
from dataclasses import dataclass

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a program."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.number}"

    @property
    def code(self) -> str:
        """What stands there, if the file can be read."""
        return linecache.getline(self.file, self.number).strip()


def calling_line() -> Line:
    """**Local.** The line that called into this package.

    >>> calling_line().file.startswith(PACKAGE)
    False
    """
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return Line(frame.f_code.co_filename, frame.f_lineno)
