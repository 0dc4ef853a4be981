"""Examples are trained with JAX's losses, and a step of a language model receives no more than JAX's.

As in ``mpirun -n 4 python -m tests.programs.pgas.training --beside FILE``; JAX has written the file before
(``tests.programs.jax.gradients``). Without it, losses must go down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import redist
from examples import train_gpt, train_mlp, transformer
from redist import ArrayType, Mesh
from tests.programs.pgas.drawing import Draw, Values, xp
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.together import main

STEPS, RATE = 12, 0.1
LIKE_JAX = 1e-5
"""Relative error of losses against JAX."""


def trained(draw: Draw) -> dict[str, list[float]]:
    """The losses of both examples that train, over a few steps."""
    x, y, *given = train_mlp.values(64, (8, 16, 16, 3), "f8")
    rows = [xp.asarray(one, type="{x}, {}") for one in (x, y)]
    weights: Any = [xp.asarray(w) for w in given]

    @xp.program
    def step(*arrays: Any) -> Any:
        value, slopes = xp.value_and_grad(train_mlp.loss, range(2, len(arrays)))(*arrays)
        return value, [w - RATE * g for w, g in zip(arrays[2:], slopes, strict=True)]

    losses: dict[str, list[float]] = {"mlp": [], "gpt": []}
    for _ in range(STEPS):
        value, weights = step(*rows, *weights)
        losses["mlp"].append(float(value))
    dp, tp, stages = {1: (1, 1, 1), 2: (2, 1, 1), 3: (1, 2, 2), 4: (2, 2, 1)}[draw.comm.size]
    model = train_gpt.Model(train_gpt.stage_meshes(draw.comm.size, dp, tp, stages))
    state = model.start()
    for number in range(1, STEPS + 1):
        loss, g = train_gpt.gradients(model, state["model"], number)
        state = train_gpt.adam(state, g, number)
        losses["gpt"].append(loss)
    return losses


def trained_as_by_jax(draw: Draw) -> str | None:
    """Losses go down, and are those of JAX."""
    if draw.comm.size > 4:
        return None
    for name, got in trained(draw).items():
        if got[-1] > 0.97 * got[0]:
            return f"{name}: {got}"
        if draw.beside and not np.allclose(got, draw.beside[name], rtol=LIKE_JAX, atol=0):
            return f"{name}: {got}, not {draw.beside[name].tolist()}"
    return None


# A step of a language model receives no more than JAX's, from the same placements to the same placements.


@dataclass(frozen=True, slots=True)
class Placed:
    """A mesh of 4 ranks, and where tokens and weights lie: axes of their dims, separated by blanks."""

    axes: dict[str, int]
    tokens: str
    weights: dict[str, str]


SIZE, TOKENS, N_LAYERS = (64, 4, 128), (8, 32, 64), 2
NAMES = tuple(transformer.shapes(*SIZE))
HEADS = {**dict.fromkeys("qkv", "- y -"), "o": "y - -", "gate": "- y", "up": "- y", "down": "y -"}
ROWS = {name: "x" + " -" * (len(shape) - 1) for name, shape in transformer.shapes(*SIZE).items()}
PLACED = {
    "data": Placed({"x": 4}, "x - -", {}),
    "sharded data": Placed({"x": 4}, "x - -", ROWS),
    "data and heads": Placed({"x": 2, "y": 2}, "x - -", HEADS),
}
"""Weights that are not named lie whole everywhere."""


def step_values() -> tuple[Values, list[dict[str, Values]]]:
    """Tokens, and the weights of all layers."""
    rng = np.random.default_rng(8)
    layers = [transformer.values(rng, *SIZE) for _ in range(N_LAYERS)]
    return rng.standard_normal(TOKENS).astype("f4"), layers


def step_loss(xp: Any, layers: Any, x: Any) -> Any:
    """A number that all weights change."""
    y = transformer.stack(xp, x, layers)
    return xp.sum(y * y) / y.size


def step_bytes(placed: Placed) -> int:
    """**Collective.** What all ranks receive in a step, as the transport counts it."""
    mesh = Mesh(placed.axes)
    x, layers = step_values()

    def lies(values: Values, axes: str) -> Any:
        cuts = [
            f"{n}" + ("" if one == "-" else f"{{{one}}}")
            for n, one in zip(values.shape, axes.split(), strict=True)
        ]
        return xp.asarray(values, type=ArrayType.parse(f"f32[{', '.join(cuts)}]", mesh))

    def whole(w: Values) -> str:
        return " ".join("-" * w.ndim)

    held = [{n: lies(w, placed.weights.get(n, whole(w))) for n, w in one.items()} for one in layers]
    tokens = lies(x, placed.tokens)

    @xp.program
    def step(layers: Any, x: Any) -> Any:
        value, slopes = xp.value_and_grad(lambda layers: step_loss(xp, layers, x))(layers)
        new = [
            {n: (w - RATE * g[n]).to(w.type) for n, w in one.items()}
            for one, g in zip(layers, slopes, strict=True)
        ]
        return value, new

    received = 0
    for _ in range(3):  # the last as all that follow
        with redist.trace() as t:
            value, held = step(held, tokens)
            float(value)
        received = tokens.comm.allreduce(t.received_bytes)
    return received


def steps_receive_no_more_than_jax(draw: Draw) -> str | None:
    """On 4 ranks, if JAX has been asked."""
    if draw.comm.size != 4:
        return None
    for name, placed in PLACED.items():
        ours = step_bytes(placed)
        if draw.comm.rank == 0:
            print(f"{name}: {ours} bytes received", end="")
            print(
                f", {int(draw.beside[f'bytes of {name}'])} by JAX" if draw.beside else "",
                flush=True,
            )
        if draw.beside and ours > draw.beside[f"bytes of {name}"]:
            return f"{name}: {ours} bytes, more than {draw.beside[f'bytes of {name}']}"
    return None


ONCE: list[Check] = [trained_as_by_jax, steps_receive_no_more_than_jax]
CHECKS = names_of(ONCE)


def program() -> int:
    """Losses, then bytes."""
    return run_checks([], ONCE, n=0)


if __name__ == "__main__":
    main(program)
