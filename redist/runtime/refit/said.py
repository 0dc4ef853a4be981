"""What ranks say to each other when they bind a plan and when a refit begins; the same error on all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.errors import RedistError, RequestError, error_in_words
from redist.runtime.ranks.answers import by_text
from redist.runtime.refit.near import Shown
from redist.text.units import count_of, ranks_in_words

Version = int | str
Bits = bytes
"""A bit for every stored tensor of the source: whether it has changed."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What a rank says when it binds: what, how, and where its tiles lie.

    ``memory`` says what kind of memory its tiles lie in, ``receives`` that it has target tiles,
    ``why_private`` why others cannot map its tiles; ``problem`` is the error in what it was given.
    """

    digest: str
    transport: str
    commit: str
    memory: str | None
    receives: bool
    shown: Shown
    why_private: str | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Said:
    """What a rank says when a refit begins.

    ``version`` and ``changed`` are what it sends, if it does; ``held`` is the version of its tiles, and
    ``turn`` the place where the next weights arrive.
    """

    sends: bool
    version: Version | None
    changed: Bits | None
    held: Version | None
    turn: int
    problem: str | None


def check_known(what: str, given: Any, known: Sequence[str]) -> None:
    """**Local.** Raise unless an option is one of the texts that it may be."""
    if given not in known:
        raise RequestError(f"unknown {what} {given!r}; known: {', '.join(map(repr, known))}")


def problem_of(work: Callable[[], Any]) -> str | None:
    """**Local.** Do some work; why it could not be done."""
    try:
        work()
        return None
    except RedistError as problem:
        return str(problem)
    except Exception as problem:
        return error_in_words(problem)


def check_bindings(bindings: Sequence[Binding]) -> None:
    """Raise the same error on all ranks if one has an error, or if they bind different things."""
    _must_be_equal("plans", [f"digest {one.digest[:12]}" for one in bindings])
    # After plans: where these differ, tiles do not fit for that reason.
    _raise_problems("cannot bind the plan", [one.problem for one in bindings])
    _must_be_equal("transports", [one.transport for one in bindings])


def _must_be_equal(what: str, texts: Sequence[str]) -> None:
    if len(set(texts)) > 1:
        raise RequestError(
            f"cannot bind the plan: ranks give different {what}, {_by_ranks(texts)}; give the same on "
            "every rank"
        )


def agreed(told: Sequence[Said]) -> tuple[Version, Bits | None]:
    """The version and what changed, as all senders say; the same error on all ranks if they do not.

    >>> agreed([Said(True, 8, None, 7, 0, None), Said(False, None, None, 6, 0, None)])
    (8, None)
    """
    _raise_problems("cannot refit", [one.problem for one in told])
    senders = [one for one in told if one.sends]
    if not senders:
        raise RequestError("cannot refit: no rank has source tiles")
    first = senders[0]
    if any(one.version != first.version for one in senders):
        texts = [f"version {one.version!r}" if one.sends else None for one in told]
        raise RequestError(
            f"cannot refit: ranks send different versions, {_by_ranks(texts)}; give the same on every rank"
        )
    if any(one.changed != first.changed for one in senders):
        lists = [_in_words(one.changed) if one.sends else None for one in told]
        raise RequestError(
            f"cannot refit: ranks say that different tensors have changed, {_by_ranks(lists)}; give the same "
            "names on every rank"
        )
    if first.changed is not None and (len({one.held for one in told}) > 1 or first.held is None):
        held = _by_ranks([f"version {one.held!r}" for one in told])
        raise RequestError(
            f"cannot send only what has changed: ranks do not have one version, {held}; send all tensors "
            "once, without changed="
        )
    assert first.version is not None, "a sender without a version has a problem"
    return first.version, first.changed


def bits_of(numbers: Sequence[int], n_tensors: int) -> Bits:
    """Numbers of tensors as bits.

    >>> mask_of(bits_of([0, 9], 10), 10).tolist()[8:]
    [False, True]
    """
    mask = np.zeros(n_tensors, bool)
    mask[list(numbers)] = True
    return np.packbits(mask).tobytes()


def mask_of(bits: Bits, n_tensors: int) -> Any:
    """Bits as an array of truth values."""
    return np.unpackbits(np.frombuffer(bits, np.uint8))[:n_tensors].astype(bool)


def _in_words(changed: Bits | None) -> str:
    if changed is None:
        return "all"
    mask = mask_of(changed, 8 * len(changed))
    return count_of(int(mask.sum()), "tensor")


def _raise_problems(what: str, problems: Sequence[str | None]) -> None:
    some = [text for text in problems if text is not None]
    if not some:
        return
    if len(some) == len(problems) and len(set(some)) == 1:
        raise RequestError(some[0])
    raise RequestError(f"{what}: {_by_ranks(problems)}")


def _by_ranks(texts: Sequence[str | None]) -> str:
    """Who says what, in words.

    >>> _by_ranks(["3", "3", None, "4"])
    'ranks 0-1: 3; rank 3: 4'
    """
    pairs = ((rank, text) for rank, text in enumerate(texts) if text is not None)
    said = [f"{ranks_in_words(who, 0)}: {text}" for text, who in by_text(pairs).items()]
    more = f"; and {len(said) - 3} more" if said[3:] else ""
    return "; ".join(said[:3]) + more
