"""What Linux says about the memory of this process; no MPI here, so that any child may ask.

Resident size counts a shared page once for every process that has touched it, even if it only read
a neighbour's tile there. The kernel keeps an exact high-water mark of the resident size, which can
be set back; what is shared does not change in a repeated call, so the peak of what is private is
exact, and the proportional share of what is shared is added to it. Only redist's own segments are
known better than by shares: each belongs to the rank that made it, whoever reads it.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

from redist.runtime.shm.segments import NAME, allocated_bytes

PROC = Path("/proc/self")
RESET_PEAK = "5"
SEGMENT = f"memfd:{NAME}"
"""What Linux calls redist's segments."""


def can_measure() -> bool:
    """Whether this system tells."""
    try:
        reset_peak()
        return {"Anonymous", "Pss_Shmem"} <= set(_fields("smaps_rollup"))
    except OSError:
        return False


def reset_peak() -> None:
    """From now on, the high-water mark counts."""
    (PROC / "clear_refs").write_text(RESET_PEAK)


def held_bytes() -> int:
    """Private pages, and this process's share of shared ones."""
    return private_bytes() + shared_bytes()


def private_bytes() -> int:
    """Private pages now."""
    return _fields("smaps_rollup")["Anonymous"]


def resident_peak_bytes() -> int:
    """Resident pages at most since :func:`reset_peak`, or since the process began.

    >>> resident_peak_bytes() > 2**20
    True
    """
    # A child starts with its parent's maximum in ru_maxrss; the kernel's own mark is per program.
    return _fields("status")["VmHWM"]


def private_peak_bytes() -> int:
    """Private pages at most since :func:`reset_peak`, if no more were shared meanwhile."""
    status = _fields("status")
    return status["VmHWM"] - status["RssShmem"] - status["RssFile"]


def shared_bytes() -> int:
    """This process's share of shared pages, and all of the segments that it made itself.

    Mappings are read line by line: their text as a whole is some MiB, which the allocator would keep and
    the next peak would count.
    """
    shares = _fields("smaps_rollup")["Pss_Shmem"]
    mapped = 0
    inside = False
    with (PROC / "smaps").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words = line.split()
            if not words[0].endswith(":"):  # the first line of a mapping
                inside = SEGMENT in line
            elif inside and words[0] == "Pss:":
                mapped += int(words[1]) * 1024
    return shares - mapped + allocated_bytes()


def give_back() -> None:
    """Return free memory to the system, so that the next allocation counts."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _fields(name: str) -> dict[str, int]:
    """Bytes by name from a file of lines such as ``VmHWM:  1234 kB``."""
    out = {}
    for line in (PROC / name).read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB":
            out[words[0].rstrip(":")] = int(words[1]) * 1024
    return out
