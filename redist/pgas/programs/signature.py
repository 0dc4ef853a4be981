"""Arguments of a program: which of them are arrays, and what calls of one program have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from redist.pgas.tiles.tiled import Tiled

BY_VALUE = (str, int, bool, type(None))
"""Arguments that a key has as they are."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of a call, the arrays among them, each once, and a key that calls of one program share.

    ``kept`` are the arguments that count by identity: they must live as long as the key is used.
    """

    arrays: tuple[Tiled, ...]
    key: Hashable
    kept: tuple[Any, ...]
    args: tuple[Any, ...]
    options: Mapping[str, Any]

    @property
    def speaks(self) -> bool:
        """**Local.** Whether this rank is the one that says how planning goes."""
        return bool(self.arrays) and self.arrays[0].comm.rank == 0

    @property
    def has_aliases(self) -> bool:
        """**Local.** Whether two of the arrays may lie in the same memory; the same on all ranks."""
        shared = [one for array in self.arrays if (one := array.shared_with) is not None]
        return len({id(one) for one in shared}) < len(shared)


def sign(args: tuple[Any, ...], options: Mapping[str, Any]) -> Signature:
    """**Local.** Find the arrays in the arguments of a call, and its key.

    >>> sign((1, [2.0, "x"]), {}).key == sign((1, [2.0, "x"]), {}).key
    True
    >>> sign((1,), {}).key == sign((True,), {}).key
    False
    """
    maker = _KeyMaker()
    key = maker.key_of(args), maker.key_of(dict(options))
    return Signature(tuple(maker.arrays), key, tuple(maker.kept), args, options)


class _KeyMaker:
    """Makes keys of arguments, and notes the arrays among them."""

    def __init__(self) -> None:
        self.arrays: list[Tiled] = []
        self.kept: list[Any] = []
        self._places: dict[int, int] = {}

    def key_of(self, thing: Any) -> Hashable:
        """The key of anything."""
        key_of = self.key_of
        if isinstance(thing, Tiled):
            at = self._places.setdefault(id(thing), len(self.arrays))
            if at == len(self.arrays):
                self.arrays.append(thing)
            return ("array", at, thing.memory, thing._type, getattr(thing.comm, "handle", 0))
        if thing.__class__ in BY_VALUE:
            return (thing.__class__, thing)
        if isinstance(thing, (tuple, list)):
            return (type(thing), *map(key_of, thing))
        if isinstance(thing, (float, complex)):
            return (type(thing), repr(thing))  # zeros of either sign differ, NaN is itself
        if isinstance(thing, np.ndarray):
            bits = hashlib.sha1(np.ascontiguousarray(thing).tobytes()).hexdigest()
            return (np.ndarray, str(thing.dtype), thing.shape, bits)
        if isinstance(thing, (set, frozenset)):
            return (type(thing), frozenset(map(key_of, thing)))
        if isinstance(thing, dict):
            return (type(thing), *((key_of(k), key_of(one)) for k, one in thing.items()))
        if is_dataclass(thing) and not isinstance(thing, type):
            found = [key_of(getattr(thing, one.name)) for one in fields(thing)]
            return (type(thing), *found)
        self.kept.append(thing)
        try:
            hash(thing)
        except TypeError:
            return ("object", id(thing))
        return (type(thing), thing)
