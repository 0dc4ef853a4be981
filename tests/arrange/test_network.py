"""Elimination, the integer program and looking at every choice agree."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from redist.arrange.solving.conditioning import alike, improve_by_conditioning, tie
from redist.arrange.solving.elimination import Elimination, eliminate
from redist.arrange.solving.linear_program import solve_by_program
from redist.arrange.solving.mini_buckets import solve_in_buckets
from redist.arrange.solving.network import FORBIDDEN, CostNetwork, CostTable, narrow
from redist.errors import RequestError
from tests.arrange.every_choice import try_all
from tests.tiers import sample


def random_network(rng: Random) -> CostNetwork:
    """Few variables, tables of one to three of them, some choices forbidden."""
    sizes = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 8)))
    shared: dict[tuple[int, ...], np.ndarray] = {}
    tables = []
    for _ in range(rng.randint(1, 12)):
        variables = tuple(rng.sample(range(len(sizes)), rng.randint(0, min(3, len(sizes)))))
        shape = tuple(sizes[v] for v in variables)
        if shape not in shared or rng.random() < 0.6:
            high = rng.choice([3, 1000])
            costs = np.array(
                [
                    FORBIDDEN if rng.random() < 0.1 else rng.randrange(high)
                    for _ in range(int(np.prod(shape)))
                ],
                dtype=np.int64,
            )
            shared[shape] = costs.reshape(shape)
        tables.append(CostTable(variables, shared[shape]))
    return CostNetwork(sizes, tuple(tables))


def test_elimination_finds_what_looking_at_all_finds() -> None:
    rng = Random(1)
    for _ in range(sample(150, of=2000)):
        network = random_network(rng)
        want, got = try_all(network), eliminate(network)
        assert got is not None and got.is_exact
        assert got.cost == want.cost == network.cost(got.values)


def test_the_integer_program_finds_it_too() -> None:
    pytest.importorskip("scipy", reason="an extra: arrange")
    rng = Random(2)
    compared = 0
    for _ in range(sample(40, of=500)):
        network = random_network(rng)
        want, got = try_all(network), solve_by_program(network)
        if want.cost >= FORBIDDEN:
            assert got is None
            continue
        assert got is not None and got.is_exact
        assert got.cost == want.cost == network.cost(got.values)
        compared += 1
    assert compared > sample(20, of=250)


@pytest.mark.parametrize("cells", [1, 8, 64, 2**19])
def test_buckets_have_the_best_between_their_bound_and_what_they_find(cells: int) -> None:
    rng = Random(cells)
    n_exact = 0
    for _ in range(sample(60, of=2000)):
        network = random_network(rng)
        want, got = try_all(network), solve_in_buckets(network, cells)
        assert got.bound <= want.cost <= got.cost == network.cost(got.values)
        assert got == solve_in_buckets(network, cells)
        n_exact += got.is_exact
    assert n_exact > 0 and (cells < 2**19 or n_exact == sample(60, of=2000))


def test_the_integer_program_stops_after_some_nodes() -> None:
    pytest.importorskip("scipy", reason="an extra: arrange")
    rng = Random(3)
    for _ in range(sample(20, of=200)):
        network = random_network(rng)
        want, got = try_all(network), solve_by_program(network, n_nodes=1)
        assert got is None or got.bound <= want.cost <= got.cost


def grid(side: int, values: int, rng: np.random.Generator) -> CostNetwork:
    """Variables in a square, each with a table to the next in both directions, of one array each."""
    along, across = (rng.integers(0, 1000, (values, values)) for _ in range(2))
    number = np.arange(side * side).reshape(side, side)
    tables = [CostTable((int(a), int(b)), along) for row in number for a, b in pairwise(row)]
    tables += [CostTable((int(a), int(b)), across) for row in number.T for a, b in pairwise(row)]
    tables += [CostTable((int(v),), rng.integers(0, 500, values)) for v in number.flat]
    return CostNetwork((values,) * number.size, tuple(tables))


def test_conditioning_comes_near_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tables over three variables at most are allowed, and the best needs one over six."""
    monkeypatch.setattr("redist.arrange.solving.conditioning.STEP_CELLS", 4**3)
    for seed in range(sample(1, of=40)):
        network = grid(6, 4, np.random.default_rng(seed))
        best = eliminate(network)
        assert best is not None and eliminate(network, most_cells=4**3) is None
        begin = solve_in_buckets(network, 4**3)
        found = improve_by_conditioning(network, begin.values)
        assert found.cost == network.cost(found.values) <= begin.cost
        assert best.cost <= found.cost <= 1.02 * best.cost
        assert found == improve_by_conditioning(network, begin.values), "ranks must find the same"


