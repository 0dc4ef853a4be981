"""Checkpoints under mpirun: random round trips, failures of every operation, kills, names and casts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

from tests.programs.checks import Job, Run, items, must_hold
from tests.programs.launch import default_mpi, one_worker, run
from tests.programs.store.failures import FORMS, STORES, next_version, path_of, save, version_of
from tests.tiers import FULL, THOROUGH, sample

SEVERAL = "on more ranks, or once more another way"
QUICK: dict[tuple[str, int, int, int | None], int] = {
    ("file", 2, 0, 1): 6,
    ("file", 2, 1, 1): 1,
    ("npy", 2, 0, 1): 16,
}
"""Which operation is the last of a rank in ``make test``: form, ranks, rank, and what is there before."""
needs_zarr = pytest.mark.skipif(find_spec("zarr") is None, reason="needs zarr: make store has it")


def jobs() -> Iterator[Job]:
    for ranks in (1, 2, 3, 4):
        n = str(sample(5, of=500))
        quick = ranks == 3
        trips = Run("store.round_trips", ("--n", n, "--seed", str(ranks)), "" if quick else SEVERAL)
        named = Run("store.named", slow="" if ranks == 4 else SEVERAL)
        weights = Run("store.weights", slow="" if ranks in (2, 4) else SEVERAL)
        expected = Run("store.expected", slow="" if ranks == 4 else SEVERAL)
        failures = Run("store.failures", ("--quick",))
        memory = Run("store.memory", slow=SEVERAL)
        yield Job(
            ranks, (trips, named, weights, expected, memory, *([failures] if ranks == 2 else []))
        )
    for ranks in (1, 2, 3):
        yield Job(ranks, (Run("store.failures", slow=SEVERAL),))
    yield Job(2, (Run("store.round_trips", ("--n", "8"), SEVERAL),), ("REDIST_PURE",))
    yield Job(3, (Run("store.round_trips", ("--n", "8"), SEVERAL),), library="openmpi")


@pytest.mark.parametrize(("job", "run", "check"), [*items(jobs())])
def test_check(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)


@one_worker
@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
@pytest.mark.parametrize("old", [None, 1], ids=["new", "overwrite"])
@pytest.mark.parametrize(
    "form", [*FORMS, *(pytest.param(form, marks=needs_zarr) for form in STORES)]
)
@pytest.mark.parametrize(("ranks", "rank"), [(1, 0), (2, 0), (2, 1)])
def test_a_rank_killed_at_any_operation_leaves_the_old_or_the_new_one(
    tmp_path: Path, form: str, ranks: int, rank: int, old: int | None
) -> None:
    """Operations on the disk in turn: three in ``make test``, every third in ``make test-all``, or all."""
    first = QUICK.get((form, ranks, rank, old))
    if not THOROUGH and first is None:
        pytest.skip(
            "make test kills three ranks, make test-all all of them at every third operation"
        )

    mpi = default_mpi()
    assert mpi is not None
    killed = 0
    for at in (first,) if first is not None and not THOROUGH else count(0, 1 if FULL else 3):
        folder = tmp_path / str(at)
        folder.mkdir()
        if old is not None:
            save(folder, form, old)
        args = ("kill", str(folder), form, str(rank), str(at))
        done = run("tests.programs.store.failures", ranks, *args, limit_s=60)
        assert not done.left
        found = version_of(path_of(folder, form))
        assert found in (old, 2), done.output
        after = next_version(form, at)
        save(folder, form, after)
        assert version_of(path_of(folder, form)) == after
        if done.status == 0:
            assert found == 2
            break
        killed += 1
    assert killed > 0
