"""Ranks agree on a request, or all raise the same error, which names the ranks."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from mpi4py import MPI

from redist.errors import RequestError
from redist.runtime.ranks.answers import by_text, made_by_first
from redist.runtime.ranks.waiting import broadcast, gather
from redist.text.call_site import call_text
from redist.text.units import ranks_in_words

T = TypeVar("T")


class ArrayPlace(Enum):
    """Where the arrays of a request lie, as far as a rank knows."""

    MEMORY = "in memory"
    GPUS = "on GPUs"
    UNKNOWN = "anywhere"
    """The rank has no array that says so."""
    UNPREPARED = "unprepared"
    """The rank has not prepared the request yet."""


RankAnswer = tuple[str | None, str | None, ArrayPlace | None, str]
"""The request, the error, where its arrays lie, if it is one that moves arrays, and the user's call."""


def all_agree(
    comm: MPI.Comm, what: str, say: str | None, error: Exception | None, timeout_s: float | None
) -> None:
    """**Collective.** Return if every rank says the same and none has an error, else raise.

    The error is the same on every rank: ``cannot transfer: ranks disagree: ...``.
    """
    raise_unless_agreed(what, gather_answers(comm, say, error, timeout_s), error)


def gather_answers(
    comm: MPI.Comm,
    say: str | None,
    error: Exception | str | None,
    timeout_s: float | None,
    place: ArrayPlace | None = None,
) -> list[RankAnswer]:
    """**Collective.** What every rank says, or its error; ranks in :func:`all_agree` answer too."""
    failed = None if error is None else f"{error}"
    return gather(comm, (say, failed, place, call_text()), timeout_s)


def raise_unless_agreed(what: str, answers: list[RankAnswer], error: Exception | None) -> None:
    """**Local.** Return if all answers are the same and none is an error, else raise."""
    errors = by_text((rank, text) for rank, (_, text, *_) in enumerate(answers) if text is not None)
    if errors:
        if len(errors) == 1 and len(next(iter(errors.values()))) == len(answers):
            raise RequestError(next(iter(errors))) from None
        parts = (f"{ranks_in_words(who, len(answers))}: {text}" for text, who in errors.items())
        raise RequestError(f"{what}: " + "; ".join(parts)) from error
    if {ArrayPlace.MEMORY, ArrayPlace.GPUS} <= {place for _, _, place, _ in answers}:
        known = {ArrayPlace.MEMORY, ArrayPlace.GPUS, ArrayPlace.UNKNOWN}
        answers = [
            (f"{text} {place.value}" if place in known else text, None, None, call)
            for text, _, place, call in answers
        ]
    if len({text or "" for text, *_ in answers}) > 1:
        said = by_call(answers)
        parts = (f"{ranks_in_words(who, len(answers))}: {text}" for text, who in said.items())
        raise RequestError(
            f"{what}: ranks disagree on the request; {'; '.join(parts)}; every rank must make the same call"
        ) from None


def from_first(comm: MPI.Comm, make: Callable[[], T], timeout_s: float | None) -> T:
    """**Collective.** Make something on rank 0 and give it, or the error, to every rank."""
    return made_by_first(comm.rank, make, lambda answer: broadcast(comm, answer, timeout_s))


def by_call(answers: list[RankAnswer]) -> dict[str, list[int]]:
    """**Local.** Who asks for what, and in which call."""
    pairs = ((rank, f"{call}: {text or ''}") for rank, (text, _, _, call) in enumerate(answers))
    return by_text(pairs)
