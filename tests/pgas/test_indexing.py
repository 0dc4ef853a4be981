"""Reading and writing by keys, on 1 to 6 ranks."""

from __future__ import annotations

import pytest

from tests.programs.launch import default_mpi, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")


JOBS: list[tuple[int, int, list[str]]] = [
    (1, 50, []),
    (2, 90, []),
    (3, 90, []),
    (4, 90, []),
    (6, 50, []),
    (3, 90, ["--small"]),
    (3, 90, ["--tiles", "private", "--small"]),
    (3, 90, ["--tiles", "mixed"]),
    (4, 90, ["--tiles", "mixed", "--node-size", "2"]),
]


@pytest.mark.parametrize(("ranks", "n", "args"), JOBS)
def test_keys_do_what_numpy_does(ranks: int, n: int, args: list[str]) -> None:
    seed = ranks + 100 * len(args)
    done = run("tests.programs.pgas.indexing", ranks, "--n", str(n), "--seed", str(seed), *args)
    assert done.status == 0, done.output
    assert f"{n} of {n} keys agree ({ranks} ranks)" in done.output
    assert not done.left


@pytest.mark.parametrize(("ranks", "args"), [(1, []), (3, []), (4, ["--messages"])])
def test_staging_fits_the_memory_limit(ranks: int, args: list[str]) -> None:
    done = run("tests.programs.pgas.staging", ranks, *args)
    assert done.status == 0, done.output
    assert "the limit is kept" in done.output
    assert not done.left
