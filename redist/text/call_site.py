"""Where the user's program calls this package: the nearest line outside it, and the name of the call."""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from types import FrameType, TracebackType
from typing import Any

import numpy as np

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep

CONTEXTLIB = contextlib.__file__
"""Python's own file, which runs the blocks of ``with``."""

LIBRARIES = (*{sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")}, "<")
"""Where files of other libraries lie, and code without a file."""

OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
SPECIAL = {
    **{f"__{name}__": f"a {sign} b" for name, sign in OPERATORS.items()},
    **{f"__r{name}__": f"b {sign} a" for name, sign in OPERATORS.items()},
    **{f"__i{name}__": f"a {sign}= b" for name, sign in OPERATORS.items()},
    "__eq__": "a == b", "__ne__": "a != b", "__lt__": "a < b", "__le__": "a <= b", "__gt__": "a > b",
    "__ge__": "a >= b", "__neg__": "-a", "__pos__": "+a", "__invert__": "~a", "__abs__": "abs(a)",
    "__float__": "float(a)", "__int__": "int(a)", "__bool__": "bool(a)", "__complex__": "complex(a)",
    "__index__": "int(a)", "__round__": "round(a)", "__getitem__": "a[...]",
    "__setitem__": "a[...] = b", "__iter__": "iter(a)", "__contains__": "b in a",
    "__deepcopy__": "a.copy()", "__copy__": "a.copy()",
}  # fmt: skip
"""What a user writes for a method that Python calls."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a program."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.number}"

    @property
    def code(self) -> str:
        """The source text of the line, if the file can be read."""
        return linecache.getline(self.file, self.number).strip()


AROUND = frozenset({"called", "checked", "anywhere"})
"""Names of functions around another, ``function``: it is that one which users call."""
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
    """**Local.** The outermost call of this package under way, and the line of the user that made it.

    If libraries alone did, as in a thread of theirs, the line is that of the nearest.
    """
    public, nearest = None, None
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        if name.startswith(PACKAGE):
            if public is None or code.co_name[0] != "<":  # no generator that a library goes through
                public = frame
        elif not (name == CONTEXTLIB or name.startswith(NUMPY)):
            if not _is_library(name):
                return public, Line(name, frame.f_lineno)
            nearest = nearest or Line(name, frame.f_lineno)
        elif frame.f_back is None:
            nearest = nearest or Line(name, frame.f_lineno)
        frame = frame.f_back
    return public, nearest or Line("?", 0)


@cache
def _is_library(file: str) -> bool:
    """**Local.** Whether a file is one of Python's or of an installed library; text that is run is not.

    >>> _is_library(os.__file__), _is_library("plot.py"), _is_library("<string>")
    (True, False, False)
    """
    if file.startswith("<"):
        return file.startswith("<frozen ")
    return file.startswith(LIBRARIES) or f"-packages{os.sep}" in file


def callers_of(where: TracebackType | None) -> TracebackType | None:
    """**Local.** A traceback without what this package did: the lines of the user's program alone.

    Functions of the user that this package called are kept, those of libraries are not. As it is, if the
    program is this package's own.
    """
    frames, within = [], False
    while where is not None:
        name = where.tb_frame.f_code.co_filename
        within = within or name.startswith(PACKAGE)
        if not within or not name.startswith((PACKAGE, *LIBRARIES)):
            frames.append(where)
        where = where.tb_next
    found = None
    for one in reversed(frames):
        found = TracebackType(found, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return found


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
    for numpys in ("ufunc", "function"):
        if name == f"__array_{numpys}__":
            return f"numpy.{public.f_locals[numpys].__name__}()"
    inner: Any = public.f_locals.get("function")
    if name in AROUND and hasattr(inner, "__name__"):  # around another
        name, args = inner.__name__, public.f_locals.get("args", ())
        if name in ("__array_ufunc__", "__array_function__"):
            return f"numpy.{args[1].__name__}()"
        is_method = inner.__qualname__ != name and args
        own = args[0] if is_method else None
    elif code.co_varnames[:1] != ("self",):
        own = None
    if name.startswith("<"):
        return "a call"
    if own is None:
        part = module.split(".")[1:2]
        houses = {"pgas": "pgas.", "torch": "redist.torch.", "learn": "", "spmd": "spmd."}
        return f"{houses.get(''.join(part), 'redist.')}{name}()"
    kind = type(own).__name__.lstrip("_")
    if kind.endswith("Array"):
        return SPECIAL.get(name, f"a.{name}()")
    if name == "__call__":
        return f"a call of a {kind}"
    return f"{kind}()" if name == "__init__" else f"{kind}.{name}()"
