"""Compare what ranks say of one call: a digest first, and words only if it differs.

Arguments become words: short ones for people, and exact ones that differ where values do. Each rank numbers
arrays in the order in which calls give them.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.pgas.random.generators import Generator
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.collectives import tell_all
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm
from redist.text.call_site import call_text
from redist.text.units import ranks_in_words

S = TypeVar("S")
SHOWN = 60
"""People see this many letters of an argument."""


def said_if_different(comm: Comm, exact: str, say: Callable[[], S]) -> list[S] | None:
    """**Collective over** ``comm``. None if ``exact`` is the same on all ranks; else what each has to say."""
    digest = hashlib.blake2b(exact.encode(), digest_size=16).digest()
    told = tell_all(comm, np.frombuffer(digest, np.uint8))
    return None if (told == told[0]).all() else gather(comm, say(), TIMEOUT_S)


def place_of_call() -> str:
    """**Local.** File and line of the call under way."""
    return call_text().rpartition(" (")[2].rstrip(")")


def by_rank(texts: Sequence[str], joint: str = "; ") -> str:
    """Who says what, equal texts once.

    >>> by_rank(["3 rows", "4 rows", "3 rows"])
    'ranks 0, 2: 3 rows; rank 1: 4 rows'
    """
    who: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        who.setdefault(text, []).append(rank)
    return joint.join(f"{ranks_in_words(ranks, len(texts))}: {text}" for text, ranks in who.items())


def calls_by_rank(
    calls: Iterable[tuple[str, str, str]], joint: str = "; ", most: int = 4 * SHOWN
) -> str:
    """Who makes which call, and where: calls in words, with all that must be alike, and their places.

    The words for people do where they tell the calls apart.

    >>> calls_by_rank([("a[0:8]", "array 1[0:8]", "part.py:5"), ("a[8:16]", "array 1[8:16]", "part.py:5")])
    'rank 0: a[0:8] (part.py:5); rank 1: a[8:16] (part.py:5)'
    >>> calls_by_rank([("f(a)", "f(array 1)", "part.py:7"), ("f(a)", "f(array 2)", "part.py:7")])
    'rank 0: f(array 1) (part.py:7); rank 1: f(array 2) (part.py:7)'
    """
    short, exact, where = zip(*calls, strict=True)
    words = short if len(set(short)) == len(set(exact)) else exact
    places = zip(words, where, strict=True)
    return by_rank([f"{shortened(one, most)} ({place})" for one, place in places], joint)


def shortened(text: str, most: int = SHOWN) -> str:
    """The first letters of a text that is long."""
    return text if len(text) <= most else f"{text[:most]}..."


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


# Arguments in words


def listed(args: Iterable[Any], options: Mapping[str, Any], exact: bool) -> str:
    """**Local.** Arguments as a call has them between its parentheses.

    >>> listed([np.zeros(2)], {"axis": 0}, exact=False)
    '[0.0, 0.0], axis=0'
    """
    named = (f"{key}={word(one, exact)}" for key, one in sorted(options.items()))
    return ", ".join([*(word(one, exact) for one in args), *named])


def key_words(key: Any, exact: bool) -> str:
    """**Local.** What stands between brackets.

    >>> key_words((slice(0, 8), ...), exact=False)
    '0:8, ...'
    """
    if isinstance(key, tuple) and key:
        return ", ".join(key_words(one, exact) for one in key)
    if not isinstance(key, slice):
        return word(key, exact)
    ends = [key.start, key.stop] + ([] if key.step is None else [key.step])
    return ":".join("" if one is None else word(one, exact) for one in ends)


def word(thing: Any, exact: bool) -> str:
    """**Local.** An argument in words; with ``exact``, other words for other values."""
    words = _words_of(thing, exact)
    return words if exact else shortened(words)


def _words_of(thing: Any, exact: bool) -> str:
    match thing:
        case Tiled():
            return f"(array {number_of(thing)}, {thing.type})" if exact else str(thing.type)
        case np.ndarray():
            return _values(thing, exact)
        case np.generic() | bool() | int() | float() | complex() | str() | bytes() | None:
            return repr(thing.item() if isinstance(thing, np.generic) else thing)
        case slice():
            return f"slice({key_words(thing, exact)})"
        case tuple() | list():
            inner = ", ".join(word(one, exact) for one in thing)
            return f"[{inner}]" if isinstance(thing, list) else f"({inner})"
        case set() | frozenset():
            return f"{{{', '.join(sorted(word(one, exact) for one in thing))}}}"
        case dict():
            return f"{{{listed((), {str(key): one for key, one in thing.items()}, exact)}}}"
        case ArrayType() | Mesh() | np.dtype():
            return str(thing)
        case os.PathLike():
            return repr(os.fspath(thing))
        case Comm():
            return f"comm of {thing.size}"
        case Generator() | np.random.RandomState():
            return _generator(thing, exact)
    if thing is Ellipsis:
        return "..."
    if isinstance(
        getattr(thing, "shape", None), tuple
    ):  # of another library; it may name it anew on each rank
        return f"{type(thing).__name__} of {list(thing.shape)}"
    return str(getattr(thing, "__qualname__", getattr(thing, "name", type(thing).__name__)))


def _generator(thing: Generator | np.random.RandomState, exact: bool) -> str:
    """**Local.** A source of random numbers, and with ``exact`` how far it was read."""
    if isinstance(thing, Generator):
        return f"pgas.random.generator({thing.seed})" + exact * f" after {thing.calls} calls"
    state: Any = thing.get_state(legacy=False)["state"]
    return "RandomState" + exact * f" {_values(state['key'], True)} at {state['pos']}"


def _values(values: np.ndarray[Any, Any], exact: bool) -> str:
    """**Local.** NumPy's values, as far as they can be shown."""
    if values.size <= 8 and not exact:
        return str(values.tolist())
    head = f"{values.dtype}{list(values.shape)}"
    if not exact:
        return head
    data = repr(values.tolist()).encode() if values.dtype.hasobject else values.tobytes()
    return f"{head} with digest {hashlib.blake2b(data, digest_size=8).hexdigest()}"
