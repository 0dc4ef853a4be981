"""``REDIST_CHECK_CALLS=1``: before every call of global arrays, ranks compare what they say.

Without the variable nothing of this is in the way. With it, the functions of ``pgas``, the methods of arrays
and calls of programs first send a digest of the call to all ranks: its name, its arguments, and which arrays
these are. Arrays are numbered in the order in which calls give them, on each rank for itself.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import wraps
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.pgas.ghosts.tape import current_tape
from redist.pgas.global_array import Array
from redist.pgas.methods import Methods
from redist.pgas.operators import Operators
from redist.pgas.programs.program import Program
from redist.pgas.random.generators import Generator
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.collectives import tell_all
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm, comm_or_world, world_of
from redist.text.call_site import PACKAGE, SPECIAL, call_text
from redist.text.units import ranks_in_words

VARIABLE = "REDIST_CHECK_CALLS"
F = TypeVar("F", bound=Callable[..., Any])

LOCAL_FUNCTIONS = {
    "__array_namespace_info__", "can_cast", "finfo", "iinfo", "isdtype", "program", "result_type",
}  # fmt: skip
LOCAL_METHODS = {
    "__array__", "__array_namespace__", "__buffer__", "__dlpack__", "__dlpack_device__",
    "__format__", "__getattr__", "__len__", "__reduce__", "__repr__", "__str__", "accumulate", "get",
    "put",
}  # fmt: skip
"""What ranks may call each for itself."""
PROPERTIES = ("T", "mT", "real", "imag")
SHOWN = 60
"""An error shows so many letters of an argument."""
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
        for array in _arrays_in(result):
            number_of(array)
        return result

    return checked  # type: ignore[return-value]


_INSIDE: ContextVar[bool] = ContextVar("inside", default=False)


def _arrays_in(thing: Any) -> Iterable[Tiled]:
    """**Local.** The global arrays among arguments or results, in order."""
    if isinstance(thing, Tiled):
        yield thing
    elif isinstance(thing, (tuple, list)):
        for one in thing:
            yield from _arrays_in(one)
    elif isinstance(thing, dict):
        yield from _arrays_in(list(thing.values()))


def _comm_of(args: tuple[Any, ...], options: dict[str, Any]) -> Comm:
    """**Local.** Whose ranks make a call: those of its first array, those named, or all."""
    first = next(iter(_arrays_in([args, options])), None)
    if first is not None:
        return first.comm
    given = options.get("comm")
    return given if isinstance(given, Comm) else comm_or_world(None)


# Which array it is

_NUMBERS: dict[int, tuple[weakref.ref[Tiled], int]] = {}
_COUNTS: dict[int, itertools.count[int]] = {}


def number_of(array: Tiled) -> int:
    """**Local.** How many arrays over these ranks were met here before this one."""
    found = _NUMBERS.get(id(array))
    if found is not None and found[0]() is array:
        return found[1]
    key = id(array)
    count = _COUNTS.setdefault(array.comm.handle, itertools.count())
    gone = weakref.ref(array, lambda ref: _forget(key, ref))
    _NUMBERS[key] = gone, next(count)
    return _NUMBERS[key][1]


def _forget(key: int, ref: weakref.ref[Tiled]) -> None:
    if _NUMBERS.get(key, (None, 0))[0] is ref:
        del _NUMBERS[key]


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
    digest = hashlib.blake2b(full.encode(), digest_size=16).digest()
    told = tell_all(comm, np.frombuffer(digest, np.uint8))
    if (told == told[0]).all():
        return
    where = call_text().rpartition(" (")[2].rstrip(")")
    own = CallWords(short, full, where, function.__name__)
    world = world_of(comm)
    with world.operation(TIMEOUT_S):
        said: list[CallWords] = world.gather(own)
    raise RequestError(_differ(said))


def _differ(said: list[CallWords]) -> str:
    """**Local.** The error for calls that differ: who says what, and what to do.

    >>> _differ([CallWords("a[0:8]", "0", "part.py:5", "__getitem__"),
    ...          CallWords("a[8:16]", "1", "part.py:5", "__getitem__")])[:71]
    'cannot index: rank 0: a[0:8] (part.py:5); rank 1: a[8:16] (part.py:5); '
    """
    full = len({one.short for one in said}) < len({one.full for one in said})
    who: dict[str, list[int]] = {}
    for rank, one in enumerate(said):
        text = one.full if full else one.short
        text = text if len(text) < 4 * SHOWN else f"{text[: 4 * SHOWN]}..."
        who.setdefault(f"{text} ({one.where})", []).append(rank)
    names = {one.name for one in said}
    verb, rule = RULES.get(next(iter(names)), OTHERWISE) if len(names) == 1 else OTHERWISE
    parts = "; ".join(f"{ranks_in_words(ranks, len(said))}: {text}" for text, ranks in who.items())
    return f"cannot {verb}: {parts}; {rule}"


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
        return f"pgas.{house}{name}({_listed(args, options, exact)})"
    a = _word(own, exact) if exact or not isinstance(own, Tiled) else "a"
    match name, args[1:]:
        case "__getitem__", (key,):
            return f"{a}[{_key(key, exact)}]"
        case "__setitem__", (key, value):
            return f"{a}[{_key(key, exact)}] = {_word(value, exact)}"
        case "__array_ufunc__", (ufunc, how, *rest):
            call = f"numpy.{ufunc.__name__}" + ("" if how == "__call__" else f".{how}")
            return f"{call}({_listed(rest, options, exact)})"
        case "__array_function__", (numpys, _, given, named):
            return f"numpy.{numpys.__name__}({_listed(given, named, exact)})"
        case "__call__", given:
            return f"{a}({_listed(given, options, exact)})"
        case _, given if name in SPECIAL and not options:
            words = {"a": a, "b": ", ".join(_word(one, exact) for one in given)}
            return re.sub(r"\b[ab]\b", lambda found: words[found[0]], SPECIAL[name])
    if name in PROPERTIES:
        return f"{a}.{name}"
    return f"{a}.{name}({_listed(args[1:], options, exact)})"


def _listed(args: Iterable[Any], options: Mapping[str, Any], exact: bool) -> str:
    named = (f"{key}={_word(one, exact)}" for key, one in sorted(options.items()))
    return ", ".join([*(_word(one, exact) for one in args), *named])


def _key(key: Any, exact: bool) -> str:
    """**Local.** What stands between the brackets."""
    if isinstance(key, tuple) and key:
        return ", ".join(_key(one, exact) for one in key)
    if not isinstance(key, slice):
        return _word(key, exact)
    ends = [key.start, key.stop] + ([] if key.step is None else [key.step])
    return ":".join("" if one is None else _word(one, exact) for one in ends)


def _word(thing: Any, exact: bool) -> str:
    """**Local.** An argument in words; with ``exact``, other words for other values."""
    words = _words_of(thing, exact)
    return words if exact or len(words) <= SHOWN else f"{words[:SHOWN]}..."


def _words_of(thing: Any, exact: bool) -> str:
    match thing:
        case Tiled():
            return f"(array {number_of(thing)}, {thing.type})" if exact else str(thing.type)
        case np.ndarray():
            return _values(thing, exact)
        case np.generic():
            return repr(thing.item())
        case bool() | int() | float() | complex() | str() | bytes() | None:
            return repr(thing)
        case slice():
            return f"slice({_key(thing, exact)})"
        case tuple() | list() | set() | frozenset():
            inner = ", ".join(_word(one, exact) for one in thing)
            return f"[{inner}]" if isinstance(thing, list) else f"({inner})"
        case dict():
            return f"{{{_listed((), {str(key): one for key, one in thing.items()}, exact)}}}"
        case ArrayType() | Mesh() | np.dtype():
            return str(thing)
        case os.PathLike():
            return repr(os.fspath(thing))
        case Comm():
            return f"comm of {thing.size}"
        case Generator():
            return f"pgas.random.generator({thing.seed})" + exact * f" after {thing.calls} calls"
        case Program():
            return thing.name
    if thing is Ellipsis:
        return "..."
    return str(getattr(thing, "__qualname__", type(thing).__name__))


def _values(values: np.ndarray[Any, Any], exact: bool) -> str:
    """**Local.** NumPy's values, as far as they can be shown."""
    if values.size <= 8 and not exact:
        return str(values.tolist())
    head = f"{values.dtype}{list(values.shape)}"
    if not exact:
        return head
    data = repr(values.tolist()).encode() if values.dtype.hasobject else values.tobytes()
    return f"{head} with digest {hashlib.blake2b(data, digest_size=8).hexdigest()}"
