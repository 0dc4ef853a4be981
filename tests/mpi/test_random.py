"""Random problems on 1 to 8 ranks, over every transport, against the simulator."""

from __future__ import annotations

import pytest

from tests.programs.launch import default_mpi, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")

JOBS: list[tuple[int, list[str], dict[str, str]]] = [
    (1, [], {}),
    (2, [], {}),
    (3, [], {}),
    (4, [], {}),
    (6, [], {}),
    (8, [], {}),
    (4, ["--transport", "mpi"], {}),
    (6, ["--node-size", "2"], {}),
    (8, ["--node-size", "3"], {}),
    (8, ["--halves"], {}),
    (4, [], {"REDIST_PURE": "1"}),
    (3, ["--node-size", "2"], {"REDIST_PURE": "1"}),
]
MANY, FEW = 27, 18
"""Cases in a job: each of nine ways to move a few times, a quarter with several arrays at once."""


@pytest.mark.parametrize(
    ("ranks", "args", "variables"),
    JOBS,
    ids=[" ".join([str(ranks), *args, *variables]) for ranks, args, variables in JOBS],
)
def test_ranks_agree_with_the_simulator(
    ranks: int, args: list[str], variables: dict[str, str]
) -> None:
    seed = 100 * ranks + len(args) + len(variables)
    n = str(MANY if ranks <= 4 else FEW)
    done = run("fuzz", ranks, "--n", n, "--seed", str(seed), *args, variables=variables)
    assert done.status == 0, done.output
    assert f"{n} of {n} cases agree ({ranks} ranks)" in done.output
    assert not done.left


@pytest.mark.parametrize(
    ("ranks", "args"),
    [(4, []), (8, []), (6, ["--node-size", "3"])],
    ids=["4", "8", "6 --node-size 3"],
)
def test_what_ranks_did_before_does_not_matter(ranks: int, args: list[str]) -> None:
    done = run("mixing", ranks, "--n", "20", *args)
    assert done.status == 0, done.output
