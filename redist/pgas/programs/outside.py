"""Arrays that a program reaches without being given them: in its closure, and under names of its module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import getitem
from types import CodeType, FunctionType, MethodType
from typing import Any

from redist.pgas.tiles.tiled import Tiled
from redist.pgas.watch.call_site import PACKAGE

MOST_DEPTH = 4
"""So deep containers, objects and functions are looked into."""


@dataclass(frozen=True, slots=True)
class OutsideArray:
    """An array, and where it stands: it must still stand there in a later call."""

    array: Tiled
    look: Callable[[], Any]

    def still_stands(self) -> bool:
        """**Local.** Whether the same array is found there."""
        try:
            return self.look() is self.array
        except (AttributeError, KeyError, IndexError, ValueError):
            return False


def find_outside(function: Callable[..., Any]) -> list[OutsideArray]:
    """**Local.** The arrays that a function, and functions of the user that it names, can reach."""
    found: dict[int, OutsideArray] = {}
    seen: set[int] = set()
    _search(function, lambda: function, 0, found, seen)
    return list(found.values())


def _search(
    thing: Any,
    look: Callable[[], Any],
    depth: int,
    found: dict[int, OutsideArray],
    seen: set[int],
) -> None:
    if isinstance(thing, Tiled):
        found.setdefault(id(thing), OutsideArray(thing, look))
        return
    if depth > MOST_DEPTH or id(thing) in seen:
        return
    for inner, where in _parts(thing):
        seen.add(id(thing))
        _search(inner, where, depth + 1, found, seen)


def _parts(thing: Any) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """What can be reached from something in one step, each with a way to look again."""
    if isinstance(thing, FunctionType):
        yield from _parts_of_function(thing)
    elif type(thing) in (tuple, list):
        for i, one in enumerate(thing):
            yield one, partial(getitem, thing, i)
    elif isinstance(thing, dict):
        for key, one in thing.items():
            yield one, partial(getitem, thing, key)
    elif isinstance(thing, MethodType):
        for name in ("__self__", "__func__"):
            yield getattr(thing, name), partial(getattr, thing, name)
    elif callable(thing) and hasattr(thing, "__wrapped__"):
        yield thing.__wrapped__, partial(getattr, thing, "__wrapped__")
    elif _is_of_the_user(thing):
        for name, one in vars(thing).items():
            yield one, partial(getattr, thing, name)


def _parts_of_function(function: FunctionType) -> Iterator[tuple[Any, Callable[[], Any]]]:
    if function.__code__.co_filename.startswith(PACKAGE):
        return
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents, partial(getattr, cell, "cell_contents")
        except ValueError:  # nothing is there yet
            continue
    names = function.__globals__
    for name in _names(function.__code__):
        if name in names:
            yield names[name], partial(getitem, names, name)


def _names(code: CodeType) -> set[str]:
    """The names that a function, and functions inside it, take from its module."""
    names = set(code.co_names)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            names |= _names(one)
    return names


def _is_of_the_user(thing: Any) -> bool:
    """Whether something is an object with attributes, of a class that a program may have made."""
    kind = type(thing)
    if isinstance(thing, type) or not hasattr(thing, "__dict__"):
        return False
    module = kind.__module__.split(".")[0]
    return module not in ("builtins", "numpy", "redist", "mpi4py", "types", "_frozen_importlib")
