"""The benchmark of the examples compares each with a program by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.examples import race as examples
from bench.examples.cases import PAIRS
from tests.programs.launch import default_mpi, one_worker
from tests.test_examples import SMALL, run
from tests.tiers import sample

pytestmark = [one_worker, pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")]


@pytest.mark.slow("what each benchmark measures is looked at by make test-all")
def test_both_ways_of_every_example_agree(tmp_path: Path) -> None:
    stored = tmp_path / "examples.json"
    options = json.dumps({"n_bytes": 2**19, "repeat": 1})
    run(sample(2, of=4), ["-m", "bench.report.job", "bench.examples.race", options, str(stored)])
    (table,) = examples.table(json.loads(stored.read_text(encoding="utf-8")))
    assert [row[0] for row in table.rows] == list(PAIRS) and set(PAIRS) <= set(SMALL)
