"""A store that is slow, fails, or only starts its copies: what disks and GPUs do, when a test wants it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from redist.runtime.lanes.stores import TileStore


class PutOff:
    """Something that is done when it has been asked about a few times, or when somebody waits."""

    def __init__(self, work: Callable[[], Any], n_asks: int = 2) -> None:
        self._work: Callable[[], Any] | None = work
        self._left, self._result = n_asks, None

    def is_done(self) -> bool:
        self._left -= 1
        if self._left < 0:
            self.wait()
        return self._work is None

    def wait(self) -> Any:
        if self._work is not None:
            work, self._work = self._work, None
            self._result = work()
        return self._result


class TroubledStore:
    """Another store with delays of up to ``delay_s``; ``trouble(verb, number)`` is called before each copy.

    ``number`` counts reads and writes apart. ``starts`` puts copies off until they are asked about.
    """

    def __init__(
        self,
        inner: TileStore,
        delay_s: float = 0.0,
        seed: int = 0,
        trouble: Callable[[str, int], None] = lambda verb, number: None,
        starts: bool = False,
    ) -> None:
        self.inner, self.starts = inner, starts
        self._delay_s, self._rng, self._trouble = delay_s, random.Random(seed), trouble
        self.counts = {"read": 0, "write": 0}
        self.n_spaces = 0
        self.is_closed = False

    def reserve(self, n_bytes: int) -> None:
        self.inner.reserve(n_bytes)

    def take(self, n_bytes: int) -> Any:
        self.n_spaces += 1
        return self.inner.take(n_bytes)

    def give(self, space: Any) -> None:
        self.n_spaces -= 1
        self.inner.give(space)

    def write(self, space: Any, data: Any) -> Any:
        return self._copy("write", lambda: self.inner.write(space, data))

    def read(self, space: Any, out: Any) -> Any:
        return self._copy("read", lambda: self.inner.read(space, out))

    def _copy(self, verb: str, copy: Callable[[], Any]) -> Any:
        number, self.counts[verb] = self.counts[verb], self.counts[verb] + 1
        self._trouble(verb, number)
        if self.starts:
            return PutOff(copy, self._rng.randrange(4))
        if self._delay_s:
            time.sleep(self._rng.random() * self._delay_s)
        return copy()

    def memory_of(self, space: Any) -> Any:
        return self.inner.memory_of(space)

    def close(self) -> None:
        self.is_closed = True
        self.inner.close()
