"""Find and replace things in nested tuples, lists, dicts and dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

Kinds = tuple[type, ...]
LEAVES = frozenset((int, float, complex, bool, str, bytes, type(None), slice))
"""Nothing is looked for inside these."""


def found_in(thing: Any, kinds: Kinds) -> list[Any]:
    """Everything of some kinds in a structure, in order.

    >>> found_in((1, ["x", {"k": "y"}]), (str,))
    ['x', 'y']
    """
    found: list[Any] = []
    _find(thing, kinds, found)
    return found


def _find(thing: Any, kinds: Kinds, found: list[Any]) -> None:
    if isinstance(thing, kinds):
        found.append(thing)
    elif thing.__class__ in LEAVES:
        return
    elif isinstance(thing, (tuple, list)):
        for one in thing:
            _find(one, kinds, found)
    elif isinstance(thing, dict):
        for one in thing.values():
            _find(one, kinds, found)
    elif is_dataclass(thing) and not isinstance(thing, type):
        for field in fields(thing):
            if field.init:
                _find(getattr(thing, field.name), kinds, found)


def replaced(thing: Any, kinds: Kinds, change: Callable[[Any], Any], *, init: bool = True) -> Any:
    """The same structure, in new lists and dicts, with something else in the places of some kinds.

    >>> replaced((1, ["x", 2]), (str,), str.upper)
    (1, ['X', 2])

    A dataclass is made anew by its ``__init__``, so that its ``__post_init__`` sees the values. Without
    ``init`` it only holds what stands for them, and its own code does not run.
    """
    return _walk(thing, kinds, change, init)[0]


def mapped(thing: Any, change: Callable[[Any], Any]) -> Any:
    """The same tuples, lists, dicts and slices, with everything else in them changed.

    >>> mapped((1, [2, {"k": 3}], slice(4, None)), lambda one: one and -one)
    (-1, [-2, {'k': -3}], slice(-4, None, None))
    """
    match thing:
        case tuple() | list():
            made = [mapped(one, change) for one in thing]
            if isinstance(thing, list):
                return made
            return thing._make(made) if hasattr(thing, "_make") else tuple(made)
        case dict():
            return {key: mapped(one, change) for key, one in thing.items()}
        case slice():
            return slice(*(mapped(x, change) for x in (thing.start, thing.stop, thing.step)))
    return change(thing)


def _walk(thing: Any, kinds: Kinds, change: Callable[[Any], Any], init: bool) -> tuple[Any, bool]:
    """The structure, and whether anything in it was replaced."""
    if isinstance(thing, kinds):
        return change(thing), True
    if thing.__class__ in LEAVES:
        return thing, False
    if isinstance(thing, (tuple, list)):
        pairs = [_walk(one, kinds, change, init) for one in thing]
        made = [one for one, _ in pairs]
        is_changed = any(changed for _, changed in pairs)
        if isinstance(thing, tuple) and hasattr(thing, "_make"):
            return thing._make(made), is_changed
        return (tuple(made) if isinstance(thing, tuple) else made), is_changed
    if isinstance(thing, dict):
        by_key = {key: _walk(one, kinds, change, init) for key, one in thing.items()}
        is_changed = any(changed for _, changed in by_key.values())
        return {key: one for key, (one, _) in by_key.items()}, is_changed
    if is_dataclass(thing) and not isinstance(thing, type):
        kept = {one.name: getattr(thing, one.name) for one in fields(thing) if one.init}
        inner, is_changed = _walk(kept, kinds, change, init)
        if not is_changed:
            return thing, False
        return (replace(thing, **inner) if init else _held(thing, **inner)), True
    return thing, False


def _held(thing: Any, **inner: Any) -> Any:
    """A dataclass of the same kind with these fields, made without its own code."""
    made = object.__new__(type(thing))
    for name, one in inner.items():
        object.__setattr__(made, name, one)
    return made
