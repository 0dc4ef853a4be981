"""The decoder of ``examples/decoder.py`` against NumPy: logits, the loss, and the slopes of adapters.

As in ``mpirun -n 2 python -m tests.programs.pgas.decoder``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from examples import decoder
from redist import pgas
from tests.problems import plain_decoder as plain
from tests.programs.together import main, run_named

X: Any = pgas
NEAR = 2e-5
"""Of values in f32, beside the largest."""


def there(tree: Any, cut: str = "") -> Any:
    """Arrays of NumPy as global ones, whole on every rank or cut along their first dim."""
    if isinstance(tree, dict):
        return {name: there(one, cut) for name, one in tree.items()}
    if isinstance(tree, list):
        return [there(one, cut) for one in tree]
    return X.asarray(tree, type=", ".join(["{" + cut + "}", *["{}"] * (tree.ndim - 1)]))


def arguments(values: plain.Given) -> tuple[Any, ...]:
    """Of the loss: sequences cut over ranks."""
    parts, wanted = there(values.parts, "x"), there(values.wanted, "x")
    layers, ends, adapters = map(there, (values.layers, values.ends, values.adapters))
    turn = decoder.positions(plain.SHAPE, plain.TOKENS, parts[0])
    return adapters, parts, wanted, layers, ends, turn, plain.SHAPE, plain.ATTEND


def in_f64(tree: Any) -> Any:
    """The same values, for an oracle that does not round."""
    if isinstance(tree, dict):
        return {name: in_f64(one) for name, one in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [in_f64(one) for one in tree]
    return tree.astype(np.float64)


def far(ours: Any, want: Any) -> float:
    """The largest difference beside the largest value."""
    got, want = np.asarray(ours.gather()), np.asarray(want)
    return float(np.abs(got - want).max() / np.abs(want).max())


def logits() -> str | None:
    """Of the next token behind each sequence."""
    values = plain.given(2 * MPI.COMM_WORLD.size)
    _, parts, _, layers, ends, *more = arguments(values)
    want = plain.first_token(np, plain.Given(*in_f64(values)))
    error = far(decoder.first_token(parts, layers, ends, *more), want)
    return None if error < NEAR else f"logits are {error} off"


def slopes() -> str | None:
    """The loss, and along a random direction of each adapter what differences of it say."""
    values = plain.given(2 * MPI.COMM_WORLD.size)
    value, found = X.value_and_grad(decoder.loss)(*arguments(values))
    exact = plain.Given(*in_f64(values))
    error = far(value, plain.loss(np, exact.adapters, exact))
    if error > NEAR:
        return f"the loss is {error} off"
    rng = np.random.default_rng(13)
    for n, weights in enumerate(found):
        for name, slope in weights.items():
            along = rng.standard_normal(slope.shape)
            sides = []
            for step in (1e-5, -1e-5):
                moved = [dict(one) for one in exact.adapters]
                moved[n][name] = moved[n][name] + step * along
                sides.append(plain.loss(np, moved, exact))
            want = (sides[0] - sides[1]) / 2e-5
            got = float((slope.gather() * along).sum())
            most = float(np.linalg.norm(slope.gather()))
            if abs(got - want) > 1e-4 * most:
                return f"{name} of layer {n}: {got} along a direction, not {want}"
    return None


CHECKS = ("logits", "slopes")


def program() -> int:
    """0 if every check holds."""
    return run_named({name: globals()[name] for name in CHECKS})


if __name__ == "__main__":
    main(program)
