"""Nested dicts as one dict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from redist.errors import ArgumentTypeError


def flattened(values: Any, verb: str, before: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values of a dict, of dicts in it with a dot between names; ``verb`` is what errors say.

    >>> [*flattened({"a": {"b": 1, "c": 2}, "d": 3}, "save")]
    [('a.b', 1), ('a.c', 2), ('d', 3)]
    """
    if not isinstance(values, Mapping):
        raise ArgumentTypeError(
            f"cannot {verb} {type(values).__name__}: need a dict of arrays by name, as in {{'w': w}}"
        )
    for key, value in values.items():
        if not isinstance(key, (str, int)) or isinstance(key, bool):
            raise ArgumentTypeError(f"cannot {verb} an array under the name {key!r}: need text")
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from flattened(value, verb, f"{name}.")
        else:
            yield name, value
