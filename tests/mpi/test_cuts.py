"""One place says who holds what: with other tiles there, oracle, simulator and ranks still agree."""

from __future__ import annotations

import pytest

from tests.programs.launch import one_worker, run
from tests.tiers import sample


@one_worker
@pytest.mark.parametrize(("ranks", "n"), [(1, sample(20, of=60)), (4, sample(8, of=40))])
def test_shrinking_tiles_are_moved_like_even_ones(ranks: int, n: int) -> None:
    done = run("shrinking", ranks, "--n", str(n), "--seed", "3")
    assert done.status == 0, done.output
    (said,) = (line for line in done.output.splitlines() if "cases agree" in line)
    good, _, total, *_ = said.split()
    assert good == total and int(total) > n // 2, done.output
