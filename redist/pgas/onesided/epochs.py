"""Epochs and fences: when the ranks meet, tiles become reachable and writes are done."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from redist.errors import PeerError, RedistError, RequestError, error_in_words
from redist.pgas.onesided.address_space import ArrayAccess
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.onesided.delivery import deliver
from redist.runtime.onesided.window import Window, publish, retire
from redist.runtime.ranks.agreement import RankAnswer, by_call, gather_answers
from redist.runtime.ranks.meeting import Met
from redist.runtime.ranks.tokens import EpochEvent, Token, epoch_token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import World, world_of
from redist.text.units import ranks_in_words

# Let ranks meet at the borders of one-sided epochs, and tell them if one of them has failed.


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


T = TypeVar("T", bound=Tiled)


def fence(a: Tiled, timeout_s: float | None = TIMEOUT_S) -> None:
    """**Collective.** Make all earlier puts and writes, on any rank, visible on every rank.

    Inside an epoch, it performs the writes of this interval and begins the next one.
    """
    space: ArrayAccess | None = a._space
    if space is not None and space.is_open:
        _finish(space, EpochEvent.FENCE, timeout_s)
        a.version += 1
    else:
        begin(a, EpochEvent.FENCE, timeout_s)


class Epoch(Generic[T]):
    """A span of one-sided operations on one array: ``with a.epoch():``.

    **Collective** at both ends. ``timeout_s`` bounds the wait for other ranks. Blocks read from other
    nodes are cached until the fence, and blocks that a line read in one interval are prefetched in the
    next, unless ``cache`` or ``prefetch`` is switched off.
    """

    def __init__(
        self,
        a: T,
        timeout_s: float | None = TIMEOUT_S,
        prefetch: bool = True,
        cache: bool = True,
    ) -> None:
        self._array, self._timeout_s = a, timeout_s
        self._prefetch, self._cache = prefetch, cache

    def __enter__(self) -> T:
        space: ArrayAccess | None = self._array._space
        if space is not None and space.is_open:
            raise RequestError(f"cannot begin an epoch of {space.type}: one is open; use fence()")
        space = begin(self._array, EpochEvent.BEGIN, self._timeout_s)
        space.is_open = True
        if space.far is not None:
            space.far.prefetch, space.far.cache = self._prefetch, self._cache
        return self._array

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        space: ArrayAccess = self._array._space
        if not space.is_open:  # a failure has ended it
            return
        if error is None:
            _finish(space, EpochEvent.END, self._timeout_s)
            self._array.version += 1
            space.is_open = False
            return
        space.forget()
        space.is_open = False
        text = error_in_words(error)
        world = space.window.world
        if not isinstance(error, Exception):  # Ctrl-C waits for nobody
            world.failure.abort(error)
            return
        with contextlib.suppress(RedistError):
            come_together(space.window, EpochEvent.END, False, text, self._timeout_s)


def reach(
    a: Tiled,
    transport: str = "auto",
    node_size: int | None = None,
    timeout_s: float | None = TIMEOUT_S,
) -> ArrayAccess:
    """**Collective.** Make every tile reachable from every rank; options as for a Transfer."""
    world = world_of(a.comm, transport, node_size, timeout_s)
    a.memory.settle()
    a._space = _opened(a, world, timeout_s)
    return a._space


def _opened(a: Tiled, world: World, timeout_s: float | None) -> ArrayAccess:
    if a.memory.on_device:
        from redist.pgas.onesided.device_access import DeviceAccess
        from redist.runtime.cuda.window import DeviceWindow

        kind = partial(DeviceWindow, a.comm)
        return DeviceAccess(publish(world, a, a.type, a.tile, timeout_s, kind))
    return ArrayAccess(publish(world, a, a.type, a.tile, timeout_s, Window))


def begin(a: Tiled, event: EpochEvent, timeout_s: float | None) -> ArrayAccess:
    """**Collective.** Meet, and make every tile reachable."""
    if a.type.pending_op is not None:
        here = resolve_pending(a)
        a._take_over(here)
    a.memory.settle()
    space: ArrayAccess | None = a._space
    is_new = space is None or space.tile is not a.tile or space.type != a.type
    world = world_of(a.comm, timeout_s=timeout_s) if space is None else space.window.world
    met = Unmet(world, str(a.type)) if space is None else space.window
    if come_together(met, event, is_new, None, timeout_s):
        if space is not None:
            retire(space.window)
        space = _opened(a, world, timeout_s)
        a._space = space
    assert space is not None
    return space


def _finish(space: ArrayAccess, event: EpochEvent, timeout_s: float | None) -> None:
    """Meet, and do the writes of the interval."""
    world, log, done = space.window.world, space.log, False
    space.memory.settle()
    try:
        if come_together(space.window, event, bool(log), None, timeout_s):
            with world.operation(timeout_s):
                deliver(world, [log.get(r, ()) for r in range(world.size)], space.take)
                space.finish()
                world.meet(Token.WRITES_DONE)
        done = True
    except RequestError:  # all ranks have one, and will say so when they leave
        done = True
        raise
    finally:
        space.forget()
        space.is_open = space.is_open and done
