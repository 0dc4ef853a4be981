"""Fits and scores as work of all ranks: begun with the same arguments, told of by the first rank."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from redist.learn.ranks.alike import compare
from redist.runtime.ranks.long_wait import begun_by_all, is_begun
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.text.progress import Work

F = TypeVar("F", bound=Callable[..., Any])


def working(function: F) -> F:
    """Let a function be work of all ranks, by its name, and a method by that of its class.

    Before it begins ranks compare what they are given. The first rank of the arrays among it speaks; its
    ``progress=`` says how much. Work inside other work is part of it.
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
