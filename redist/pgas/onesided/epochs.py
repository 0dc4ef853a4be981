"""Epochs and fences: when the ranks meet, tiles become reachable and writes are done."""

from __future__ import annotations

import contextlib
from typing import Generic, TypeVar

from redist.errors import RedistError, RequestError, error_in_words
from redist.pgas.onesided.address_space import ArrayAccess
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.onesided.delivery import deliver
from redist.runtime.onesided.intervals import Unmet, come_together
from redist.runtime.onesided.publish import publish, retire
from redist.runtime.ranks.tokens import EpochEvent, Token
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import world_of

T = TypeVar("T", bound=Tiled)


def fence(a: Tiled, timeout_s: float | None = TIMEOUT_S) -> None:
    """**Collective.** Make everything before it, on any rank, visible on every rank.

    Inside an epoch it does the writes of this interval and begins the next.
    """
    space: ArrayAccess | None = a._space
    if space is not None and space.is_open:
        _finish(space, EpochEvent.FENCE, timeout_s)
        a.version += 1
    else:
        begin(a, EpochEvent.FENCE, timeout_s)


class Epoch(Generic[T]):
    """A span of one-sided operations on one array: ``with a.epoch():``.

    **Collective** at both ends. ``timeout_s`` bounds the waiting for other ranks. Blocks read from other
    nodes are kept until the fence, and those that a line read in the last interval fetched ahead in
    the next, unless ``cache`` or ``prefetch`` is switched off.
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
    a._space = ArrayAccess(publish(world, a, a.type, a.tile, timeout_s))
    return a._space


def begin(a: Tiled, event: EpochEvent, timeout_s: float | None) -> ArrayAccess:
    """**Collective.** Meet, and make every tile reachable."""
    if a.type.pending_op is not None:
        here = resolve_pending(a)
        a._take_over(here)
    space: ArrayAccess | None = a._space
    is_new = space is None or space.tile is not a.tile or space.type != a.type
    world = world_of(a.comm, timeout_s=timeout_s) if space is None else space.window.world
    met = Unmet(world, str(a.type)) if space is None else space.window
    if come_together(met, event, is_new, None, timeout_s):
        if space is not None:
            retire(space.window)
        space = ArrayAccess(publish(world, a, a.type, a.tile, timeout_s))
        a._space = space
    assert space is not None
    return space


def _finish(space: ArrayAccess, event: EpochEvent, timeout_s: float | None) -> None:
    """Meet, and do the writes of the interval."""
    world, log, done = space.window.world, space.log, False
    try:
        if come_together(space.window, event, bool(log), None, timeout_s):
            with world.operation(timeout_s):
                deliver(world, [log.get(r, ()) for r in range(world.size)], space.take)
                world.meet(Token.WRITES_DONE)
        done = True
    except RequestError:  # all ranks have one, and will say so when they leave
        done = True
        raise
    finally:
        space.forget()
        space.is_open = space.is_open and done
