"""Let ranks meet at the borders of one-sided epochs, and tell them if one of them has failed."""

from __future__ import annotations

from dataclasses import dataclass

from redist.errors import PeerError, RedistError, RequestError
from redist.runtime.onesided.window import Window
from redist.runtime.ranks.agreement import RankAnswer, by_call, gather_answers
from redist.runtime.ranks.meeting import Met
from redist.runtime.ranks.tokens import EpochEvent, Token, epoch_token
from redist.runtime.ranks.world import World
from redist.text.units import ranks_in_words

VERBS = {
    EpochEvent.BEGIN: "begin an epoch of",
    EpochEvent.FENCE: "fence",
    EpochEvent.END: "end the epoch of",
}


@dataclass(frozen=True, slots=True)
class Unmet:
    """An array that ranks have not met for."""

    world: World
    name: str
    number: int = 0


def come_together(
    array: Window | Unmet,
    event: EpochEvent,
    flag: bool,
    failure: str | None,
    timeout_s: float | None,
) -> bool:
    """**Collective.** Wait for all ranks; whether any came with ``flag``.

    A rank that has failed says why and returns; the others raise, and the ranks can go on together.
    So can they where they came for different things, which is an error on all. Ranks that hear of a
    failure in the middle of something else leave the epoch by their own error: the others wait for
    them to come here.
    """
    world = array.world
    token = epoch_token(array.number, event)
    say = f"{VERBS[event]} {array.name}"
    text = failure
    while True:
        with world.operation(timeout_s):
            met = world.meet(token if text is None else Token.ERROR, int(flag))
            world.failure.raise_if_aborted()
            if met is not Met.DISAGREE and text is None:
                return flag or met is Met.MIXED
            answers = gather_answers(world.comm, say, text, timeout_s)
        failed = {rank: said for rank, (_, said, *_) in enumerate(answers) if said is not None}
        ours = {f"{verb} {array.name}" for verb in VERBS.values()}
        if not failed or all(said in ours for said, *_ in answers):
            break
        text = text or f"another rank failed: {next(iter(failed.values()))}"
    if failure is None:
        raise _as_error(world, say, answers, failed)
    return False


def _as_error(
    world: World, say: str, answers: list[RankAnswer], failed: dict[int, str]
) -> RedistError:
    """The error that says what the ranks came for."""
    if failed:
        who = "; ".join(f"rank {rank} failed: {text}" for rank, text in failed.items())
        return PeerError(f"cannot {say}: {who}; what this interval put is dropped")
    said = by_call(answers).items()
    parts = "; ".join(f"{ranks_in_words(who, world.size)}: {text}" for text, who in said)
    return RequestError(f"cannot {say}: ranks came for different things; {parts}")
