"""The long runs, one after another: python -m tests.programs.soak --count 500 --seed 7.

Every random program of this folder and the chain of oracle, checker and simulator, with ``count`` cases
each (fewer where a case takes long). Stops at the first that goes wrong and prints how to run it again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from tests.programs.launch import ROOT, default_mpi, run

LIMIT_S = 6 * 3600.0

CHAIN: list[tuple[float, tuple[str, ...]]] = [(1.0, ()), (0.4, ("--options",))]
"""Of oracle, checker and simulator: the share of cases, and arguments."""

PROGRAMS: list[tuple[str, int, float, tuple[str, ...]]] = [
    ("mpi.fuzz", 2, 0.4, ()),
    ("mpi.fuzz", 3, 0.4, ("--node-size", "2")),
    ("mpi.fuzz", 4, 0.4, ()),
    ("mpi.fuzz", 4, 0.4, ("--transport", "mpi")),
    ("mpi.fuzz", 6, 0.2, ()),
    ("mpi.fuzz", 8, 0.1, ("--node-size", "3")),
    ("gpu.sharing", 4, 0.2, ("--gpus", "2")),
    ("pgas.indexing", 3, 1.0, ()),
    ("pgas.indexing", 4, 1.0, ("--tiles", "mixed", "--node-size", "2")),
    ("pgas.manipulation", 3, 1.0, ("--small",)),
    ("pgas.onesided", 4, 1.0, ("--shared", "--node-size", "2")),
    ("pgas.algebra", 3, 0.05, ()),
    ("pgas.creating", 3, 0.02, ()),
    ("pgas.everything", 3, 0.02, ()),
    ("pgas.everything", 6, 0.01, ()),
    ("pgas.floats", 4, 0.5, ()),
    ("pgas.products", 4, 0.1, ()),
    ("pgas.programs", 3, 1.0, ()),
    ("pgas.seeds", 3, 0.1, ()),
    ("pgas.sorting", 4, 0.2, ()),
    ("pgas.special", 3, 0.2, ()),
    ("pgas.spectra", 3, 0.1, ()),
]
"""Program, ranks, the share of cases, arguments."""


def counted(count: int, share: float) -> int:
    """So many cases of a program.

    >>> counted(500, 0.4), counted(20, 0.01)
    (200, 1)
    """
    return max(1, round(count * share))


def commands(count: int, seed: int) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Everything to run: ranks (0: no MPI), module, arguments."""
    for share, args in CHAIN:
        yield (
            0,
            "tests.problems.soak",
            ("--n", str(counted(count, share)), "--seed", str(seed), *args),
        )
    if default_mpi() is not None:
        for program, ranks, share, args in PROGRAMS:
            n, module = str(counted(count, share)), f"tests.programs.{program}"
            seeded = () if program == "gpu.sharing" else ("--seed", str(seed))
            yield ranks, module, ("--n", n, *seeded, *args)


def ran(ranks: int, module: str, args: Sequence[str]) -> tuple[int, str]:
    """Exit status and output of one of them."""
    if ranks:
        variables = {"REDIST_TEST_LIMIT_S": str(LIMIT_S)}
        done = run(module, ranks, *args, variables=variables, limit_s=LIMIT_S)
        return done.status, done.output
    said = subprocess.run(
        [sys.executable, "-m", module, *args], cwd=ROOT, capture_output=True, text=True
    )
    return said.returncode, said.stdout + said.stderr


def main() -> int:
    """0 if all is well; a line before and after each run says how far it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    asked = parser.parse_args()
    todo = [one for one in commands(asked.count, asked.seed) if asked.only in one[1]]
    for number, (ranks, module, args) in enumerate(todo, 1):
        where = f"on {ranks} ranks" if ranks else "alone"
        print(f"[{number}/{len(todo)}] {module} {' '.join(args)} {where} ... ", end="", flush=True)
        start = time.monotonic()
        status, output = ran(ranks, module, args)
        if status:
            print(f"status {status}\n{output}")
            again = f"mpirun -n {ranks} python" if ranks else "python"
            print(f"again: {again} -m {module} {' '.join(args)}")
            return 1
        last = output.strip().splitlines()[-1]
        print(f"{last} ({time.monotonic() - start:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
