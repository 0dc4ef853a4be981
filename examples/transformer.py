"""Blocks of a language model, forward: ``mpirun -n 4 python examples/transformer.py --layers 8``.

The functions name no layout and no library: ``xp`` is ``redist.pgas`` for global arrays and NumPy for the
check. Tokens are cut by sequences, weights lie as new arrays lie. As a program the whole stack is captured
at its first call.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redist import pgas

Weights = Mapping[str, Any]


def norm(xp: Any, x: Any, gain: Any) -> Any:
    """Divide by the root of the mean square of the last dim."""
    return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * gain


def attention(xp: Any, x: Any, w: Weights) -> Any:
    """Let every token look at all tokens of its sequence, by several heads."""
    q, k, v = (xp.einsum("bsd,dhe->bshe", x, w[name]) for name in "qkv")
    scores = xp.einsum("bshe,bthe->bhst", q, k) * float(q.shape[-1]) ** -0.5
    e = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    seen = xp.einsum("bhst,bthe->bshe", e / xp.sum(e, axis=-1, keepdims=True), v)
    return xp.einsum("bshe,hed->bsd", seen, w["o"])


def gated_mlp(xp: Any, x: Any, w: Weights) -> Any:
    """Two products beside each other, one as the gate (SiLU) of the other, then one back."""
    gate = xp.einsum("bsd,df->bsf", x, w["gate"])
    up = xp.einsum("bsd,df->bsf", x, w["up"])
    return xp.einsum("bsf,fd->bsd", gate / (1.0 + xp.exp(-gate)) * up, w["down"])


def block(xp: Any, x: Any, w: Weights) -> Any:
    """One layer: attention, then the MLP, each added to what it is given."""
    x = x + attention(xp, norm(xp, x, w["before"]), w)
    return x + gated_mlp(xp, norm(xp, x, w["between"]), w)


def stack(xp: Any, x: Any, layers: Sequence[Weights]) -> Any:
    """All layers, one after another."""
    for w in layers:
        x = block(xp, x, w)
    return x


def shapes(width: int, heads: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The weights of a layer."""
    split = (width, heads, width // heads)
    return {
        **dict.fromkeys("qkv", split),
        "o": (heads, width // heads, width),
        **dict.fromkeys(("gate", "up"), (width, hidden)),
        "down": (hidden, width),
        **dict.fromkeys(("before", "between"), (width,)),
    }


def values(
    rng: np.random.Generator, width: int, heads: int, hidden: int, dtype: Any = "f4"
) -> dict[str, NDArray[Any]]:
    """Random weights whose products neither grow nor vanish."""
    found = {}
    for name, shape in shapes(width, heads, hidden).items():
        if len(shape) == 1:
            found[name] = np.ones(shape, dtype)
        else:
            inner = hidden if name == "down" else width
            found[name] = (rng.standard_normal(shape) * inner**-0.5).astype(dtype)
    return found


def main() -> None:
    """Run a stack as a program, and compare with NumPy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--width", type=int, default=64)
    args = parser.parse_args()
    rng = np.random.default_rng(5)
    size = args.width, 4, 2 * args.width
    x = rng.standard_normal((args.sequences, args.tokens, args.width)).astype("f4")
    layers = [values(rng, *size) for _ in range(args.layers)]
    want = stack(np, x, layers)

    tokens = pgas.asarray(x, type="{x}, {}, {}")
    weights = [{name: pgas.asarray(w) for name, w in layer.items()} for layer in layers]
    forward = pgas.program(partial(stack, pgas))
    found = forward(tokens, weights)
    error = float(np.abs(found.gather() - want).max() / np.abs(want).max())
    assert error < 1e-4, error
    if MPI.COMM_WORLD.rank == 0:
        print(f"transformer: {found.type}, {args.layers} layers, error {error:.1e}")


if __name__ == "__main__":
    main()
