"""What a program reaches without being given it: arrays, generators and values, and where they stand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from redist.pgas.programs.signature import sign
from redist.pgas.random.generators import Generator
from redist.pgas.tiles.tiled import Tiled
from redist.text.call_site import NUMPY, PACKAGE

MOST_DEPTH = 6
"""So deep containers, objects and functions are looked into."""
VALUES = (
    bool, int, float, complex, str, bytes, bytearray, range, slice, np.generic, type(None),
)  # fmt: skip
LARGE_BYTES = 2**16
"""Larger arrays of NumPy count by identity only."""
CONTAINERS = (tuple, list, deque, dict)
GROWING = (list, deque, dict, set)
CHANGING = (*GROWING, bytearray)
Look = Callable[[], Any]


@dataclass(frozen=True, slots=True, eq=False)
class OutsideThing:
    """What a program depends on, and the way to it from the function: it must still be so in a later call.

    An array; or a number, a function, how many things a list has: then there is no ``array``.
    """

    look: Look
    told: Any
    array: Any = None
    fixed: Any = None
    """The thing itself if it cannot change: then a look at who is there is enough, and quicker."""

    def still_stands(self) -> bool:
        """**Local.** Whether the same is found there."""
        now = _found(self.look)
        return (now is self.fixed and now is not None) or told_of(now) == self.told


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """All that a function reaches: arrays, each once, and other things.

    Arrays that the call was also given are not in ``arrays``; ``given`` has them, each with its place there.
    """

    arrays: tuple[OutsideThing, ...]
    things: tuple[OutsideThing, ...]
    given: tuple[tuple[OutsideThing, int], ...] = ()

    def beside(self, arrays: Sequence[Tiled]) -> Outside:
        """**Local.** The same for a call that is given these arrays."""
        places = {id(array): at for at, array in enumerate(arrays)}
        return Outside(
            tuple(one for one in self.arrays if id(one.array) not in places),
            self.things,
            tuple(
                (one, at) for one in self.arrays if (at := places.get(id(one.array))) is not None
            ),
        )

    def still_stands(self, given: Sequence[Tiled]) -> bool:
        """**Local.** Whether all of it is as it was, and the same arrays of it are given."""
        return (
            all(one.still_stands() for some in (self.arrays, self.things) for one in some)
            and all(one.still_stands() and given[at] is one.array for one, at in self.given)
            and not any(one.array is array for one in self.arrays for array in given)
        )

    def after_run(self) -> Outside:
        """**Local.** The same after the function has run: what it adds to containers is no change."""
        things = [
            replace(one, told=now) if one.told[0] in GROWING and now[0] is one.told[0] else one
            for one in self.things
            for now in [told_of(_found(one.look))]
        ]
        return replace(self, things=tuple(things))


def told_of(thing: Any) -> Any:
    """What must be the same of a thing in a later call: its value, or who it is; the type of an array.

    Of what is looked into, as containers and functions of the user are, only what its parts do not say.
    """
    if isinstance(thing, Tiled):
        return "array", id(thing), thing.type
    if isinstance(thing, VALUES):
        return type(thing), repr(thing)
    if isinstance(thing, np.ndarray) and thing.nbytes <= LARGE_BYTES:
        return "ndarray", str(thing.dtype), thing.shape, thing.tobytes()
    if isinstance(thing, (set, frozenset)):
        return type(thing), sign((thing,), {}).key
    for kind in CONTAINERS:
        if isinstance(thing, kind):
            return kind, len(thing)
    if isinstance(thing, FunctionType) and not _is_of_a_library(thing):
        return "function", thing.__code__
    if isinstance(thing, (MethodType, partial)) or (
        not isinstance(thing, type) and _is_of_the_user(thing)
    ):
        return "instance", type(thing)
    try:
        hash(thing)
    except TypeError:
        return "object", id(thing)
    return type(thing), thing


def _found(look: Look) -> Any:
    try:
        return look()
    except (AttributeError, KeyError, IndexError, ValueError, TypeError):
        return _found


def find_outside(function: Callable[..., Any], args: Sequence[Any] = ()) -> Outside:
    """**Local.** What a function, functions that it names, and objects among its arguments reach."""
    search = _Search()
    search.visit(function, lambda: function, 0)
    for one in args:
        if _is_of_the_user(one):
            search.visit(one, lambda one=one: one, 1)  # type: ignore[misc]
    return Outside(tuple(search.arrays.values()), tuple(search.things))


class _Search:
    def __init__(self) -> None:
        self.arrays: dict[int, OutsideThing] = {}
        self.things: list[OutsideThing] = []
        self._seen: dict[int, Any] = {}

    def visit(self, thing: Any, look: Look, depth: int) -> None:
        """Note an array or a value; look into anything else that may have some."""
        if isinstance(thing, Tiled):
            if id(thing) in self.arrays:  # by another way, which may lead elsewhere later
                self.things.append(OutsideThing(look, told_of(thing)))
            else:
                self.arrays[id(thing)] = OutsideThing(look, told_of(thing), thing)
            return
        told = told_of(thing)
        is_fixed = told[0] in ("function", type(thing)) and not isinstance(thing, CHANGING)
        self.things.append(OutsideThing(look, told, fixed=thing if is_fixed else None))
        if isinstance(thing, (*VALUES, np.ndarray, Generator)):
            return
        if depth > MOST_DEPTH or id(thing) in self._seen:
            return
        self._seen[id(thing)] = thing
        for inner, get in _parts(thing):
            self.visit(inner, partial(_through, look, get), depth + 1)


def _through(look: Look, get: Callable[[Any], Any]) -> Any:
    return get(look())


def _attribute(name: str, thing: Any) -> Any:
    return getattr(thing, name)


def _parts(thing: Any) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """What can be reached from something in one step, each with the way there."""
    if isinstance(thing, FunctionType):
        yield from _parts_of_function(thing)
    elif isinstance(thing, CONTAINERS):
        pairs = thing.items() if isinstance(thing, dict) else enumerate(thing)
        for key, one in pairs:
            yield one, itemgetter(key)
    elif isinstance(thing, MethodType):
        yield from _named(thing, "__self__", "__func__")
    elif isinstance(thing, partial):
        yield from _named(thing, "func", "args", "keywords")
    elif callable(thing) and hasattr(thing, "__wrapped__"):
        yield from _named(thing, "__wrapped__")
    elif _is_of_the_user(thing):
        yield from _named(thing, *_attributes(thing))


def _named(thing: Any, *names: str) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    for name in names:
        yield getattr(thing, name), partial(_attribute, name)


def _attributes(thing: Any) -> list[str]:
    """Names of what an object, or a class, has of its own."""
    names = list(getattr(thing, "__dict__", {}))
    for kind in () if isinstance(thing, type) else type(thing).__mro__:
        slots = getattr(kind, "__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if not name.startswith("__") and hasattr(thing, name)]


def _parts_of_function(function: FunctionType) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    if _is_of_a_library(function):
        return
    for i, cell in enumerate(function.__closure__ or ()):
        try:
            yield cell.cell_contents, partial(_cell, i)
        except ValueError:  # nothing is there yet
            continue
    given = [name for name in ("__defaults__", "__kwdefaults__") if getattr(function, name)]
    yield from _named(function, *given)
    used = _names(function.__code__)
    for name in sorted(used):
        found = function.__globals__.get(name)
        if isinstance(found, ModuleType):
            if _is_users_module(found):
                for inner in sorted(used & set(vars(found))):
                    yield getattr(found, inner), partial(_in_module, name, inner)
        elif name in function.__globals__:
            yield found, partial(_global, name)


def _is_of_a_library(function: FunctionType) -> bool:
    return function.__code__.co_filename.startswith((PACKAGE, NUMPY))


def _cell(i: int, function: Any) -> Any:
    return function.__closure__[i].cell_contents


def _global(name: str, function: Any) -> Any:
    return function.__globals__[name]


def _in_module(name: str, inner: str, function: Any) -> Any:
    return getattr(function.__globals__[name], inner)


def _names(code: CodeType) -> set[str]:
    """The names that a function, and functions inside it, take from its module."""
    names = set(code.co_names)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            names |= _names(one)
    return names


NOT_OF_THE_USER = (
    "builtins", "numpy", "redist", "mpi4py", "types", "cupy", "functools", "operator",
)  # fmt: skip


def _is_users_module(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None) or ""
    return module.__name__.split(".")[0] not in NOT_OF_THE_USER and "lib/python" not in file


def _is_of_the_user(thing: Any) -> bool:
    """Whether something is an object, or a class, that a program may have made."""
    kind = thing if isinstance(thing, type) else type(thing)
    if isinstance(thing, (ModuleType, FunctionType, *VALUES, Tiled, np.ndarray)):
        return False
    return kind.__module__.split(".")[0] not in (*NOT_OF_THE_USER, "_frozen_importlib")
