"""Reading and writing by keys, on 1 to 6 ranks."""

from __future__ import annotations

import pytest

from tests.mpi.launch import default_mpi, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")


JOBS: list[tuple[int, int, list[str]]] = [
    (1, 50, []),
    (2, 90, []),
    (3, 90, []),
    (4, 90, []),
    (6, 50, []),
    (3, 90, ["--small"]),
]


@pytest.mark.parametrize(("ranks", "n", "args"), JOBS)
def test_keys_do_what_numpy_does(ranks: int, n: int, args: list[str]) -> None:
    seed = ranks + 100 * len(args)
    done = run("tests.pgas.indexing", ranks, "--n", str(n), "--seed", str(seed), *args)
    assert done.status == 0, done.output
    assert f"{n} of {n} keys agree ({ranks} ranks)" in done.output
    assert not done.left
