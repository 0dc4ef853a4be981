"""Obligations are easy for Z3 whatever its seed, so that their verdicts do not depend on the machine's load.

Effort is counted in Z3's own steps, not in seconds.
"""

from __future__ import annotations

import pytest
import z3

from proofs.engine.run import theorems
from tests.tiers import sample

STEADY = ("tiles", "factors", "normal_form")
"""Theorems whose obligations take Z3 a moment each."""
SEEDS = sample(1, of=6)
MOST_EFFORT = 500_000


@pytest.mark.parametrize("name", STEADY)
def test_no_obligation_depends_on_luck(name: str) -> None:
    for obligation in theorems()[name].obligations():
        for seed in range(SEEDS):
            context = z3.Context()
            solver = z3.Solver(ctx=context)
            solver.set("random_seed", seed)
            solver.set("rlimit", MOST_EFFORT)
            solver.add(*(fact.translate(context) for fact in obligation.negation))
            assert solver.check() == z3.unsat, (obligation.name, seed)
