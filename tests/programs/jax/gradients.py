"""What JAX says of gradients: ``python -m tests.programs.jax.gradients FILE --n 500``, without MPI.

The gradients of the random functions that ``tests.programs.pgas.gradients`` draws, by number; the losses of
the examples that train; the bytes of a step on 4 devices. MPI jobs of any size compare with the file.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from examples import train_gpt, train_mlp
from redist.lower.hlo import received_bytes
from tests.problems.smooth_programs import SmoothProgram, draw_program, slope_along
from tests.programs.pgas.training import (
    PLACED,
    RATE,
    STEPS,
    Placed,
    step_loss,
    step_values,
)

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)  # compiling takes longest
Arrays = dict[str, Any]


def gradients_of(number: int) -> list[Any]:
    """Of a random function, for each of its arguments."""
    program = draw_program(np.random.default_rng(number))
    given = [jnp.asarray(x) for x in program.arguments]
    numbers = tuple(range(len(given)))
    slopes = jax.grad(lambda *args: program(jnp, *args), numbers)
    try:
        found = [np.asarray(g) for g in jax.jit(slopes)(*given)]
    except jax.errors.JaxRuntimeError:  # XLA refuses layouts of some Fourier transforms
        found = []
    if not found or _is_miscompiled(program, found):
        found = [np.asarray(g) for g in slopes(*given)]
    return found


def _is_miscompiled(program: SmoothProgram, found: list[Any]) -> bool:
    """Whether gradients are far from NumPy's differences: XLA compiles one of 500 wrongly (318, 0.10.2)."""
    rng = np.random.default_rng(0)
    ways = [rng.standard_normal(x.shape) for x in program.arguments]
    with np.errstate(all="ignore"):
        want, doubt = slope_along(lambda *args: program(np, *args), program.arguments, ways)
    slope = sum(float(np.vdot(g, way).real) for g, way in zip(found, ways, strict=True))
    return bool(abs(slope - want) > 1e-4 * max(1.0, abs(want)) + 10 * doubt)


def mlp() -> list[float]:
    """The losses of the MLP: the function of ``examples/train_mlp.py``, written for JAX."""
    x, y, *weights = map(jnp.asarray, train_mlp.values(64, (8, 16, 16, 3), "f8"))

    def loss(weights: Any) -> Any:
        rows = x
        for w in weights[:-1]:
            rows = jnp.tanh(rows @ w)
        return jnp.sum((rows @ weights[-1] - y) ** 2) / x.shape[0]

    step, losses = jax.jit(jax.value_and_grad(loss)), []
    for _ in range(STEPS):
        value, slopes = step(weights)
        weights = [w - RATE * g for w, g in zip(weights, slopes, strict=True)]
        losses.append(float(value))
    return losses


def normed(x: Any, gain: Any) -> Any:
    """Layer norm."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * gain


@jax.jit
@jax.value_and_grad
def gpt_step(p: Arrays, given: Any, wanted: Any) -> Any:
    """The loss of the model of ``examples/train_gpt.py``: the same network in JAX's own words."""
    n, heads = train_gpt.LENGTH, train_gpt.HEADS
    x = given @ p["embed"] + p["place"]
    for layer in (f"layers.{i}" for i in range(train_gpt.LAYERS)):
        w = p[f"{layer}.qkv"]
        rows = normed(x, p[f"{layer}.norm1"])
        q, k, v = (
            jnp.einsum("btc,hcd->bhtd", rows, w[i * heads : (i + 1) * heads]) for i in range(3)
        )
        scores = jnp.einsum("bhtd,bhud->bhtu", q, k) / train_gpt.HEAD**0.5
        scores = jnp.where(np.tri(n, dtype=bool), scores, -1e9)
        seen = jnp.einsum("bhtu,bhud->bhtd", jax.nn.softmax(scores), v)
        x = x + jnp.einsum("bhtd,hdc->btc", seen, p[f"{layer}.out"])
        hidden = jnp.maximum(normed(x, p[f"{layer}.norm2"]) @ p[f"{layer}.up"], 0.0)
        x = x + hidden @ p[f"{layer}.down"]
    scores = (x @ p["head"])[..., : train_gpt.VOCAB]
    right = (jax.nn.log_softmax(scores) * wanted[..., : train_gpt.VOCAB]).sum(axis=-1)
    return -right.mean()


def gpt() -> list[float]:
    """The losses of the GPT, by the same optimizer."""
    start = train_gpt.Model(train_gpt.stage_meshes(1, 1, 1, 1)).start()["model"]
    p: Any = {name: jnp.asarray(x.gather()) for name, x in start.items()}
    mean = {name: jnp.zeros_like(x) for name, x in p.items()}
    square = dict(mean)
    losses = []
    for step in range(1, STEPS + 1):
        value, g = gpt_step(p, *train_gpt.tokens_of(step))
        losses.append(float(value))
        for name in p:
            mean[name] = 0.9 * mean[name] + 0.1 * g[name]
            square[name] = 0.99 * square[name] + 0.01 * g[name] ** 2
            root = jnp.sqrt(square[name] / (1 - 0.99**step)) + 1e-8
            p[name] = p[name] - train_gpt.RATE * mean[name] / (1 - 0.9**step) / root
    return losses


def step_bytes(placed: Placed) -> int:
    """What all devices receive in a step of the language model that XLA has compiled, with all it can do."""
    mesh = Mesh(np.array(jax.devices()).reshape([*placed.axes.values()]), (*placed.axes,))
    x, layers = step_values()

    def lies(axes: str) -> NamedSharding:
        return NamedSharding(mesh, P(*(None if one == "-" else one for one in axes.split())))

    weights = [{name: lies(placed.weights.get(name, "")) for name in one} for one in layers]

    def step(layers: Any, x: Any) -> Any:
        value, slopes = jax.value_and_grad(lambda w: step_loss(jnp, w, x))(layers)
        return value, jax.tree.map(lambda w, g: w - RATE * g, layers, slopes)

    ends = {"in_shardings": (weights, lies(placed.tokens)), "out_shardings": (lies(""), weights)}
    compiled = jax.jit(step, **ends).lower(layers, x).compile()
    return received_bytes(compiled.as_text(), 4)[0]


def main() -> None:
    """Ask JAX for all, and write it down."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--n", type=int, default=20)
    args = parser.parse_args()
    said: dict[str, Any] = {"mlp": np.array(mlp()), "gpt": np.array(gpt())}
    jax.config.update("jax_disable_most_optimizations", False)
    for name, placed in PLACED.items():
        said[f"bytes of {name}"] = step_bytes(placed)
    jax.config.update("jax_disable_most_optimizations", True)
    for number in range(args.n):
        for k, g in enumerate(gradients_of(number)):
            said[f"{number}.{k}"] = g
    np.savez(args.file, **said)


if __name__ == "__main__":
    main()
