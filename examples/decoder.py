"""A decoder of a language model, in any memory: the logits of the next token, and adapters that are trained.

``python examples/decoder.py --layers 4`` runs both within a fraction of what they hold, and compares. The
functions say nothing of memory: that is what ``@pgas.program(limit=, spill=)`` is for.

Every layer has grouped queries with rotary positions, a gated MLP (SiLU), and norms by the root of the mean
square. Weights are bf16, norms and positions are computed in f32. Sequences come in parts, one after another
under the weights of each layer: a part is what is computed at a time. ``attend`` is a function of queries,
keys and values: :func:`attention`, or one that lets another library work on the tiles.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import pgas

X: Any = pgas
Weights = dict[str, Any]
Attend = Callable[[Any, Any, Any], Any]
"""Of queries ``[sequences, tokens, heads, width]``, keys and values of fewer heads; as the queries are."""
RANK = 16
"""Columns of an adapter."""
ADAPTED = ("q", "v")
ROWS = 256
"""So many queries look at their keys at a time."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder; those of 7 billion weights, if nothing else is said."""

    layers: int = 32
    width: int = 4096
    hidden: int = 11008
    heads: int = 32
    groups: int = 8
    """Heads of keys and values."""
    vocabulary: int = 32000

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.width // self.heads

    def layer(self) -> dict[str, tuple[int, ...]]:
        """The weights of a layer."""
        few = self.groups * self.head
        return {
            "before": (self.width,), "q": (self.width, self.width), "k": (self.width, few),
            "v": (self.width, few), "o": (self.width, self.width), "between": (self.width,),
            "gate": (self.width, self.hidden), "up": (self.width, self.hidden),
            "down": (self.hidden, self.width),
        }  # fmt: skip

    def ends(self) -> dict[str, tuple[int, ...]]:
        """The weights behind the layers."""
        return {"norm": (self.width,), "logits": (self.width, self.vocabulary)}

    def adapters(self) -> dict[str, tuple[int, ...]]:
        """The adapters of a layer: what is added to a weight is a product of two narrow matrices."""
        sides = self.layer()
        found: dict[str, tuple[int, ...]] = {}
        for name in ADAPTED:
            found[f"{name}_down"], found[f"{name}_up"] = (
                (sides[name][0], RANK),
                (RANK, sides[name][1]),
            )
        return found


# The layers


def norm(x: Any, gain: Any) -> Any:
    """Divide by the root of the mean square of the last dim."""
    y = X.astype(x, "f4")
    y = y / X.sqrt(X.mean(y * y, axis=-1, keepdims=True) + 1e-5)
    return X.astype(y, x.dtype) * gain


def positions(shape: Shape, tokens: int, like: Any) -> tuple[Any, Any, Any]:
    """What turns pairs of elements of a head by an angle that grows with the position.

    Cosines and sines ``[tokens, 1, head]``, and the matrix that puts each element in the place of its
    partner: a product by it is exact.
    """
    half = shape.head // 2
    angles = np.outer(np.arange(tokens), 10000.0 ** (-np.arange(half) / half))
    angles = np.concatenate([angles, angles], axis=1)[:, None, :]
    swap = np.zeros((shape.head, shape.head), np.float32)
    swap[np.arange(half) + half, np.arange(half)] = -1
    swap[np.arange(half), np.arange(half) + half] = 1
    cos, sin = (X.asarray(f(angles).astype("f4"), device=like.device) for f in (np.cos, np.sin))
    return cos, sin, X.asarray(swap, device=like.device).astype(like.dtype)


def turned(x: Any, turn: tuple[Any, Any, Any]) -> Any:
    """Queries or keys, turned by their positions."""
    cos, sin, swap = turn
    return X.astype(x * cos + (x @ swap) * sin, x.dtype)


