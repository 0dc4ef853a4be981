"""``REDIST_CHECK_CALLS=1``: before every call of global arrays, ranks compare what they say.

Without the variable nothing of this is in the way. With it, the functions of ``pgas``, the methods of arrays
and calls of programs first send a digest of the call to all ranks: its name, its arguments, and which arrays
these are.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from redist.errors import RequestError
from redist.pgas.compare_ranks import (
    calls_by_rank,
    key_words,
    listed,
    number_of,
    place_of_call,
    said_if_different,
    word,
)
from redist.pgas.ghosts.tape import current_tape
from redist.pgas.global_array import Array
from redist.pgas.methods import Methods
from redist.pgas.operators import Operators
from redist.pgas.random.generators import Generator
from redist.pgas.structures import found_in
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.text.call_site import PACKAGE, SPECIAL

VARIABLE = "REDIST_CHECK_CALLS"
F = TypeVar("F", bound=Callable[..., Any])

LOCAL_FUNCTIONS = {
    "__array_namespace_info__", "can_cast", "checkpoint", "custom_gradient", "finfo", "grad", "iinfo",
    "isdtype", "program", "result_type", "value_and_grad",
}  # fmt: skip
LOCAL_METHODS = {
    "__array__", "__array_namespace__", "__buffer__", "__dlpack__", "__dlpack_device__",
    "__format__", "__getattr__", "__len__", "__reduce__", "__repr__", "__str__", "accumulate", "get",
    "put",
}  # fmt: skip
"""What ranks may call each for itself."""
PROPERTIES = ("T", "mT", "real", "imag")
RULES = {
    "__getitem__": (
        "index",
        "every rank must give the same index; a.get(...) reads a rank's own part",
    ),
    "__setitem__": (
        "write to an index",
        "every rank must give the same index and value; a.local[...] = value writes a rank's own part",
    ),
}
OTHERWISE = (
    "make this call",
    "every rank must make the same call with the same arguments; pgas.from_local makes one array of "
    "what ranks have each for itself",
)


def check_calls(namespace: Mapping[str, Any]) -> None:
    """**Local.** Let the calls of ``pgas`` be compared from now on, if the variable says so."""
    if os.environ.get(VARIABLE, "") in ("", "0"):
        return
    from redist.pgas.programs.program import Program  # otherwise loaded when it is first used

    for name in namespace["__all__"]:
        getattr(sys.modules["redist.pgas"], name)
    for one in (namespace, vars(namespace["linalg"]), vars(namespace["fft"])):
        for name in one["__all__"]:
            if isinstance(one[name], FunctionType) and name not in LOCAL_FUNCTIONS:
                one[name] = compared(one[name])  # type: ignore[index]
    for kind in (Operators, Methods, Array):
        for name, method in list(vars(kind).items()):
            private = name.startswith("_") and not name.startswith("__")
            if isinstance(method, FunctionType) and not private and name not in LOCAL_METHODS:
                setattr(kind, name, compared(method))
            elif isinstance(method, property) and name in PROPERTIES and method.fget is not None:
                setattr(kind, name, property(compared(method.fget), doc=method.__doc__))
    for name in ("uniform", "normal", "integers"):
        setattr(Generator, name, compared(getattr(Generator, name)))
    Program.__call__ = compared(Program.__call__)  # type: ignore[method-assign]


def compared(function: F) -> F:
    """Let the ranks compare a call before it is made, if it is the program that makes it."""

    @wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        within_package = sys._getframe(1).f_code.co_filename.startswith(PACKAGE)
        if within_package or _INSIDE.get() or current_tape() is not None:
            return function(*args, **options)
        comm = _comm_of(args, options)
        if comm.size > 1:
            _compare(comm, function, args, options)
        token = _INSIDE.set(True)
        try:
            result = function(*args, **options)
        finally:
            _INSIDE.reset(token)
        for array in found_in(result, (Tiled,)):
            number_of(array)
        return result

    return checked  # type: ignore[return-value]


_INSIDE: ContextVar[bool] = ContextVar("inside", default=False)


def _comm_of(args: tuple[Any, ...], options: dict[str, Any]) -> Comm:
    """**Local.** Whose ranks make a call: those of its first array, those named, or all."""
    arrays = found_in([args, options], (Tiled,))
    if arrays:
        return arrays[0].comm
    given = options.get("comm")
    return given if isinstance(given, Comm) else comm_or_world(None)


# What a rank says


class CallWords(NamedTuple):
    """A call as one rank makes it: for people, with all that must be alike, and where it stands."""

    short: str
    full: str
    where: str
    name: str


def _compare(
    comm: Comm, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    """**Collective over** ``comm``. Raise the same error on all ranks if they make different calls."""
    short, full = (_call_words(function, args, options, exact) for exact in (False, True))
    said = said_if_different(
        comm, full, lambda: CallWords(short, full, place_of_call(), function.__name__)
    )
    if said is not None:
        raise RequestError(_differ(said))


def _differ(said: list[CallWords]) -> str:
    """**Local.** The error for calls that differ: who says what, and what to do.

    >>> _differ([CallWords("a[0:8]", "0", "part.py:5", "__getitem__"),
    ...          CallWords("a[8:16]", "1", "part.py:5", "__getitem__")])[:71]
    'cannot index: rank 0: a[0:8] (part.py:5); rank 1: a[8:16] (part.py:5); '
    """
    who = calls_by_rank((one.short, one.full, one.where) for one in said)
    names = {one.name for one in said}
    verb, rule = RULES.get(next(iter(names)), OTHERWISE) if len(names) == 1 else OTHERWISE
    return f"cannot {verb}: {who}; {rule}"


def _call_words(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], exact: bool
) -> str:
    """**Local.** A call as a program writes it; with ``exact``, with all that ranks must have alike."""
    name = function.__name__
    own = args[0] if args and function.__qualname__ != name else None
    if name == "from_local":  # tiles are each rank's own
        args = ("tile", *args[1:])
        options = {key: "tile" if key == "local" else one for key, one in options.items()}
    if own is None:
        house = "" if function.__module__.split(".")[2] not in ("linalg", "fft") else (
            f"{function.__module__.split('.')[2]}."
        )  # fmt: skip
        return f"pgas.{house}{name}({listed(args, options, exact)})"
    a = word(own, exact) if exact or not isinstance(own, Tiled) else "a"
    match name, args[1:]:
        case "__getitem__", (key,):
            return f"{a}[{key_words(key, exact)}]"
        case "__setitem__", (key, value):
            return f"{a}[{key_words(key, exact)}] = {word(value, exact)}"
        case "__array_ufunc__", (ufunc, how, *rest):
            call = f"numpy.{ufunc.__name__}" + ("" if how == "__call__" else f".{how}")
            return f"{call}({listed(rest, options, exact)})"
        case "__array_function__", (numpys, _, given, named):
            return f"numpy.{numpys.__name__}({listed(given, named, exact)})"
        case "__call__", given:
            return f"{a}({listed(given, options, exact)})"
        case _, given if name in SPECIAL and not options:
            words = {"a": a, "b": ", ".join(word(one, exact) for one in given)}
            return re.sub(r"\b[ab]\b", lambda found: words[found[0]], SPECIAL[name])
    if name in PROPERTIES:
        return f"{a}.{name}"
    return f"{a}.{name}({listed(args[1:], options, exact)})"
