"""Checkpoints under mpirun: random round trips, failures of every operation, kills, names and casts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs.checks import Job, Run, items, must_hold
from tests.programs.launch import default_mpi, one_worker, run
from tests.programs.store.failures import FORMS, version_of
from tests.tiers import THOROUGH, sample

SEVERAL = "on more ranks, or once more another way"


def jobs() -> Iterator[Job]:
    for ranks in (1, 2, 3, 4):
        n = str(sample(5, of=500))
        quick = ranks == 3
        trips = Run("store.round_trips", ("--n", n, "--seed", str(ranks)), "" if quick else SEVERAL)
        named = Run("store.named", slow="" if ranks == 4 else SEVERAL)
        expected = Run("store.expected", slow="" if ranks == 4 else SEVERAL)
        failures = Run("store.failures", ("--quick",))
        memory = Run("store.memory", slow=SEVERAL)
        yield Job(ranks, (trips, named, expected, memory, *([failures] if ranks == 2 else [])))
    for ranks in (2, 3):
        yield Job(ranks, (Run("store.failures", slow=SEVERAL),))
    yield Job(2, (Run("store.round_trips", ("--n", "8"), SEVERAL),), ("REDIST_PURE",))
    yield Job(3, (Run("store.round_trips", ("--n", "8"), SEVERAL),), library="openmpi")


@pytest.mark.parametrize(("job", "run", "check"), [*items(jobs())])
def test_check(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)


@one_worker
@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
@pytest.mark.parametrize("old", [None, 1], ids=["new", "overwrite"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_killed_at_any_operation_leaves_the_old_or_the_new_one(
    tmp_path: Path, form: str, rank: int, old: int | None
) -> None:
    """Each operation on the disk in turn: two of them in ``make test``, all in ``make test-all``."""
    if not THOROUGH and (form, rank, old) not in (("file", 0, 1), ("file", 1, 1)):
        pytest.skip("make test kills two ranks, make test-all all of them at every operation")
    from tests.programs.store.failures import path_of, save

    mpi = default_mpi()
    assert mpi is not None
    killed = 0
    for at in range(40) if THOROUGH else (6 if rank == 0 else 1,):
        folder = tmp_path / str(at)
        folder.mkdir()
        if old is not None:
            save(folder, form, old)
        args = ("kill", str(folder), form, str(rank), str(at))
        done = run("tests.programs.store.failures", 2, *args, limit_s=60)
        assert not done.left
        found = version_of(path_of(folder, form))
        assert found in (old, 2), done.output
        save(folder, form, 3)
        assert version_of(path_of(folder, form)) == 3
        if done.status == 0:
            assert found == 2
            break
        killed += 1
    assert killed > 0
