"""The decoder of ``examples/decoder.py`` against JAX: logits and slopes, eagerly, as programs, within limits.

As in ``mpirun -n 2 python -m tests.programs.jax.decoder``. JAX computes on every rank, on its CPU, in f64.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from mpi4py import MPI

from examples import decoder
from redist import pgas
from tests.problems import plain_decoder as plain
from tests.programs.pgas.decoder import NEAR, arguments, far, in_f64
from tests.programs.together import main, run_named

jax.config.update("jax_enable_x64", True)
X: Any = pgas
ROOM = 1.5
"""Limits are so many times the least."""


def values() -> tuple[Any, Any]:
    """Random ones, and JAX's of them."""
    made = plain.given(2 * MPI.COMM_WORLD.size)
    return made, jax.tree.map(jnp.asarray, plain.Given(*in_f64(made)))


def ways(function: Any, given: tuple[Any, ...]) -> dict[str, Any]:
    """What a function gives: eagerly, as a program, and within little memory."""
    options = {"spill": tempfile.gettempdir(), "layouts": "as written"}
    limit = int(ROOM * X.program(limit="1TiB", **options)(function).plan(*given).least_bytes)
    within = X.program(limit=limit, **options)(function)
    told = within.plan(*given)
    if told.peak_bytes > limit or not told.loaded_bytes:
        raise AssertionError(f"nothing is put away: {told}")
    return {
        "eager": function(*given),
        "program": X.program(layouts="as written")(function)(*given),
        "within a limit": within(*given),
    }


def logits() -> str | None:
    """Of the next token behind each sequence."""
    ours, theirs = values()
    _, parts, _, layers, ends, *more = arguments(ours)
    want = jax.jit(partial(plain.first_token, jnp))(theirs)
    for name, found in ways(decoder.first_token, (parts, layers, ends, *more)).items():
        if (error := far(found, want)) > NEAR:
            return f"{name}: logits are {error} off"
    return None


def slopes() -> str | None:
    """The loss and the slopes of all adapters."""
    ours, theirs = values()
    want, slopes = jax.jit(jax.value_and_grad(partial(plain.loss, jnp)))(theirs.adapters, theirs)
    for name, (value, found) in ways(X.value_and_grad(decoder.loss), arguments(ours)).items():
        errors = {"loss": far(value, want)}
        for n, (mine, other) in enumerate(zip(found, slopes, strict=True)):
            errors |= {f"{one} of layer {n}": far(mine[one], other[one]) for one in other}
        worst = max(errors, key=lambda one: errors[one])
        if errors[worst] > NEAR or len(errors) != 1 + plain.SHAPE.layers * 4:
            return f"{name}: {worst} is {errors[worst]} off"
    return None


CHECKS = ("logits", "slopes")


def program() -> int:
    """0 if every check holds."""
    return run_named({name: globals()[name] for name in CHECKS})


if __name__ == "__main__":
    main(program)
