"""Fits and scores say on the first rank how far they have come, if they take long."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from redist.runtime.ranks.world import comm_or_world
from redist.text.progress import Work

F = TypeVar("F", bound=Callable[..., Any])


def working(function: F) -> F:
    """Let a function be work that is watched, by its name, and a method by that of its class.

    The first rank of the arrays that it is given speaks; its ``progress=`` says how much.
    """
    is_method = "." in function.__qualname__

    @wraps(function)
    def watched(*given: Any, **options: Any) -> Any:
        name = type(given[0]).__name__ if is_method and given else function.__name__
        comms = (getattr(one, "comm", None) for one in (*given, *options.values()))
        comm = next((one for one in comms if one is not None), None) or comm_or_world(None)
        with Work(name, options.get("progress"), comm.rank == 0):
            return function(*given, **options)

    return watched  # type: ignore[return-value]
