"""What another library did with a workload, as rivals write it down."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.layouts.cases import workloads
from bench.layouts.workload import Workload

MOST_REASON = 70
"""Letters of what a library says where it cannot run a workload."""
Spread = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class RivalRow:
    """Bytes that all devices receive, in how many transfers, quartiles of seconds; or why there are none."""

    workload: str
    library: str
    received_bytes: int | None = None
    transfers: int | None = None
    seconds: Spread | None = None
    cannot: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a rival's program is asked on its command line."""

    devices: int
    repeat: int
    chosen: tuple[Workload, ...]
    stored: Path | None

    def write(self, rows: Sequence[RivalRow]) -> None:
        """Write rows as JSON."""
        if self.stored is not None:
            self.stored.write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")


def ask(description: str | None) -> Asked:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only", default="", help="workloads whose name has this")
    parser.add_argument("--tiny", action="store_true", help="the sizes of tests")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    chosen = tuple(w for w in workloads(args.tiny) if args.only in w.name)
    return Asked(args.devices, args.repeat, chosen, args.json)


def measured(workload: Workload, library: str, measure: Callable[[Workload], RivalRow]) -> RivalRow:
    """A row, or one that says why the library cannot run the workload."""
    try:
        row = measure(workload)
    except Exception as problem:
        text = str(problem).strip() or type(problem).__name__
        row = RivalRow(workload.name, library, cannot=text.splitlines()[0][:MOST_REASON])
    if os.environ.get("RANK", "0") == os.environ.get("PMI_RANK", "0") == "0":
        print(f"bench rivals: {row}", file=sys.stderr, flush=True)
    return row


class WrongResultError(Exception):
    """A library's result is too far from NumPy's; its row says so, and has no figures."""


def check(workload: Workload, error: Any) -> None:
    """Refuse a result that is too far from NumPy's."""
    if not error <= workload.error:
        raise WrongResultError(f"wrong result: error {error:.1e}")
