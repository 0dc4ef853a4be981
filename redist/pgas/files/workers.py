"""Threads that read and write chunks: each has one in hand, so what they take in memory is known."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")
MOST_THREADS = 8


class Workers:
    """Some threads, for the time of a ``with`` block.

    >>> with Workers(2) as workers:
    ...     workers.each([].append, range(3))
    """

    def __init__(self, n: int) -> None:
        self._pool = ThreadPoolExecutor(n, thread_name_prefix="redist-chunks")

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def each(self, function: Callable[[T], Any], items: Iterable[T]) -> None:
        """**Local.** Call a function with every item, several at a time; the first error ends it.

        What is set for this context, as the disk that is used, holds in the threads, too.
        """
        todo = [self._pool.submit(copy_context().run, function, item) for item in items]
        try:
            for one in todo:
                one.result()
        except BaseException:
            for one in todo:
                one.cancel()
            raise


class _Here(ThreadPoolExecutor):
    """Runs what is given in the thread that gives it."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as problem:
            done.set_exception(problem)
        return done


class _OwnLoop:
    """The event loop of one thread, closed when the thread ends; codecs run in that thread, too."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(_Here(1))

    def __del__(self) -> None:
        self.loop.close()


_OWN = threading.local()


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """**Local.** What a coroutine returns, run to its end in this thread, without other threads."""
    own = getattr(_OWN, "loop", None)
    if own is None:
        own = _OWN.loop = _OwnLoop()
    return own.loop.run_until_complete(work)


def default_threads(ranks: int) -> int:
    """**Local.** Threads of a rank if nothing is said: the cores here, shared by the ranks.

    >>> default_threads(10**6)
    1
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(MOST_THREADS, (cores or 1) // ranks))
