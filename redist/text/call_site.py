"""Where the user's program calls this package: the nearest line outside it, and the name of the call."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType

import numpy as np

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep

BETWEEN = "sklearn"
"""A library whose functions call those of this package for a user, as NumPy's do: its estimators' ``fit``."""

OPERATORS = {
    **{f"__{name}__": sign for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))},
    **{f"__{name}__": sign for name, sign in (("truediv", "/"), ("matmul", "@"), ("pow", "**"))},
}


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


_STANDS_AT: ContextVar[Line | None] = ContextVar("stands_at", default=None)


@contextmanager
def standing_at(line: Line) -> Iterator[None]:
    """**Local.** Let what a block does count as done by a line: that of a program which is repeated."""
    token = _STANDS_AT.set(line)
    try:
        yield
    finally:
        _STANDS_AT.reset(token)


def calling_line() -> Line:
    """**Local.** The line that called into this package, or that a repeated program had there.

    >>> calling_line().file.startswith(PACKAGE)
    False
    """
    return _STANDS_AT.get() or public_call(sys._getframe(1))[1]


def public_call(frame: FrameType | None) -> tuple[FrameType | None, Line]:
    """**Local.** The outermost call of this package under way, and the line that made it."""
    public = None
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            public = frame
        elif frame.f_back is None or not (name.startswith(NUMPY) or _is_between(frame)):
            return public, Line(name, frame.f_lineno)
        frame = frame.f_back
    return public, Line("?", 0)


def call_text() -> str:
    """**Local.** The call of this package under way, in words: ``a.gather() (dead.py:6)``.

    >>> call_text()                                     # nobody outside calls this package
    'a call'
    """
    public, line = public_call(sys._getframe(1))
    line = _STANDS_AT.get() or line
    if public is None or line.number == 0 or "threading" in line.file:
        return "a call"
    return f"{_name_of(public)} ({line})"


def _name_of(public: FrameType) -> str:
    """**Local.** What a user would write to make a call."""
    code, module = public.f_code, str(public.f_globals.get("__name__", ""))
    name, own = code.co_name, public.f_locals.get("self")
    if own is None or code.co_varnames[:1] != ("self",):
        house = "pgas" if module.startswith("redist.pgas") else "redist"
        return f"{house}.{name}()"
    kind = type(own).__name__.lstrip("_")
    if kind.endswith("Array"):
        return f"a {OPERATORS[name]} b" if name in OPERATORS else f"a.{name}()"
    return f"{kind}()" if name in ("__init__", "__call__") else f"{kind}.{name}()"


def _is_between(frame: FrameType) -> bool:
    """**Local.** Whether a call is one of scikit-learn's own functions."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == BETWEEN
