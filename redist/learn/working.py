"""Fits and scores as joint work of all ranks: called with the same arguments, reported on by the first rank.

Before the work begins, ranks compare what they were given: the estimator, its parameters, and arrays that
are whole on every rank. NumPy rows must be the same on all ranks. They are compared by a sum of their bits
and by some of the rows in order, which takes about as long as one check for missing values.
"""

from __future__ import annotations

import inspect
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from redist.errors import RequestError
from redist.pgas.compare_ranks import (
    by_rank,
    calls_by_rank,
    listed,
    place_of_call,
    said_if_different,
)
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.long_wait import begun_by_all, is_begun
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.text.progress import Work

F = TypeVar("F", bound=Callable[..., Any])


def working(function: F) -> F:
    """Make a function joint work of all ranks, under its own name, or a method under the name of its class.

    Before the work begins, ranks compare their arguments. The first rank of the arrays among them reports;
    ``progress=`` says how much. Work called inside other work counts as part of it.
    """
    is_method = "." in function.__qualname__
    names = list(inspect.signature(function).parameters)

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        if is_begun():
            return function(*args, **options)
        given = {**dict(zip(names, args, strict=False)), **options}
        comms = (getattr(one, "comm", None) for one in given.values())
        comm = next((one for one in comms if one is not None), None) or comm_or_world(None)
        own = given.pop("self") if is_method else function.__name__
        asked = given.pop("progress", None)
        name = type(own).__name__ if is_method else own
        with _first_warns(comm), Work(name, asked, comm.rank == 0):
            compare(comm, "fit" if is_method else "call", own, given)
            with begun_by_all():
                return function(*args, **options)

    return called  # type: ignore[return-value]


@contextmanager
def _first_warns(comm: Comm) -> Iterator[None]:
    """**Local.** Let only the first rank show warnings; a program that records them or raises sees all."""
    shows = warnings.showwarning
    recorded = getattr(getattr(warnings, "_showwarnmsg_impl", None), "__module__", "") != "warnings"
    if comm.rank == 0 or recorded or shows is not getattr(warnings, "_showwarning_orig", None):
        yield
        return
    warnings.showwarning = lambda *args, **options: None
    try:
        yield
    finally:
        warnings.showwarning = shows


SAMPLE_BYTES = 2**18
"""This much of large rows is looked at in order."""
SHOWN = 200


class Said(NamedTuple):
    """What one rank was told: the call in words, all that must be alike, its data, where it stands."""

    call: str
    exact: str
    data: dict[str, tuple[str, int]]
    """What each argument that has rows is, and a checksum of its values."""
    where: str


def compare(comm: Comm, verb: str, own: Any, given: Mapping[str, Any]) -> None:
    """**Collective over** ``comm``. Raise the same error on all ranks if their arguments differ.

    ``own`` is an estimator or the name of a function; ``given`` are the arguments by name.
    """
    if comm.size == 1:
        return
    data = {name: found for name, one in given.items() if (found := _data_of(one)) is not None}
    rest = {name: one for name, one in given.items() if name not in data}
    options = {} if isinstance(own, str) else own.get_params(deep=False)
    kind = own if isinstance(own, str) else type(own).__name__
    exact = f"{kind}({listed((), options, True)}), {listed((), rest, True)}"

    def say() -> Said:
        is_function = isinstance(own, str)
        call = f"{own}({listed((), rest, True)})" if is_function else " ".join(repr(own).split())
        return Said(call, exact, data, place_of_call())

    said = said_if_different(comm, f"{exact} {data}", say)
    if said is not None:
        raise RequestError(_differ(verb, said))


def _differ(verb: str, said: list[Said]) -> str:
    """**Local.** The error for what differs.

    >>> _differ("fit", [Said(f"KMeans(n_clusters={k})", str(k), {}, "a.py:9") for k in (3, 4)])[:84]
    'cannot fit: rank 0: KMeans(n_clusters=3) (a.py:9), rank 1: KMeans(n_clusters=4) (a.p'
    """
    if len({one.exact for one in said}) > 1:
        who = calls_by_rank(((one.call, one.exact, one.where) for one in said), ", ", SHOWN)
        rule = (
            "fit the same estimator with the same parameters"
            if verb == "fit"
            else "make the same call"
        )
        return f"cannot {verb}: {who}; every rank must {rule}"
    names = [name for name in said[0].data if len({one.data.get(name) for one in said}) > 1]
    name = names[0] if names else next(iter(said[0].data), "X")
    kinds = [one.data.get(name, ("none", 0))[0] for one in said]
    what = {"X": "rows differ", "labels": "labels differ"}.get(name, f"{name} differs")
    fact = (
        f"each has {kinds[0]}, with other values" if len(set(kinds)) == 1 else by_rank(kinds, ", ")
    )
    call = said[0].call.partition("(")[0]
    return (
        f"cannot {verb} {call}: {what} between ranks: {fact}; what is not a global array must be the same on "
        "every rank. If each rank has its own part, use pgas.from_local"
    )


def _data_of(thing: Any) -> tuple[str, int] | None:
    """**Local.** What rows are, with a checksum if they are in memory; None if it is something else."""
    if isinstance(thing, Tiled):
        return f"the global array {thing.type}", 0
    if thing is None or isinstance(thing, (str, bytes, int, float, complex, np.generic)):
        return None
    kind = "" if isinstance(thing, np.ndarray) else f"{type(thing).__name__} of "
    try:
        values = np.asarray(getattr(thing, "data", thing) if hasattr(thing, "nnz") else thing)
    except Exception:  # scikit-learn says what is wrong with it
        return None
    if values.dtype.hasobject or not values.ndim:
        return f"{kind}{values.dtype}{list(values.shape)}", 0
    return f"{kind}{values.dtype}{list(values.shape)}", checksum_of(values)


def checksum_of(values: NDArray[Any]) -> int:
    """**Local.** A number that hardly any other values share; it does not depend on their order in memory.

    >>> rows = np.arange(12.0).reshape(4, 3)
    >>> [checksum_of(rows) == checksum_of(one) for one in (np.asfortranarray(rows), rows[::-1])]
    [True, False]
    """
    size = values.dtype.itemsize
    plain = values if size in (1, 2, 4, 8) else np.ascontiguousarray(values).view(np.uint8)
    bits = plain.view(f"u{min(size, 8) if plain is values else 1}")
    total = int(bits.sum(dtype=np.uint64))
    n = len(bits)
    row_bytes = max(1, bits.nbytes // max(n, 1))
    some = bits if bits.nbytes <= SAMPLE_BYTES else bits[:: -(-n * row_bytes // SAMPLE_BYTES)]
    return total ^ zlib.crc32(some.tobytes()) << 32 & (2**64 - 1)
