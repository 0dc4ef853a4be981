"""Operands: what a call takes and where its result goes."""

from __future__ import annotations

import numpy as np
import pytest

import redist
from redist.plan.topology import FLAT
from redist.runtime.operands import Operands
from redist.runtime.route import Route


@pytest.mark.parametrize("donate", [False, True])
def test_a_donated_array_whose_type_does_not_change_stays(donate: bool) -> None:
    """Its plan has room for one tile, so the result is the source itself."""
    mesh = redist.Mesh(x=2)
    plan = redist.synthesize("f64[8{x}]", "f64[8{x}]", mesh=mesh, donate=donate)
    assert plan.peak_bytes == (1 if donate else 2) * 4 * 8
    local = np.arange(4.0)
    operands = Operands(Route.of((plan,), 0, FLAT), ("",), False)
    sources, (target,) = operands.taken(local, None)
    assert target is not None
    assert sources[0] is local
    assert np.shares_memory(target, local) == donate
