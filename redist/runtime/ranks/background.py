"""Work that goes on in the background: its order, and its result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Running:
    """A piece of work under way.

    >>> work = Running(lambda: 6 * 7)
    >>> threading.Thread(target=work).start()
    >>> work.result()
    42
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._value: Any = None
        self._error: BaseException | None = None
        self._done = threading.Event()

    def __call__(self) -> None:
        """Do it, in whatever thread this is."""
        try:
            self._value = self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def result(self) -> Any:
        """Wait; the value, or the error that ended the work."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value


class Queue:
    """Runs work in order.

    >>> done, queue = [], Queue()
    >>> queue.put(lambda: done.append(1)), queue.put(lambda: done.append(2)), queue.finish()
    (None, None, None)
    >>> done
    [1, 2]
    """

    def __init__(self) -> None:
        self._worker: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def put(self, work: Callable[[], None]) -> None:
        """Run ``work`` after everything before it, without waiting."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "redist")
        self._last = self._worker.submit(work)

    def finish(self) -> None:
        """Wait until nothing is under way."""
        if self._last is not None:
            self._last.result()
            self._last = None

    def close(self) -> None:
        """Finish, and end the thread."""
        self.finish()
        if self._worker is not None:
            self._worker.shutdown()
