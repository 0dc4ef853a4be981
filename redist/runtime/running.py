"""Work that goes on in the background, and its result."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
