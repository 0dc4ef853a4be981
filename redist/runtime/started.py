"""A move that was started and goes on while its caller computes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

CLOSED = "this transfer is closed; make a new one, or call it inside the with"


class StartedMove:
    """A move under way: ask whether it is done, or wait for its result.

    ``is_own`` says that it is between the transfer's own buffers.
    """

    def __init__(
        self, future: Future[Any], is_own: bool, forget: Callable[[StartedMove], None]
    ) -> None:
        self._future, self.is_own, self._forget = future, is_own, forget
        self._is_waited_for = False

    def is_done(self) -> bool:
        """**Local.** Whether it has ended, well or not; it says nothing of the other ranks."""
        return self._future.done()

    def wait(self) -> Any:
        """The result of the move, once it is there; the error that ended it is raised."""
        if not self._is_waited_for:
            self._is_waited_for = True
            self._forget(self)
        return self._future.result()
