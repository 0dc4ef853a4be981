"""Two measures of memory: what a process allocates, counted; what processes hold, as Linux says."""

from __future__ import annotations

import ctypes
import gc
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

from redist.runtime.shm import segments

PAUSE_S = 0.002
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
PYTHONS_OWN = 0
"""The domain of what is no array; NumPy's arrays have another."""
Change = Callable[..., Any]


class Count:
    """The most bytes of arrays and of shared segments that this process has at any moment.

    Python's ``objects``, as they are in the end, are left out.
    """

    def __init__(self) -> None:
        self.most = 0
        self.objects = 0
        self._base = 0
        self._add, self._drop = segments._LIVE.add, segments._LIVE.drop

    def __enter__(self) -> Count:
        gc.collect()
        tracemalloc.start()
        self._base = _shared_bytes()
        live: Any = segments._LIVE
        live.add, live.drop = self._watched(self._add), self._watched(self._drop)
        return self

    def __exit__(self, *error: object) -> None:
        self.look()
        live: Any = segments._LIVE
        live.add, live.drop = self._add, self._drop
        objects = tracemalloc.take_snapshot().traces
        tracemalloc.stop()
        self.objects = sum(one.size for one in objects if one.domain == PYTHONS_OWN)
        self.most -= self.objects

    def look(self) -> None:
        """Take the peak since the last look; segments have not changed in between."""
        _, peak = tracemalloc.get_traced_memory()
        self.most = max(self.most, peak + _shared_bytes() - self._base)
        tracemalloc.reset_peak()

    def _watched(self, change: Change) -> Change:
        def changing(*args: Any) -> Any:
            self.look()
            made = change(*args)
            self.look()
            return made

        return changing


class Held:
    """The most that this process holds at any moment, looked at every few milliseconds."""

    def __init__(self) -> None:
        self.most = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Held:
        self.most = 0
        self._end.clear()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        assert self._thread is not None
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, held_bytes())
            if self._end.wait(PAUSE_S):
                return


def held_bytes() -> int:
    """Private pages, and those of the segments that this process has made, whoever reads them.

    The proportional share of a page that others have mapped changes while they map it; so what is
    shared is charged to its owner.
    """
    return _set_size("Pss_Anon:") + segments.allocated_bytes()


def proportional_bytes() -> int:
    """Private pages and the share of shared ones, as Linux counts; exact only while nothing moves."""
    return _set_size("Pss_Anon:", "Pss_Shmem:")


def _set_size(*names: str) -> int:
    with open("/proc/self/smaps_rollup", encoding="utf-8") as file:
        return sum(1024 * int(line.split()[1]) for line in file if line.startswith(names))


def tidy() -> None:
    """Let every array of some size have pages of its own, which go back when it dies."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 2**16)
    libc.mallopt(M_ARENA_MAX, 1)


def give_back() -> None:
    """Return free memory to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _shared_bytes() -> int:
    return sum(segments._LIVE.blocks.values())
