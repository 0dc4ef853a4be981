"""Gradients of random functions against those of JAX, on every layout: ``--n 100 --seed 0``.

As in ``mpirun -n 3 python -m tests.programs.jax.gradients --n 40``. JAX computes on every rank, on its CPU.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

from examples import transformer
from redist import pgas
from tests.problems.smooth_programs import draw_program
from tests.programs.pgas.drawing import Draw
from tests.programs.pgas.rounds import Check, names_of, run_checks
from tests.programs.together import main

jax.config.update("jax_enable_x64", True)
xp: Any = pgas
NEAR = 1e-12
"""Error relative to the largest element of a gradient, or to 1."""


def far(ours: Any, theirs: Any) -> float:
    """How far gradients are from each other."""
    want = np.asarray(theirs)
    most = max(1.0, float(np.abs(want).max(initial=0)))
    return float(np.abs(ours.gather() - want).max(initial=0)) / most


def random_functions(draw: Draw) -> str | None:
    """Eager, of every layout."""
    program = draw_program(draw.rng)
    mesh = draw.mesh()
    arrays = [draw.array(x, mesh) for x in program.arguments]
    numbers = tuple(range(len(arrays)))
    slopes = xp.grad(lambda *given: program(xp, *given), numbers)(*arrays)
    wanted = jax.grad(lambda *given: program(jnp, *given), numbers)(
        *map(jnp.asarray, program.arguments)
    )
    for g, want, x in zip(slopes, wanted, arrays, strict=True):
        if far(g, want) > NEAR:
            return f"{program} of {x.type}: {g.gather()}, not {want}: {far(g, want)}"
    return None


def trained(
    library: Any, loss: Any, weights: Any, steps: int, rate: float, value_and_grad: Any
) -> list[float]:
    """The values of a few steps down the gradient."""
    both, values = value_and_grad(loss), []
    for _ in range(steps):
        value, slopes = both(weights)
        values.append(float(value))
        weights = jax.tree.map(lambda w, g: w - rate * g, weights, slopes)
    return values


def mlp(draw: Draw) -> str | None:
    """An MLP is trained with JAX's losses."""
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((64, 8)), rng.standard_normal((64, 3))
    weights = [rng.standard_normal(pair) * 0.3 for pair in ((8, 16), (16, 16), (16, 3))]

    def loss(xp: Any, rows: Any, wanted: Any, weights: Any) -> Any:
        for w in weights[:-1]:
            rows = xp.tanh(rows @ w)
        return xp.mean((rows @ weights[-1] - wanted) ** 2)

    ours = [xp.asarray(one, type="{x}, {}") for one in (x, y)]
    got = trained(
        xp,
        lambda w: loss(xp, ours[0], ours[1], w),
        [*map(xp.asarray, weights)],
        30,
        0.2,
        xp.value_and_grad,
    )
    want = trained(
        jnp, lambda w: loss(jnp, x, y, w), [*map(jnp.asarray, weights)], 30, 0.2, jax.value_and_grad
    )
    return (
        None
        if np.allclose(got, want, rtol=1e-10) and got[-1] < 0.8 * got[0]
        else f"{got}, not {want}"
    )


def gpt(draw: Draw) -> str | None:
    """A small language model, embeddings and loss by tokens, is trained with JAX's losses in f32."""
    rng = np.random.default_rng(5)
    vocabulary, width, length = 17, 16, 6
    tokens = rng.integers(0, vocabulary, (4, length + 1))
    weights: dict[str, Any] = {
        "embed": rng.standard_normal((vocabulary, width)).astype("f4"),
        "place": rng.standard_normal((length, width)).astype("f4") * np.float32(0.1),
        "layers": [transformer.values(rng, width, 2, 24) for _ in range(2)],
    }

    def loss(xp: Any, inputs: Any, wanted: Any, w: Any) -> Any:
        rows = xp.take(w["embed"], xp.reshape(inputs, (-1,)), axis=0)
        x = xp.reshape(rows, (*inputs.shape, width)) + w["place"]
        x = transformer.stack(xp, x, w["layers"])
        scores = xp.einsum("bsd,vd->bsv", x, w["embed"]) * 0.1
        scores = scores - xp.max(scores, axis=-1, keepdims=True)
        log = xp.log(xp.sum(xp.exp(scores), axis=-1))
        right = xp.take_along_axis(scores, wanted[..., None], axis=-1)
        return xp.mean(log - xp.squeeze(right, axis=-1))

    inputs, wanted = tokens[:, :-1], tokens[:, 1:]
    ours = [xp.asarray(one, type="{x}, {}") for one in (inputs, wanted)]
    held = jax.tree.map(xp.asarray, weights)
    both = xp.program(lambda w: xp.value_and_grad(lambda w: loss(xp, ours[0], ours[1], w))(w))
    got = trained(xp, None, held, 12, 0.3, lambda _: both)
    want = trained(
        jnp, lambda w: loss(jnp, inputs, wanted, w), jax.tree.map(jnp.asarray, weights), 12, 0.3,
        jax.value_and_grad,
    )  # fmt: skip
    return (
        None
        if np.allclose(got, want, rtol=1e-5) and got[-1] < 0.8 * got[0]
        else f"{got}, not {want}"
    )


OFTEN: list[Check] = [random_functions]
ONCE: list[Check] = [mlp, gpt]
CHECKS = names_of([*OFTEN, *ONCE])


def program() -> int:
    """Random functions, then training."""
    return run_checks(OFTEN, ONCE, n=20)


if __name__ == "__main__":
    main(program)
