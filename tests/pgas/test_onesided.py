"""One-sided operations under mpirun: against a model of epochs, and what goes wrong."""

from __future__ import annotations

import pytest

from tests.programs.launch import default_mpi, run

pytestmark = pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")

JOBS: list[tuple[int, int, list[str], dict[str, str]]] = [
    (1, 100, [], {}),
    (2, 80, [], {}),
    (3, 80, [], {}),
    (4, 60, [], {}),
    (6, 30, [], {}),
    (3, 60, ["--shared"], {}),
    (4, 40, ["--shared", "--node-size", "2"], {}),
    (3, 30, ["--transport", "mpi"], {}),
    (4, 30, ["--node-size", "2"], {}),
    (3, 30, [], {"REDIST_PURE": "1"}),
]


@pytest.mark.parametrize(
    ("ranks", "n", "args", "variables"),
    JOBS,
    ids=[" ".join([str(ranks), *args, *variables]) for ranks, _, args, variables in JOBS],
)
def test_ranks_see_what_the_model_says(
    ranks: int, n: int, args: list[str], variables: dict[str, str]
) -> None:
    seed = 10 * ranks + len(args) + len(variables)
    done = run(
        "tests.programs.pgas.onesided",
        ranks,
        "--n",
        str(n),
        "--seed",
        str(seed),
        *args,
        variables=variables,
    )
    assert done.status == 0, done.output
    assert f"{n} of {n} cases agree ({ranks} ranks)" in done.output
    assert not done.left


@pytest.mark.parametrize(("ranks", "args"), [(1, []), (3, []), (3, ["--nodes"])])
def test_errors_memory_and_cost(ranks: int, args: list[str]) -> None:
    done = run("tests.programs.pgas.reaching", ranks, *args)
    assert done.status == 0, done.output
    assert "all is well" in done.output
    assert not done.left
