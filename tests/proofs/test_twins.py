"""Whichever counterexample Z3 happens to find, the simulator contradicts the wrong variant."""

from __future__ import annotations

import pytest
import z3

from proofs.engine.run import theorems
from proofs.engine.theorem import Twin

TWINS = {f"{name}: {twin.name}": twin for name, t in theorems().items() for twin in t.twins}
MODELS = 4


@pytest.mark.parametrize("name", TWINS)
def test_other_counterexamples_are_shown_too(name: str) -> None:
    twin: Twin = TWINS[name]
    obligation = twin.obligation()
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.set("random_seed", 1)
    solver.add(*obligation.negation)
    for number in range(MODELS):
        if solver.check() != z3.sat:
            assert number > 0  # all there are have been shown
            return
        model = solver.model()
        found = {x: model.eval(x, model_completion=True) for x in obligation.symbols}
        shown = twin.show({str(x): value.as_long() for x, value in found.items()})
        assert shown.contradicts, shown.text
        assert "redist simulate" in shown.command or "python -m proofs" in shown.command
        solver.add(z3.Or(*(x != value for x, value in found.items())))
