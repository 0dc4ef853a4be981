"""Work in a fresh process: nothing is remembered from before, and its memory is its own."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")

STATUS = Path("/proc/self/status")


def in_fresh_process(work: Callable[[A], R], items: Iterable[A]) -> Iterator[R]:
    """Do ``work`` on every item, one after another in one new process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        yield from pool.map(work, items)


def peak_memory_bytes() -> int:
    """The most memory this process has had.

    >>> peak_memory_bytes() > 2**20
    True
    """
    # A child starts with its parent's maximum in ru_maxrss; the kernel's own mark is per program.
    if STATUS.exists():
        for line in STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


def warm_up() -> None:
    """Import everything that planning needs, the solver included."""
    import redist

    redist.synthesize("f32[6{x}]", "f32[6]", mesh=redist.Mesh(x=2))
