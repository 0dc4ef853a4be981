"""Start the program of a benchmark, and read the JSON that it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from redist.launch.launcher import find_launcher, launch
from redist.launch.outside import environment
from tests.cluster.hosts import Cluster
from tests.cluster.launch import ClusterLauncher, variables
from tests.programs.torch import spawn

ROOT = Path(__file__).parents[2]
LIMIT_S = 900.0
Start = Callable[[list[str]], object]
"""Runs Python with these words to its end, and returns how it ended."""


def found_by(start: Start, what: str, module: str, *options: object) -> Any:
    """What ``python -m module --json FILE`` wrote to its file, started in some way."""
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "found.json"
        ended = start(["-m", module, *map(str, options), "--json", str(stored)])
        if not stored.exists():
            raise RuntimeError(f"cannot {what}: the job ended with status {ended}")
        return json.loads(stored.read_text(encoding="utf-8"))


def on_ranks(ranks: int, one_thread: bool = True) -> Start:
    """Start programs on so many ranks of MPI; a rank is one thread where nobody says otherwise."""

    def start(words: list[str]) -> object:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if one_thread else ():
            os.environ.setdefault(name, "1")
        return launch(find_launcher(), ranks, words)

    return start


def on_hosts(cluster: Cluster, ranks_per_host: int, limit_s: float = LIMIT_S) -> Start:
    """Start programs on emulated hosts, so many ranks on each."""

    def start(words: list[str]) -> object:
        launcher = ClusterLauncher(cluster, ranks_per_host, find_launcher())
        command = launcher.command(cluster.n_hosts * ranks_per_host, words)
        return subprocess.run(command, env=variables(), timeout=limit_s).returncode

    return start


def on_torch_ranks(ranks: int, more: Mapping[str, str] | None = None) -> Start:
    """Start programs on so many ranks of ``torch.distributed``."""

    def start(words: list[str]) -> object:
        done = spawn.run(words, ranks, LIMIT_S, more)
        return f"{done.statuses}\n{done.output}"

    return start


def in_one_process(python: str = sys.executable, limit_s: float = LIMIT_S) -> Start:
    """Start programs in a process of their own."""

    def start(words: list[str]) -> object:
        line = [python, *words]
        return subprocess.run(line, cwd=ROOT, env=environment(), timeout=limit_s).returncode

    return start
