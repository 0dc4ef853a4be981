"""Before a file is read or written, ranks compare their calls: files, columns, types and options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from redist.errors import RequestError
from redist.pgas.compare_ranks import calls_by_rank, listed, place_of_call, said_if_different, word
from redist.pgas.ghosts.tape import current_tape
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.world import Comm, comm_or_world

F = TypeVar("F", bound=Callable[..., Any])

OWN = {"comm", "device", "progress"}
"""What ranks may say each for itself: their GPU, and who shows how far it is."""


def same_call(function: F) -> F:
    """Let all ranks compare a call for a file before it is made; one error lists what each says."""
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        try:
            given = signature.bind(*args, **options).arguments
        except TypeError:
            return function(*args, **options)  # which says what is wrong
        comm = _comm_of(given)
        if comm.size > 1 and current_tape() is None:
            _compare(comm, function.__name__, _told(signature, given))
        return function(*args, **options)

    return checked  # type: ignore[return-value]


def _told(signature: inspect.Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    """**Local.** The arguments that ranks must have alike, less those that say what holds without them."""
    usual = {name: one.default for name, one in signature.parameters.items()}
    return {name: one for name, one in given.items() if name not in OWN and one is not usual[name]}


def _compare(comm: Comm, name: str, told: Mapping[str, Any]) -> None:
    """**Collective over** ``comm``. Raise the same error on all ranks if they make different calls."""
    said = said_if_different(
        comm,
        call_words(name, told, exact=True),
        lambda: (
            call_words(name, told, exact=False),
            call_words(name, told, exact=True),
            place_of_call(),
        ),
    )
    if said is None:
        return
    raise RequestError(
        f"cannot use a file by different calls: {calls_by_rank(said)}; every rank must make the same call "
        "with the same file, columns, types and options, because each has its share of one file"
    )


def call_words(name: str, told: Mapping[str, Any], exact: bool) -> str:
    """**Local.** A call as a program writes it, with the types of arrays in place of them.

    >>> call_words("read_csv", {"file": "a.csv", "dtype": "f4", "usecols": ["x"]}, exact=False)
    "pgas.read_csv('a.csv', dtype=float32, usecols=['x'])"
    """
    words = {key: _columns(one, exact) if key == "a" else one for key, one in told.items()}
    plain = [str(words.pop(key)) for key in ("a",) if key in words]
    files = [word(words.pop(key), exact) for key in ("file",) if key in words]
    if "dtype" in words:
        words["dtype"] = _dtype(words["dtype"])
    rest = listed((), words, exact)
    return f"pgas.{name}({', '.join([*files, *plain, *([rest] if rest else [])])})"


def _columns(a: Any, exact: bool) -> str:
    """**Local.** What shall be written, with names where it has them, in order."""
    if isinstance(a, Tiled):
        return str(a.type)
    if isinstance(a, Mapping):
        inner = (f"{word(name, exact)}: {_columns(one, exact)}" for name, one in a.items())
        return f"{{{', '.join(inner)}}}"
    if isinstance(a, (tuple, list)):
        return f"[{', '.join(_columns(one, exact) for one in a)}]"
    return type(a).__name__


def _dtype(given: Any) -> Any:
    """**Local.** A dtype by its one name, where it is one."""
    try:
        return np.dtype(given)
    except TypeError:
        return given


def _comm_of(given: Mapping[str, Any]) -> Comm:
    """**Local.** Whose ranks make a call: those of its first array, those named, or all."""
    a, named = given.get("a"), given.get("comm")
    several = a.values() if isinstance(a, Mapping) else a if isinstance(a, (tuple, list)) else (a,)
    for one in several:
        if isinstance(one, Tiled):
            return one.comm
    return named if isinstance(named, Comm) else comm_or_world(None)
