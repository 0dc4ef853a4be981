"""Other shapes and orders of arrays, on 1 to 6 ranks."""

from __future__ import annotations

import pytest

from tests.programs.launch import default_mpi, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")


JOBS: list[tuple[int, int, list[str]]] = [
    (1, 51, []),
    (2, 85, []),
    (3, 85, []),
    (4, 85, []),
    (6, 51, []),
    (3, 85, ["--small"]),
    (3, 85, ["--tiles", "private", "--small"]),
    (3, 85, ["--tiles", "mixed"]),
    (4, 85, ["--tiles", "mixed", "--node-size", "2"]),
]


@pytest.mark.parametrize(("ranks", "n", "args"), JOBS)
def test_functions_do_what_numpys_do(ranks: int, n: int, args: list[str]) -> None:
    seed = ranks + 100 * len(args)
    done = run("tests.programs.pgas.manipulation", ranks, "--n", str(n), "--seed", str(seed), *args)
    assert done.status == 0, done.output
    assert f"{n} of {n} cases agree ({ranks} ranks)" in done.output
    assert not done.left
