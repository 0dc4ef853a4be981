"""Limits on what is live at once: against looking at every choice, on networks and on programs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from redist import Mesh
from redist.arrange.judge_layouts import judge_layouts
from redist.arrange.layout_plan import LayoutPlan
from redist.arrange.layouts import plan_layouts
from redist.arrange.solving import linear_program
from redist.arrange.solving.memory_limit import Mixer, fit_memory, least_peak
from redist.arrange.solving.network import (
    FORBIDDEN,
    PRICE_UNIT,
    CostNetwork,
    CostTable,
    LiveRows,
    LiveTable,
    PricedBytes,
)
from redist.errors import CheckError, NoPlanError, RequestError
from redist.layout.axes import whole
from redist.plan.rates import DeviceCosts
from tests.arrange.every_choice import try_all
from tests.arrange.test_layouts import STEPS, random_graph
from tests.arrange.test_network import random_network
from tests.tiers import sample


def random_rows(rng: Random, network: CostNetwork) -> LiveRows:
    """Bytes of one or two variables over some times."""
    n_rows, tables = rng.randint(1, 4), []
    pairs = [t.variables for t in network.tables if len(t.variables) == 2]
    for _ in range(rng.randint(1, 8)):
        variables: tuple[int, ...] = (rng.randrange(len(network.sizes)),)
        if pairs and rng.random() < 0.4:
            variables = rng.choice(pairs)
        shape = tuple(network.sizes[v] for v in variables)
        n_bytes = np.array([rng.randrange(20) * 4 for _ in range(int(np.prod(shape)))])
        first = rng.randrange(n_rows)
        table = CostTable(variables, n_bytes.reshape(shape).astype(np.int64))
        tables.append(LiveTable(table, first, rng.randint(first, n_rows - 1)))
    return LiveRows(n_rows, tuple(tables))


def every_choice(network: CostNetwork, rows: LiveRows) -> list[tuple[int, int]]:
    """Cost and peak of all choices that are not forbidden."""
    every = itertools.product(*(range(n) for n in network.sizes))
    pairs = [(network.cost(values), rows.peak(values)) for values in every]
    return [pair for pair in pairs if pair[0] < FORBIDDEN]


def cases(n: int) -> list[tuple[CostNetwork, LiveRows, list[tuple[int, int]]]]:
    """Networks with bytes, and all that can be chosen in them."""
    rng, found = Random(7), list[tuple[CostNetwork, LiveRows, list[tuple[int, int]]]]()
    while len(found) < n:
        network = random_network(rng)
        if np.prod(network.sizes) > 1000:
            continue
        rows = random_rows(rng, network)
        every = every_choice(network, rows)
        if every:
            found.append((network, rows, every))
    return found


def test_the_best_within_a_limit_is_found() -> None:
    pytest.importorskip("scipy", reason="an extra: arrange")
    limited = 0
    for network, rows, every in cases(sample(5, of=400)):
        free = try_all(network)
        for limit in sorted({peak for _, peak in every})[:6]:
            want = min(cost for cost, peak in every if peak <= limit)
            found = fit_memory(network, rows, limit, free, exact=True)
            assert network.cost(found.values) == found.cost == want
            assert rows.peak(found.values) <= limit and found.bound <= want
            limited += want > free.cost
    assert limited > 3


def test_prices_alone_keep_the_limit_and_never_claim_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear_program._Program, "run", lambda *_: None)  # as without SciPy
    exact = near = 0
    for network, rows, every in cases(sample(5, of=400)):
        free = try_all(network)
        for limit in sorted({peak for _, peak in every})[:6]:
            want = min(cost for cost, peak in every if peak <= limit)
            try:
                found = fit_memory(network, rows, limit, free, exact=True)
            except NoPlanError as error:
                assert error.least_bytes > limit and "found" in str(error)
                continue
            assert rows.peak(found.values) <= limit and network.cost(found.values) == found.cost
            assert found.bound <= want <= found.cost
            exact += found.is_exact
            near += found.cost == want
    assert near >= exact > 3


def test_a_limit_that_fits_and_one_byte_less() -> None:
    pytest.importorskip("scipy", reason="an extra: arrange")
    for network, rows, every in cases(sample(5, of=400)):
        least = min(peak for _, peak in every)
        found = least_peak(network, rows)
        assert found.is_exact and found.cost == rows.peak(found.values) == least
        free = try_all(network)
        assert rows.peak(fit_memory(network, rows, least, free).values) == least
        if least:
            with pytest.raises(NoPlanError, match=f"least that fits is .*{least} bytes") as caught:
                fit_memory(network, rows, least - 1, free, exact=True)
            assert caught.value.least_bytes == least


DEVICE = DeviceCosts(2000, 10)


def planned(rng: Random, mesh: Mesh, limit: int | None = None, exact: bool = False) -> LayoutPlan:
    graph, parts = random_graph(rng), [whole(mesh, name) for name, _ in mesh.axes]
    return plan_layouts(graph, mesh, parts, STEPS, DEVICE, limit_bytes=limit, exact_memory=exact)


def test_programs_within_a_limit() -> None:
    pytest.importorskip("scipy", reason="an extra: arrange")
    mesh, limited = Mesh(x=4), 0
    for seed in (7, 9, *range(sample(2, of=100))):
        free = planned(Random(seed), mesh)
        judge_layouts(free, DEVICE)
        with pytest.raises(NoPlanError, match="cannot plan within 0 B") as caught:
            planned(Random(seed), mesh, 0, exact=True)
        least = caught.value.least_bytes
        tight = planned(Random(seed), mesh, least, exact=True)
        assert tight.peak_bytes == least and tight.time_ps >= free.time_ps
        with pytest.raises(NoPlanError, match=f"least that fits is .*{least} bytes"):
            planned(Random(seed), mesh, least - 1, exact=True)
        half = planned(Random(seed), mesh, (least + free.peak_bytes) // 2)
        best = planned(Random(seed), mesh, (least + free.peak_bytes) // 2, exact=True)
        assert free.time_ps <= half.bound_ps <= best.time_ps <= half.time_ps
        assert best.time_ps <= tight.time_ps
        for plan in (half, best, tight):
            judge_layouts(plan, DEVICE)
            assert plan.peak_bytes <= free.peak_bytes
        limited += tight.time_ps > free.time_ps
        with pytest.raises(CheckError, match="bytes at once"):
            judge_layouts(replace(free, peak_bytes=free.peak_bytes - 1), DEVICE)
    assert limited


def test_mixtures_are_counted_right() -> None:
    rng, found = Random(8), 0
    for network, rows, every in cases(sample(20, of=400)):
        mixer = Mixer.of(network, rows)
        a, b = (tuple(rng.randrange(n) for n in network.sizes) for _ in range(2))
        limit = max(peak for _, peak in every) * 3 // 4
        mixed = mixer.best(limit, a, b)
        if mixed is None:
            continue
        cost, values = mixed
        assert cost == network.cost(values) < FORBIDDEN and rows.peak(values) <= limit
        assert all(
            value in pair for value, pair in zip(values, zip(a, b, strict=True), strict=True)
        )
        found += 1
    assert found > 2


def test_bytes_have_prices() -> None:
    network = CostNetwork((2,), (CostTable((0,), np.array([5, FORBIDDEN])),))
    table = CostTable((0,), np.array([3, 2**35]))
    priced = PricedBytes(network, LiveRows(2, (LiveTable(table, 0, 1),)))
    assert priced.at([PRICE_UNIT, 2 * PRICE_UNIT]).cost((0,)) == 5 + 9
    assert priced.at([0, 0]).tables == network.tables
    assert priced.bytes_alone([0, 1]).cost((0,)) == 3
    assert priced.bytes_alone([0, 1]).cost((1,)) == FORBIDDEN
    dear = priced.at([0, 2**60]).tables[-1].costs
    assert 0 < dear[0] <= 3 * 2**40 < dear[1] < FORBIDDEN
    with pytest.raises(RequestError, match="cannot keep bytes"):
        LiveRows(1, (LiveTable(table, 0, 1),))