def attention(q: Any, k: Any, v: Any, rows: int = ROWS) -> Any:
    """Let every token look at those before it, some queries at a time; several heads share keys."""
    n, tokens, heads, width = q.shape
    groups = k.shape[2]
    q = q.reshape(n, tokens, groups, heads // groups, width)
    found = []
    for first in range(0, tokens, rows):
        end = min(first + rows, tokens)
        scores = X.einsum("bsgrd,btgd->bgsrt", q[:, first:end], k[:, :end])
        seen = X.arange(end, device=q.device) <= X.arange(first, end, device=q.device)[:, None]
        z = (
            X.astype(scores, "f4") * width**-0.5
            + X.where(seen, np.float32(0), np.float32(-np.inf))[:, None]
        )
        e = X.exp(z - X.max(z, axis=-1, keepdims=True))
        p = X.astype(e / X.sum(e, axis=-1, keepdims=True), q.dtype)
        found.append(X.einsum("bgsrt,btgd->bsgrd", p, v[:, :end]))
    return X.concat(found, axis=1).reshape(n, tokens, heads, width)


def by_torch(q: Any, k: Any, v: Any, learns: bool = False) -> Any:
    """The same by PyTorch on the tiles, which it takes over without a copy; if it learns, backwards too."""
    lines = q.shape[0] * q.shape[1] * q.shape[2]  # PyTorch keeps a number for each
    room = 4 * lines * (1 + 4 * q.shape[3]) if learns else 4 * lines
    gradient = _slopes_by_torch if learns else None
    return X.map_tiles(_seen_by_torch, q, k, v, whole=(1, 3), room=room, gradient=gradient)


def _seen_by_torch(q: Any, k: Any, v: Any) -> Any:
    with _stream_of(q):
        return _attended(*map(_tensor, (q, k, v))).detach()


def _slopes_by_torch(g: Any, q: Any, k: Any, v: Any) -> Any:
    import torch

    with _stream_of(q), torch.enable_grad():
        given = [_tensor(one).requires_grad_() for one in (q, k, v)]
        return torch.autograd.grad(_attended(*given), given, _tensor(g))


def _attended(q: Any, k: Any, v: Any) -> Any:
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


def _tensor(tile: Any) -> Any:
    import torch

    return torch.from_dlpack(tile)


def _stream_of(tile: Any) -> Any:
    """Let PyTorch work on the stream where CuPy does: both begin on the same."""
    if isinstance(tile, np.ndarray):
        return nullcontext()
    import cupy
    import torch

    at = cupy.cuda.get_current_stream().ptr
    return torch.cuda.stream(torch.cuda.ExternalStream(at)) if at else nullcontext()


def layer(
    x: Any, w: Weights, turn: Any, shape: Shape, attend: Attend, more: Weights | None = None
) -> Any:
    """One layer: attention, then the MLP, each added to what it is given; ``more`` are its adapters."""
    n, tokens, _ = x.shape

    def heads(name: str, count: int) -> Any:
        y = y0 = normed @ w[name]
        if more and name in ADAPTED:
            y = y0 + (normed @ more[f"{name}_down"]) @ more[f"{name}_up"]
        return y.reshape(n, tokens, count, shape.head)

    normed = norm(x, w["before"])
    q, k = turned(heads("q", shape.heads), turn), turned(heads("k", shape.groups), turn)
    seen = attend(q, k, heads("v", shape.groups)).reshape(n, tokens, shape.width)
    x = x + seen @ w["o"]
    normed = norm(x, w["between"])
    gate = normed @ w["gate"]
    return x + (gate / (1 + X.exp(-gate)) * (normed @ w["up"])) @ w["down"]


# What is done with them


def first_token(
    parts: Sequence[Any], layers: Sequence[Weights], ends: Weights, turn: Any, shape: Shape,
    attend: Attend,
) -> Any:  # fmt: skip
    """The logits behind every sequence, from its embedded tokens ``[sequences, tokens, width]``."""
    for w in layers:
        parts = [layer(x, w, turn, shape, attend) for x in parts]
    last = X.concat([x[:, -1] for x in parts], axis=0)
    return norm(last, ends["norm"]) @ ends["logits"]


def loss(
    adapters: Sequence[Weights], parts: Sequence[Any], wanted: Sequence[Any], layers: Sequence[Weights],
    ends: Weights, turn: Any, shape: Shape, attend: Attend,
) -> Any:  # fmt: skip
    """The mean cross entropy of the next tokens, to be differentiated by the adapters.

    ``wanted`` are the columns of the last weight for the next tokens, ``[sequences, tokens, width]``. What is
    inside a layer is computed again on the way back.
    """
    for w, more in zip(layers, adapters, strict=True):
        again = X.checkpoint(partial(layer, w=w, turn=turn, shape=shape, attend=attend, more=more))
        parts = [again(x) for x in parts]
    last = X.checkpoint(partial(lost, ends=ends))
    tokens = sum(x.shape[0] * x.shape[1] for x in parts)
    return sum(last(x, want) for x, want in zip(parts, wanted, strict=True)) / tokens


def lost(x: Any, want: Any, ends: Weights) -> Any:
    """The cross entropy of the tokens of a part."""
    normed = norm(x, ends["norm"])
    scores = X.astype(normed @ ends["logits"], "f4")
    top = X.stop_gradient(X.max(scores, axis=-1, keepdims=True))  # its own gradient would be 0
    total = X.log(X.sum(X.exp(scores - top), axis=-1, keepdims=True)) + top
    return X.sum(total) - X.sum(X.astype(normed, "f4") * want)


# Values, and a run of both within less memory


def values(shape: Shape, seed: int = 5) -> tuple[list[Weights], Weights, list[Weights]]:
    """Random weights whose products neither grow nor vanish: of layers, behind them, and adapters; f32."""
    rng = np.random.default_rng(seed)

    def made(sides: dict[str, tuple[int, ...]]) -> Weights:
        found = {}
        for name, one in sides.items():
            scale = 1.0 if len(one) == 1 else one[0] ** -0.5
            found[name] = (rng.standard_normal(one) * scale).astype("f4")
        return found

    layers = [made(shape.layer()) for _ in range(shape.layers)]
    return layers, made(shape.ends()), [made(shape.adapters()) for _ in range(shape.layers)]


def main() -> None:
    """Run both as programs within a fraction of what they hold, and compare with the functions alone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--share", type=float, default=0.35, help="of the memory that they hold")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    shape = Shape(args.layers, args.width, 3 * args.width, 8, 2, 4 * args.width)

    def there(x: Any, cut: str = "") -> Any:
        sides = ["{" + cut + "}", *["{}"] * (x.ndim - 1)]
        return X.asarray(x.astype("f4"), type=", ".join(sides), device=args.device)

    layers, (ends,), adapters = (
        [{name: there(one) for name, one in weights.items()} for weights in groups]
        for groups in (lambda made: (made[0], [made[1]], made[2]))(values(shape))
    )
    rng = np.random.default_rng(7)
    sides = (2, args.tokens, args.width)
    parts = [there(rng.standard_normal(sides), "x") for _ in range(2)]
    wanted = [there(rng.standard_normal(sides) * 0.1, "x") for _ in range(2)]
    turn = positions(shape, args.tokens, parts[0])
    runs: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "first token": (first_token, (parts, layers, ends)),
        "adapters": (X.value_and_grad(loss), (adapters, parts, wanted, layers, ends)),
    }
    for name, (function, given) in runs.items():
        given = (*given, turn, shape, attention)
        want = function(*given)
        spill = tempfile.gettempdir() if args.device == "cpu" else "host"
        whole = _program("1TiB", spill)(function).plan(*given).unlimited_bytes
        found = _program(int(args.share * whole), spill)(function)(*given)
        pairs = zip(_arrays(found), _arrays(want), strict=True)
        errors = [float(X.max(X.abs(a - b)) / X.max(X.abs(b))) for a, b in pairs]
        assert max(errors) < 1e-4, errors
        if MPI.COMM_WORLD.rank == 0:
            held = f"within {args.share:.0%} of {whole / 2**20:.1f} MiB"
            print(f"decoder, {name}: {held}, error {max(errors):.1e}")


def _program(limit: int | str, spill: str) -> Any:
    """Every rank keeps its own sequences, and all weights: nothing is gained by other layouts."""
    return X.program(limit=limit, spill=spill, layouts="as written")


def _arrays(found: Any) -> list[Any]:
    """Logits, or the value and the gradients of :func:`loss`."""
    if not isinstance(found, tuple):
        return [found]
    value, slopes = found
    return [value, *(one for group in slopes for one in group.values())]


if __name__ == "__main__":
    main()