def test_conditioning_keeps_to_its_work() -> None:
    network = grid(6, 4, np.random.default_rng(1))
    begin = (0,) * 36
    assert improve_by_conditioning(network, begin, most_work=0).values == begin


def test_conditioning_is_never_worse() -> None:
    rng = Random(5)
    for _ in range(sample(8, of=1000)):
        network = random_network(rng)
        begin = tuple(rng.randrange(n) for n in network.sizes)
        found = improve_by_conditioning(network, begin)
        assert try_all(network).cost <= found.cost <= network.cost(begin)
        kept = [np.flatnonzero([rng.random() < 0.5 or k == own for k in range(n)])
                for n, own in zip(network.sizes, begin, strict=True)]  # fmt: skip
        less = CostNetwork(tuple(map(len, kept)), narrow(network.tables, kept))
        inside = [int(np.searchsorted(some, own)) for some, own in zip(kept, begin, strict=True)]
        assert less.cost(inside) == network.cost(begin)


def test_layers_that_are_alike_have_one_choice() -> None:
    rng = np.random.default_rng(6)
    near, far = (rng.integers(0, 1000, (5, 5)) for _ in range(2))
    tables = [CostTable((k, k + 1), near) for k in range(29)]
    tables += [CostTable((k, k + 2), far) for k in range(28)]
    network = CostNetwork((5,) * 30, tuple(tables))
    classes = alike(network)
    assert len(set(classes)) < 20 and len({*classes[10:20]}) == 1
    tied = tie(network, classes)
    for _ in range(20):
        choice = rng.integers(0, 5, len(tied.sizes)).tolist()
        assert tied.cost(choice) == network.cost([choice[one] for one in classes])


def test_repeated_layers_are_worked_on_once() -> None:
    rng = np.random.default_rng(3)
    inner = rng.integers(0, 1000, (20, 20))
    across = rng.integers(0, 1000, (20, 20))
    tables, layers = [], 40
    for k in range(layers):  # a layer: two ways from one end to the other, side by side
        a, b, c, d = 3 * k, 3 * k + 1, 3 * k + 2, 3 * k + 3
        tables += [CostTable((a, b), inner), CostTable((b, d), across)]
        tables += [CostTable((a, c), across), CostTable((c, d), inner)]
    network = CostNetwork((20,) * (3 * layers + 1), tuple(tables))
    run = Elimination(network)
    found = run.run()
    assert found is not None and found.cost == network.cost(found.values)
    assert run.reused >= 2 * layers - 4
    step = (inner[:, :, None] + across[None]).min(axis=1) + (across[:, :, None] + inner[None]).min(
        axis=1
    )
    least = np.zeros(20, dtype=np.int64)
    for _ in range(layers):
        least = (least[:, None] + step).min(axis=0)
    assert found.cost == least.min()


def test_what_is_too_tangled_is_left_alone() -> None:
    rng = np.random.default_rng(4)
    pairs = [(a, b) for a in range(8) for b in range(a)]
    network = CostNetwork(
        (12,) * 8, tuple(CostTable(pair, rng.integers(0, 9, (12, 12))) for pair in pairs)
    )
    assert eliminate(network, most_cells=10_000) is None
    assert eliminate(network, most_work=10_000) is None


def test_large_tables_are_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    tables = tuple(
        CostTable(pair, rng.integers(0, 10**12, (9, 9))) for pair in ((0, 1), (1, 2), (0, 2))
    )
    network = CostNetwork((9, 9, 9), tables)
    want = try_all(network)
    monkeypatch.setattr("redist.arrange.solving.elimination.BLOCK_CELLS", 100)
    got = eliminate(network)
    assert got is not None and got.cost == want.cost


def test_wrong_tables_are_refused() -> None:
    with pytest.raises(RequestError, match="axes over"):
        CostTable((0, 0), np.zeros((2, 2), dtype=np.int64))
    with pytest.raises(RequestError, match="these have"):
        CostNetwork((3,), (CostTable((0,), np.zeros(2, dtype=np.int64)),))
    with pytest.raises(RequestError, match="below 0"):
        CostNetwork((1,), (CostTable((0,), np.array([-1])),))
