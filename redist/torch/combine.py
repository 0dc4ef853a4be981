"""Combine partial values in tensors, with the same bits as everywhere else in redist."""

from __future__ import annotations

import math

import numpy as np
import torch

from redist.layout.dtype import DType
from redist.runtime.copies.addresses import Addresses
from redist.runtime.copies.reduce import identity
from redist.runtime.schedule.compiler import Combine
from redist.torch.layouts import to_torch

HALVES = ("f16", "bf16")
"""PyTorch combines these in memory many times faster than NumPy, and rounds them alike."""


def combine_tensors(op: str, a: torch.Tensor, b: torch.Tensor) -> None:
    """``a = a op b``, in place."""
    if op == "sum":
        a.add_(b)
    elif op == "prod" and a.is_complex():
        # Rounded after every operation, as everywhere else: PyTorch may fuse two of them.
        real = a.real * b.real - a.imag * b.imag
        a.imag.copy_(a.real * b.imag + a.imag * b.real)
        a.real.copy_(real)
    elif op == "prod":
        a.mul_(b)
    elif op == "max":
        torch.maximum(a, b, out=a)
    else:
        torch.minimum(a, b, out=a)


def combine_in_memory(combine: Combine, table: Addresses) -> None:
    """Combine what a list of copies brings; ``table`` has the address of every buffer."""
    if combine.dtype.name not in HALVES:
        combine.run(table)
        return
    kind = to_torch(combine.dtype)
    for to, of in combine.moves.views(table, np.dtype(np.int16)):
        a, b = (torch.from_numpy(array).view(kind) for array in (to, of))
        combine_tensors(combine.op, a, b)


def fill_with_identity(tile: torch.Tensor, op: str, dtype: DType) -> None:
    """Write the value that changes nothing under ``op`` everywhere."""
    tile.copy_(_identity(op, dtype))


def _identity(op: str, dtype: DType) -> torch.Tensor:
    """The value that changes nothing under ``op``, as a tensor without dims."""
    kind = to_torch(dtype)
    if dtype.name in HALVES:
        value = {"sum": -0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[op]
        return torch.tensor(value, dtype=kind)
    raw = bytearray(np.asarray(identity(op, dtype)).tobytes())
    return torch.frombuffer(raw, dtype=torch.uint8).view(kind)[0]
