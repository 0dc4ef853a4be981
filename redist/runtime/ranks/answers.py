"""What ranks say to each other before they begin: who says what, and what the first rank makes for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from redist.errors import RedistError, RequestError, error_in_words

T = TypeVar("T")
MOST_TRANSFERS = 64
"""Prepared transfers that ranks keep."""


def by_text(pairs: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    """**Local.** Who says each text, from pairs of a rank and what it says.

    >>> by_text([(0, "a"), (1, "b"), (2, "a")])
    {'a': [0, 2], 'b': [1]}
    """
    out: dict[str, list[int]] = {}
    for rank, text in pairs:
        out.setdefault(text, []).append(rank)
    return out


def made_by_first(rank: int, make: Callable[[], T], tell: Callable[[Any], Any]) -> T:
    """**Collective.** Make something on rank 0 and give it, or the error, to every rank.

    ``tell`` gives every rank what rank 0 says.
    """
    answer: tuple[T | None, RedistError | None] = (None, None)
    if rank == 0:
        try:
            answer = make(), None
        except RedistError as problem:
            answer = None, problem
        except Exception as problem:
            text = f"rank 0 failed: {error_in_words(problem)}"
            tell((None, RequestError(text)))
            raise
    value, error = tell(answer)
    if error is not None:
        raise error
    assert value is not None
    return value
