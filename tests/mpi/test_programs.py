"""Transfers under mpirun: random problems, wrong requests, failures and memory, an item a check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.checks import Job, Run, items, must_hold
from tests.tiers import sample

SEVERAL = "on more ranks, or once more another way"
PURE = ("REDIST_PURE",)

RANDOM: list[tuple[int, tuple[int, int], tuple[str, ...], tuple[str, ...]]] = [
    (1, (0, 27), (), ()),
    (2, (0, 27), (), ()),
    (3, (0, 27), (), ()),
    (4, (9, 27), (), ()),
    (4, (9, 27), ("--transport", "mpi"), ()),
    (6, (0, 18), (), ()),
    (6, (0, 18), ("--node-size", "2"), ()),
    (8, (0, 18), (), ()),
    (8, (0, 18), ("--node-size", "3"), ()),
    (8, (0, 18), ("--halves",), ()),
    (4, (9, 18), ("--halves",), ()),
    (4, (0, 27), (), PURE),
    (3, (9, 27), ("--node-size", "2"), PURE),
    *((ranks, (0, 300), ("--segments",), ()) for ranks in (1, 2, 3, 6)),
    (4, (18, 300), ("--segments",), ()),
    (4, (0, 60), ("--segments", "--node-size", "2"), ()),
    (4, (0, 60), ("--segments", "--transport", "mpi"), ()),
]
"""Cases against the simulator: ranks, how many (0: left out), arguments, variables.

Nine cases are each way to move once, a quarter of them with several arrays at once.
"""

REFITS = Run("mpi.refits", ("--n", str(sample(6, of=200))))
REPEATED = [(4, ()), (8, ()), (6, ("--node-size", "3"))]
"""Transfers called again and again, in any order: ranks and arguments."""

WRONG = [
    Run("mpi.faults", ("--transport", "auto")),
    Run("mpi.faults", ("--transport", "mpi"), slow=SEVERAL),
    Run("mpi.mismatches", ("--n", str(sample(1, of=20)), "--transport", "auto")),
    Run("mpi.mismatches", ("--n", str(sample(2, of=20)), "--transport", "mpi")),
    Run("mpi.mismatches", ("--n", "20", "--node-size", "2"), slow=SEVERAL),
    Run("mpi.failures", ("raise", "--transport", "auto")),
    Run("mpi.failures", ("raise", "--transport", "mpi")),
    Run("mpi.failures", ("raise", "--node-size", "2"), slow=SEVERAL),
]
"""Wrong requests are one error on every rank; an exception on one rank reaches the others."""
LATE = [
    Run("mpi.failures", ("late", "--transport", "auto")),
    Run("mpi.failures", ("late", "--transport", "mpi"), slow=SEVERAL),
]
"""Nobody waits longer than the time limit."""
OPEN_MPI = [
    Run("mpi.fuzz", ("--n", str(sample(9, of=18)), "--seed", "7", "--transport", "auto")),
    Run("mpi.fuzz", ("--n", "18", "--seed", "7", "--transport", "mpi"), slow=SEVERAL),
    Run("mpi.faults", slow=SEVERAL),
    Run("mpi.failures", ("raise",), slow=SEVERAL),
    Run("mpi.larger", slow=SEVERAL),
    Run("mpi.refits", slow=SEVERAL),
    Run("mpi.halos", slow=SEVERAL),
]
"""The same with another MPI library, briefly."""


def random_runs() -> dict[tuple[int, tuple[str, ...]], list[Run]]:
    """Random problems by ranks and variables."""
    found: dict[tuple[int, tuple[str, ...]], list[Run]] = {}
    for ranks, (quick, thorough), args, variables in RANDOM:
        seed = 100 * ranks + len(args) + len(variables)
        n = max(9, sample(quick, of=thorough))
        one = Run(
            "mpi.fuzz",
            ("--n", str(n), "--seed", str(seed), *args),
            slow="" if quick else SEVERAL,
        )
        found.setdefault((ranks, variables), []).append(one)
    return found


def jobs() -> Iterator[Job]:
    """Everything above: what leaves the rest alone, on the same ranks, is one job."""
    jobs = random_runs()
    for ranks, args in REPEATED:
        quick = ranks == 4
        one = Run("mpi.mixing", ("--n", str(sample(5, of=20)), *args), "" if quick else SEVERAL)
        jobs[ranks, ()].append(one)
    for ranks in (2, 3, 4):
        n, quick = str(sample(12, of=300)), ranks == 4
        jobs[ranks, ()].append(Run("mpi.texts", ("--n", n), "" if quick else SEVERAL))
    for ranks in (1, 2, 3, 4, 6, 8):
        n, quick = str(sample(4, of=100)), ranks == 4
        jobs[ranks, ()].append(Run("mpi.halos", ("--n", n), "" if quick else SEVERAL))
    jobs[4, ()].append(Run("mpi.halos", ("--n", "20", "--node-size", "2"), SEVERAL))
    jobs[3, ()] += [Run("mpi.repeating", slow=SEVERAL), Run("mpi.larger", slow=SEVERAL)]
    jobs[2, ()] += [Run("mpi.larger"), REFITS]
    jobs[4, ()] += [Run("mpi.repeating"), *WRONG, REFITS]
    for (ranks, variables), runs in jobs.items():
        yield Job(ranks, tuple(runs), variables)
    yield Job(4, tuple(LATE))
    yield Job(4, tuple(OPEN_MPI), library="openmpi")


@pytest.mark.parametrize(("job", "run", "check"), [*items(jobs())])
def test_check(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)


QUICK_WAYS = "pool uneven"
MEMORY = [
    *items([Job(4, (Run("mpi.memory", ("--only", QUICK_WAYS)),))]),
    *items(
        Job(
            4,
            (
                Run(
                    "mpi.memory",
                    ("--third", third),
                    slow="27 ways to move, each in a fresh communicator",
                ),
            ),
        )
        for third in "012"
    ),
]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
@pytest.mark.parametrize(("job", "run", "check"), MEMORY)
def test_no_rank_takes_more_than_its_plan_says(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)
