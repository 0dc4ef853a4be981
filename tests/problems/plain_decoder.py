"""The decoder of ``examples/decoder.py`` once more, head by head, for NumPy and JAX: an oracle."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from examples import decoder

SHAPE = decoder.Shape(layers=2, width=64, hidden=256, heads=4, groups=2, vocabulary=24)
TOKENS = 6
ATTEND = partial(decoder.attention, rows=4)
"""Some tokens in two parts, so that the second looks at keys of the first."""


class Given(NamedTuple):
    """Random values in NumPy, as :func:`examples.decoder.loss` takes them."""

    adapters: Any
    parts: Any
    wanted: Any
    layers: Any
    ends: Any


def given(sequences: int) -> Given:
    """Weights of :data:`SHAPE` and two parts of so many sequences."""
    layers, ends, adapters = decoder.values(SHAPE)
    rng = np.random.default_rng(11)
    sides = (sequences, TOKENS, SHAPE.width)
    parts = [rng.standard_normal(sides).astype("f4") for _ in range(2)]
    wanted = [rng.standard_normal(sides).astype("f4") for _ in range(2)]
    return Given(adapters, parts, wanted, layers, ends)


def first_token(xp: Any, values: Given) -> Any:
    """The logits behind every sequence."""
    found = [_through(xp, x, values, False)[:, -1] for x in values.parts]
    return _norm(xp, xp.concatenate(found), values.ends["norm"]) @ values.ends["logits"]


def loss(xp: Any, adapters: Any, values: Given) -> Any:
    """The mean cross entropy of all tokens."""
    total, tokens = 0.0, 0
    for x, want in zip(values.parts, values.wanted, strict=True):
        normed = _norm(
            xp, _through(xp, x, values._replace(adapters=adapters), True), values.ends["norm"]
        )
        total = total + xp.sum(xp.log(xp.sum(xp.exp(normed @ values.ends["logits"]), axis=-1)))
        total = total - xp.sum(normed * want)
        tokens += x.shape[0] * x.shape[1]
    return total / tokens


def _through(xp: Any, x: Any, values: Given, adapted: bool) -> Any:
    for w, more in zip(values.layers, values.adapters, strict=True):
        w = dict(w)
        for name in decoder.ADAPTED if adapted else ():
            w[name] = w[name] + more[f"{name}_down"] @ more[f"{name}_up"]
        x = xp.stack([_layer(xp, one, w) for one in x])
    return x


def _layer(xp: Any, x: Any, w: Any) -> Any:
    """One layer of one sequence ``[tokens, width]``."""
    each, head = SHAPE.heads // SHAPE.groups, SHAPE.head
    normed = _norm(xp, x, w["before"])
    seen = []
    for h in range(SHAPE.heads):
        own, shared = (slice(n * head, (n + 1) * head) for n in (h, h // each))
        q, k = (_turned(xp, normed @ w[name][:, of]) for name, of in (("q", own), ("k", shared)))
        scores = xp.where(xp.tri(len(x), dtype=bool), q @ k.T / head**0.5, -np.inf)
        weights = xp.exp(scores - scores.max(axis=1, keepdims=True))
        weights = weights / weights.sum(axis=1, keepdims=True)
        seen.append(weights @ (normed @ w["v"][:, shared]))
    x = x + xp.concatenate(seen, axis=1) @ w["o"]
    normed = _norm(xp, x, w["between"])
    gate = normed @ w["gate"]
    return x + (gate / (1 + xp.exp(-gate)) * (normed @ w["up"])) @ w["down"]


def _turned(xp: Any, x: Any) -> Any:
    """Both halves of a head as one complex number, turned by its position."""
    half = x.shape[1] // 2
    angles = np.outer(np.arange(x.shape[0]), 10000.0 ** (-np.arange(half) / half))
    z = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    return xp.concatenate([z.real, z.imag], axis=1)


def _norm(xp: Any, x: Any, gain: Any) -> Any:
    return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * gain
