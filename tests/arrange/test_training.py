"""Forward and backward calls are planned together: near the best, and deep models as quickly as others."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from examples import transformer
from redist import ArrayType, Mesh, pgas
from redist.arrange import layouts
from redist.arrange.solving.elimination import eliminate
from redist.arrange.solving.network import CostNetwork, Solution
from redist.arrange.solving.tangled import search
from redist.pgas.programs.explain import plan_elsewhere
from tests.problems.smooth_programs import draw_program
from tests.tiers import sample


@pytest.mark.slow("searches networks that elimination can solve: seconds each")
def test_search_comes_near_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of networks of random training programs that elimination can solve: nearly always within 2 %."""
    far: list[float] = []
    networks: list[tuple[CostNetwork, Solution]] = []

    def noted(network: CostNetwork) -> Solution | None:
        found = eliminate(network)
        if found is not None and len(network.sizes) > 10:
            networks.append((network, found))
        return found

    monkeypatch.setattr(layouts, "eliminate", noted)
    mesh = Mesh(x=2, y=2)
    for seed in range(sample(1, of=100)):
        program = draw_program(np.random.default_rng(seed))
        numbers = tuple(range(len(program.arguments)))
        both = pgas.value_and_grad(partial(program, pgas), numbers)
        types = [
            ArrayType.parse(f"f64[{', '.join(map(str, x.shape))}]", mesh) for x in program.arguments
        ]
        plan_elsewhere("program", both, types, mesh)
        for network, best in networks[-1:]:
            found = search(network)
            assert found.bound <= best.cost <= found.cost <= 1.1 * best.cost, seed
            far.append(found.cost / max(1, best.cost))
        networks.clear()
    assert far and sum(one <= 1.02 for one in far) >= 0.95 * len(far), far


def training(n_layers: int) -> tuple[Any, list[tuple[int, ...]]]:
    """The value and the gradients of a language model's layers; shapes of its arguments."""
    shapes = transformer.shapes(512, 8, 1024)

    def loss(weights: Any, x: Any) -> Any:
        layers = [
            dict(zip(shapes, weights[i:], strict=False))
            for i in range(0, len(weights), len(shapes))
        ]
        y = transformer.stack(pgas, x, layers)
        return pgas.sum(y * y)

    def step(x: Any, *weights: Any) -> Any:
        return pgas.value_and_grad(loss)(list(weights), x)

    return step, [(16, 256, 512), *([*shapes.values()] * n_layers)]


@pytest.mark.slow("plans 32 layers: a quarter of a minute each")
@pytest.mark.parametrize("axes", [{"x": 2, "y": 4}, {"x": 8, "y": 8}], ids=["8", "64"])
def test_deep_models_are_planned_quickly(
    axes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice of layouts takes 10 s of one core at most, with a bound: of 8 devices, and of 64."""
    spent = []

    def timed(*args: Any, **options: Any) -> Any:
        start = time.process_time()
        plan = layouts.plan_layouts(*args, **options)
        spent.append((time.process_time() - start, plan))
        return plan

    monkeypatch.setattr("redist.pgas.programs.planning.plan_calls.plan_layouts", timed)
    step, sizes = training(32)
    mesh = Mesh(axes)
    types = [ArrayType.parse(f"f32[{', '.join(map(str, one))}]", mesh) for one in sizes]
    plan_elsewhere("step", step, types, mesh)
    assert spent and all(
        0 < plan.bound_ps <= plan.time_ps <= 1.05 * plan.bound_ps for _, plan in spent
    )
    assert sum(seconds for seconds, _ in spent) <= 10
