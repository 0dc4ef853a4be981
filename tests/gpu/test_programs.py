"""Programs for GPUs where there is none: pretended GPUs, doubles of NCCL, NumPy for CuPy; an item a check."""

from __future__ import annotations

import pytest

from tests.programs.checks import Job, Run, items, must_hold
from tests.programs.gpu.carrying import CARRIERS
from tests.programs.gpu.jobs import needs_linux
from tests.tiers import sample

SEVERAL = "on more ranks, or more ranks on a GPU"
PRETENDED = ("--pretend", "--transport", "mpi")
ROUNDS = ("--round-bytes", "4096")


def job(ranks: int, program: str, *args: str, slow: str = "") -> Job:
    """A program alone in its job: it puts something in CuPy's place."""
    return Job(ranks, (Run(f"gpu.{program}", args, slow),))


def carried(ranks: int, n: int, carrier: str, slow: str = "") -> Job:
    """Random problems by one carrier, on more than two ranks through two halves of staging."""
    seed = ranks if carrier == "nccl" else 10 * ranks
    more = ROUNDS if ranks > 2 else ()
    args = ("--carrier", carrier, "--n", str(n), "--seed", str(seed))
    return job(ranks, "carrying", *args, *PRETENDED, *more, slow=slow)


def sharing(ranks: int, gpus: int, quick: int, thorough: int) -> Job:
    """Random problems of ranks that share GPUs."""
    n = sample(quick, of=thorough) or 1
    return job(ranks, "sharing", "--gpus", str(gpus), "--n", str(n), slow="" if quick else SEVERAL)


def reaching(ranks: int, *args: str, slow: str = "") -> Job:
    """Halos of tiles on pretended GPUs."""
    n = str(sample(5, of=100))
    return Job(ranks, (Run("mpi.halos", ("--n", n, *args), slow),))


def passing(ranks: int, *args: str, slow: str = "") -> Job:
    """Parts of arrays from every rank to every other, on pretended GPUs."""
    return job(ranks, "parts", "--n", str(sample(12, of=120)), *args, slow=slow)


def one_sided(ranks: int, quick: int, thorough: int, *args: str) -> Job:
    """Random epochs on emulated GPUs that open each other's memory."""
    n = str(sample(quick, of=thorough) or 1)
    args = ("--cuda", "--without-gpu", "--n", n, "--seed", str(ranks), *args)
    return Job(ranks, (Run("pgas.onesided", args, "" if quick else SEVERAL),))


def streaming(carrier: str, slow: str = "") -> Job:
    """Work of a stream before, during and after transfers, in small rounds."""
    return job(3, "streams", "--carrier", carrier, *ROUNDS, *PRETENDED, slow=slow)


def with_numpy(ranks: int, slow: str = "") -> Job:
    """Every function of global arrays with NumPy in the place of CuPy."""
    args = ("--without-gpu", "--all-kinds", "--seed", str(ranks))
    return job(ranks, "globals", *args, slow=slow)


JOBS = [
    with_numpy(1, slow=SEVERAL),
    with_numpy(2),
    with_numpy(3, slow=SEVERAL),
    with_numpy(4, slow=SEVERAL),
    job(2, "spilling", "--without-gpu"),
    job(2, "storing", "--without-gpu", slow=SEVERAL),
    job(3, "spilling", "--without-gpu", slow=SEVERAL),
    Job(1, (Run("pgas.limited", ("--n", str(sample(0, of=20) or 1), "--without-gpu"), SEVERAL),)),
    Job(
        2,
        (
            Run(
                "pgas.limited",
                ("--n", str(sample(0, of=6) or 1), "--seed", "2", "--without-gpu"),
                SEVERAL,
            ),
        ),
    ),
    job(3, "choosing"),
    *(carried(2, sample(9, of=18), c, SEVERAL if c == "aware" else "") for c in CARRIERS),
    *(carried(4, 12, carrier, SEVERAL) for carrier in CARRIERS),
    *(streaming(carrier, "" if carrier == "pinned" else SEVERAL) for carrier in CARRIERS),
]
ON_LINUX = [
    sharing(2, 1, 0, 40),
    sharing(4, 1, 0, 40),
    sharing(4, 2, 6, 20),
    sharing(3, 2, 0, 40),
    sharing(4, 3, 0, 40),
    reaching(4, "--gpus", "2"),
    reaching(8, "--gpus", "1", slow=SEVERAL),
    *(reaching(4, "--carrier", carrier, slow=SEVERAL) for carrier in CARRIERS),
    passing(4, "--gpus", "2"),
    passing(3, "--gpus", "1", slow=SEVERAL),
    *(passing(3, "--carrier", c, slow="" if c == "pinned" else SEVERAL) for c in CARRIERS),
    one_sided(1, 0, 100),
    one_sided(2, 6, 80, "--gpus", "2"),
    one_sided(3, 9, 80, "--shared"),
    one_sided(3, 0, 40, "--closed"),
    one_sided(4, 6, 40, "--shared", "--node-size", "2"),
    one_sided(4, 0, 60, "--gpus", "2"),
    one_sided(6, 0, 30, "--gpus", "3"),
    Job(3, (Run("pgas.reaching", ("--cuda", "--without-gpu"), SEVERAL),)),
    job(3, "visiting", "--without-gpu", slow=SEVERAL),
    job(4, "visiting", "--without-gpu", "--gpus", "2"),
    job(4, "visiting", "--without-gpu", "--node-size", "2"),
    job(3, "visiting", "--without-gpu", "--closed", slow=SEVERAL),
    job(6, "visiting", "--without-gpu", "--gpus", "3", "--node-size", "4", slow=SEVERAL),
    Job(2, (Run("pgas.reaching", ("--nodes", "--cuda", "--without-gpu")),)),
    job(2, "memory", "--pretend", "--only", "donated"),
    job(4, "memory", "--pretend", "--only", "donated", slow=SEVERAL),
    job(4, "donating", "--pretend"),
    job(3, "refitting", "--pretend", "--n", str(sample(12, of=200))),
    job(4, "refitting", "--pretend", "--n", "60", slow=SEVERAL),
    job(2, "mistakes", "--pretend", "ipc"),
    job(2, "mistakes", "--pretend", "apart"),
    job(3, "mistakes", "--pretend", "ipc", slow=SEVERAL),
    job(3, "mistakes", "--pretend", "apart", slow=SEVERAL),
]
"""Ranks open each other's memory by names under /proc or /dev/shm."""


@pytest.mark.parametrize(("job", "run", "check"), [*items(JOBS)])
def test_check(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)


@needs_linux
@pytest.mark.parametrize(("job", "run", "check"), [*items(ON_LINUX)])
def test_check_on_linux(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)
