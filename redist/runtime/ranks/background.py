"""Work that goes on in the background, in the order in which it was started, and moves under way there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


_HERE = threading.local()


def is_background() -> bool:
    """**Local.** Whether this thread runs beside the one that computes."""
    return getattr(_HERE, "is_background", False)


class Queue:
    """Runs work in order, in one thread.

    >>> queue = Queue()
    >>> first, second = queue.put(lambda: 6 * 7), queue.put(lambda: 1 / 0)
    >>> queue.drain()
    >>> first.result(), second.exception()
    (42, ZeroDivisionError('division by zero'))
    """

    def __init__(self) -> None:
        self._worker: ThreadPoolExecutor | None = None
        self._thread: int | None = None
        self._last: Future[Any] | None = None

    def put(self, work: Callable[[], T]) -> Future[T]:
        """Run ``work`` after everything before it, without waiting."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "redist", self._note_thread)
        future = self._worker.submit(work)
        self._last = future
        future.add_done_callback(self._forget)
        return future

    def _note_thread(self) -> None:
        self._thread = threading.get_ident()
        _HERE.is_background = True

    def _forget(self, future: Future[Any]) -> None:
        """Keep no result alive that the caller has dropped."""
        if self._last is future:
            self._last = None

    def drain(self) -> None:
        """Wait until nothing is under way; work that is, itself, does not wait."""
        last = self._last
        if last is not None and threading.get_ident() != self._thread:
            last.exception()

    def close(self) -> None:
        """Wait, and end the thread."""
        self.drain()
        if self._worker is not None:
            self._worker.shutdown()


def run_now(work: Callable[[], T]) -> Future[T]:
    """Run ``work`` at once; its result, or the error that ended it, as a future.

    >>> run_now(lambda: 6 * 7).result()
    42
    """
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
    return future


class StreamEnd(Protocol):
    """The end of a move on a stream of a GPU."""

    def is_done(self) -> bool:
        """Whether the GPU has come to it."""

    def join(self) -> None:
        """Let the current stream wait for it."""


class StartedMove:
    """A move under way: ask whether it is done, or wait for its result.

    ``is_own`` says that it is between the transfer's own buffers; ``end`` is where the GPU has done it, if
    one does.
    """

    def __init__(
        self,
        future: Future[Any],
        is_own: bool,
        forget: Callable[[StartedMove], None],
        end: StreamEnd | None = None,
    ) -> None:
        self._future, self.is_own, self._forget, self._end = future, is_own, forget, end
        self._is_waited_for = False

    def is_done(self) -> bool:
        """**Local.** Whether it has ended, well or not; it says nothing of the other ranks."""
        return self._future.done() and (self._end is None or self._end.is_done())

    def wait(self) -> Any:
        """The result of the move, once it is there; the error that ended it is raised.

        The host does not wait for a GPU: the current stream does.
        """
        if not self._is_waited_for:
            self._is_waited_for = True
            self._forget(self)
        try:
            return self._future.result()
        finally:
            if self._end is not None:
                self._end.join()
