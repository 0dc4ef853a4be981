"""What was measured, as values: a table, JSON and a picture are made from it."""

from __future__ import annotations

import datetime
import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from redist.measure.timing import Times
from redist.version import __version__

# Describe the machine and the software that figures depend on.


def machine() -> dict[str, Any]:
    """**Local.** What figures depend on besides the code.

    >>> sorted(machine())
    ['cores', 'numpy', 'processor', 'python', 'system']
    """
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,  # of the machine, not those that MPI bound this process to
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


OURS = "redist"
"""The contender that the others are compared with."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender in one case; without times, ``note`` says why."""

    key: str
    label: str
    note: str = ""
    is_wrong: bool = False
    times: Times | None = None
    peak_bytes: int | None = None
    """Of the rank that needs most, source and target included."""
    planned_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """All contenders in one case; ``note`` says why there are none."""

    name: str
    size_bytes: int
    """As asked for."""
    held_bytes: int = 0
    """All ranks together, at the larger end."""
    text: str = ""
    note: str = ""
    floor: Times | None = None
    """Every rank copies its tile of the target once, all together."""
    entries: tuple[Entry, ...] = ()

    def entry(self, key: str) -> Entry | None:
        """The contender ``key`` if it was timed."""
        found = (e for e in self.entries if e.key == key and e.times is not None)
        return next(found, None)

    def ratio(self, key: str) -> float | None:
        """How many times as long as redist a contender takes; None where one was not timed."""
        ours, other = self.entry(OURS), self.entry(key)
        if ours is None or other is None or ours.times is None or other.times is None:
            return None
        return other.times.median_s / ours.times.median_s

    def share(self, key: str) -> float | None:
        """The floor as a share of a contender's time: 1 is as quick as memcpy."""
        entry = self.entry(key)
        if entry is None or entry.times is None or self.floor is None:
            return None
        return self.floor.median_s / entry.times.median_s


@dataclass(frozen=True, slots=True)
class Results:
    """All cases of one run, with what the figures depend on."""

    mpi: str
    n_ranks: int
    repeats: int
    outcomes: tuple[Outcome, ...]
    machine: dict[str, Any] = field(default_factory=machine)

    @property
    def is_right(self) -> bool:
        """Whether no contender had a wrong result."""
        return not any(entry.is_wrong for outcome in self.outcomes for entry in outcome.entries)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes asked for, in the order asked."""
        return tuple(dict.fromkeys(outcome.size_bytes for outcome in self.outcomes))

    def to_dict(self) -> dict[str, Any]:
        """Plain data; ratios and shares are there too, so that nobody has to divide."""
        cases = []
        for outcome in self.outcomes:
            data = asdict(outcome)
            for entry in data["entries"]:
                entry["of_floor"] = outcome.share(entry["key"])
                entry["times_redist"] = outcome.ratio(entry["key"])
            cases.append(data)
        return {
            "version": 1,
            "redist": __version__,
            "date": datetime.date.today().isoformat(),
            "mpi": self.mpi,
            "ranks": self.n_ranks,
            "repeats": self.repeats,
            "machine": self.machine,
            "cases": cases,
        }

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=1) + "\n"
