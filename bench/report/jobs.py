"""Start the job of a benchmark, and read what it found.

A job is a module with ``measure(**options)``, run by :mod:`bench.report.job` on ranks of MPI, on emulated
hosts, on ranks of PyTorch or in a process of its own; what its first rank returns comes back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from redist.errors import RedistError
from redist.launch.launcher import environment, find_launcher, launch
from tests.cluster.hosts import make_cluster, why_no_cluster
from tests.cluster.launch import ClusterLauncher, variables
from tests.programs.torch import spawn

ROOT = Path(__file__).parents[2]
LIMIT_S = 900.0
Start = Callable[[list[str]], object]
"""Runs Python with these words to its end, and returns how it ended."""


class SkippedError(RedistError):
    """Something that a benchmark needs is not here."""


def found_by(start: Start, module: str, **options: Any) -> Any:
    """What ``measure(**options)`` of a module returned, started in some way."""
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "found.json"
        ended = start(["-m", "bench.report.job", module, json.dumps(options), str(stored)])
        if not stored.exists():
            raise RuntimeError(f"cannot measure {module}: the job ended with status {ended}")
        return json.loads(stored.read_text(encoding="utf-8"))


def on_ranks(ranks: int, one_thread: bool = True) -> Start:
    """Start jobs on so many ranks of MPI; a rank is one thread where nobody says otherwise."""

    def start(words: list[str]) -> object:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if one_thread else ():
            os.environ.setdefault(name, "1")
        return launch(find_launcher(), ranks, words)

    return start


def on_hosts(hosts: int, ranks_per_host: int, rate_mbit: float) -> Start:
    """Start jobs on emulated hosts with links of this rate, so many ranks on each."""

    def start(words: list[str]) -> object:
        if why_not := why_no_cluster():
            raise SkippedError(why_not)
        with make_cluster(hosts, rate_mbit) as cluster:
            launcher = ClusterLauncher(cluster, ranks_per_host, find_launcher())
            command = launcher.command(hosts * ranks_per_host, words)
            return subprocess.run(command, env=variables(), timeout=LIMIT_S).returncode

    return start


def on_torch_ranks(ranks: int, more: Mapping[str, str] | None = None) -> Start:
    """Start jobs on so many ranks of ``torch.distributed``; what they say is shown as they say it."""

    def start(words: list[str]) -> object:
        return spawn.run(words, ranks, LIMIT_S, more, shown=True).statuses

    return start


def in_one_process(python: str = sys.executable, limit_s: float = LIMIT_S) -> Start:
    """Start jobs in a process of their own."""

    def start(words: list[str]) -> object:
        line = [python, *words]
        return subprocess.run(line, cwd=ROOT, env=environment(), timeout=limit_s).returncode

    return start
