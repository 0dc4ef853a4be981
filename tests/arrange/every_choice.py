"""The best choice of a network by brute force."""

from __future__ import annotations

import math

import numpy as np

from redist.arrange.solving.network import FORBIDDEN, CostNetwork, Solution, added


def try_all(network: CostNetwork) -> Solution:
    """The best choice by looking at every one."""
    variables = tuple(range(len(network.sizes)))
    assert math.prod(network.sizes) <= 2**22
    total = added(network.tables, variables, network.sizes)
    best = int(np.argmin(total))
    values = tuple(int(i) for i in np.unravel_index(best, total.shape)) if variables else ()
    cost = min(int(total.flat[best]), FORBIDDEN)
    return Solution(values, cost, cost)
