"""Oracle = checker = simulator on random problems; `python -m tests.problems.soak` does thousands."""

from __future__ import annotations

import pytest

from redist.plan.request import Request
from redist.synth.find import find_plan
from tests.problems.problems import problems
from tests.problems.soak import disagreements
from tests.tiers import sample


@pytest.mark.parametrize("objective", ["time", "bytes"])
@pytest.mark.parametrize("strategy", ["auto", "collectives"])
def test_oracle_checker_and_simulator_agree(objective, strategy):
    for number, problem in enumerate(problems(sample(13, of=60), seed=51)):
        plan = find_plan(
            Request(problem.source, problem.target, objective=objective, strategy=strategy)
        )
        assert disagreements(problem, plan, number) == [], str(problem)
