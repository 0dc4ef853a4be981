"""The decoder of ``examples/decoder.py`` in PyTorch: all weights on the GPU, or offloaded by accelerate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from examples.decoder import Shape

Tensors = Mapping[str, Any]
PRODUCTS = ("q", "k", "v", "o", "gate", "up", "down")
"""Weights of a layer that something is multiplied by; the others scale norms."""


def decoder_of(shape: Shape, layers: Sequence[Tensors], ends: Tensors) -> Any:
    """A module with these weights, of :meth:`~examples.decoder.Shape.layer`; they are not copied."""
    import torch

    with torch.device("meta"):
        model = _decoder(shape)
    for block, weights in zip(model.blocks, layers, strict=True):
        _fill(block, weights)
    _fill(model, ends)
    return model.eval()


def _fill(module: Any, weights: Tensors) -> None:
    import torch

    for name, weight in weights.items():
        turned = weight.T if weight.ndim == 2 else weight  # a Linear has its outputs first
        getattr(module, name).weight = torch.nn.Parameter(turned, requires_grad=False)


def _decoder(shape: Shape) -> Any:
    import torch
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention, silu

    def linear(sides: tuple[int, ...]) -> Any:
        return nn.Linear(*sides, bias=False, dtype=torch.bfloat16)

    class Norm(nn.Module):  # type: ignore[misc]
        """By the root of the mean square, computed in f32."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(shape.width, dtype=torch.bfloat16))

        def forward(self, x: Any) -> Any:
            y = x.float()
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
            return self.weight * y.to(x.dtype)

    class Block(nn.Module):  # type: ignore[misc]
        """A layer, as libraries of models have it."""

        def __init__(self) -> None:
            super().__init__()
            sides = shape.layer()
            self.before, self.between = Norm(), Norm()
            for name in PRODUCTS:
                setattr(self, name, linear(sides[name]))

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            n, tokens, _ = x.shape
            y = self.before(x)
            q, k, v = (
                one(y).view(n, tokens, -1, shape.head).transpose(1, 2)
                for one in (self.q, self.k, self.v)
            )
            q, k = (one * cos + _partners(one) * sin for one in (q, k))
            seen = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.o(seen.transpose(1, 2).reshape(n, tokens, -1))
            y = self.between(x)
            return x + self.down(silu(self.gate(y)) * self.up(y))

    class Decoder(nn.Module):  # type: ignore[misc]
        """All layers, and the logits of the token behind the last."""

        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(shape.layers))
            self.norm, self.logits = Norm(), linear(shape.ends()["logits"])

        def forward(self, x: Any) -> Any:
            half = shape.head // 2
            rates = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
            angles = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)[:, None] * rates
            angles = torch.cat([angles, angles], dim=1)
            cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
            for block in self.blocks:
                x = block(x, cos, sin)
            return self.logits(self.norm(x[:, -1]))

    return Decoder()


def _partners(x: Any) -> Any:
    import torch

    one, other = x.chunk(2, dim=-1)
    return torch.cat([-other, one], dim=-1)


def offloaded(shape: Shape, layers: Sequence[Tensors], ends: Tensors) -> Any:
    """The module with its weights in pinned memory; accelerate brings those of each part in turn."""
    import torch
    from accelerate import cpu_offload

    def pinned(weights: Tensors) -> Tensors:
        found = {}
        for name, weight in weights.items():
            turned = (weight.T if weight.ndim == 2 else weight).contiguous().cpu().pin_memory()
            found[name] = turned.T if weight.ndim == 2 else turned
        return found

    model = decoder_of(shape, [pinned(one) for one in layers], pinned(ends))
    cpu_offload(model, torch.device("cuda"), state_dict=dict(model.state_dict()))
    return model


def runs(model: Any, x: Any) -> Callable[[], Any]:
    """A call of a module without gradients."""
    import torch

    def run() -> Any:
        with torch.no_grad():
            return model(x)

    return run
