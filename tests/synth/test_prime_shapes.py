"""The bound from shapes of prime factors never exceeds what the best plan costs."""

from __future__ import annotations

import pytest

from redist.plan.request import Request
from redist.synth.find import _floor_over_primes, find_plan
from redist.synth.objective_costs import MESSAGE_BITS
from redist.synth.plan_figures import Pricer
from tests.problems.problems import TOPOLOGIES, problems
from tests.tiers import sample

DEVICES = (4, 6, 8, 12, 16)


@pytest.mark.parametrize("network", TOPOLOGIES)
@pytest.mark.parametrize("strategy", ["collectives", "no_permute"])
@pytest.mark.parametrize("objective", ["time", "bytes"])
def test_no_exact_plan_costs_less(objective: str, strategy: str, network: str) -> None:
    topology, near = TOPOLOGIES[network], 0
    for problem in problems(sample(12, of=400), 3, ("even", "uneven"), DEVICES):
        request = Request(
            problem.source,
            problem.target,
            objective=objective,
            strategy=strategy,
            topology=topology,
        )
        plan = find_plan(request)
        if plan.search != "exact" or not plan.steps:
            continue
        pricer = Pricer.of(problem.source, problem.target, topology, None, False)
        floor = _floor_over_primes(request, pricer, problem.source, problem.target, ())
        if objective == "time":
            cost = plan.time_ps + len(plan.steps)
            assert floor <= cost, f"{problem}: {floor} is more than {cost}"
            near += 2 * floor >= cost
        else:
            elems = plan.received_bytes // problem.source.dtype.itemsize
            assert floor >> MESSAGE_BITS <= elems, f"{problem}: more than {elems} elements"
            near += floor > 0
    assert near > 0
