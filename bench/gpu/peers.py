"""JAX and PyTorch on the same copies of one GPU, and what they cannot express there."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

from bench.gpu.cases import CopyCase

CANNOT = {
    "JAX": "a process of JAX takes a GPU for itself: on one GPU there is one device, so that "
    "jit(out_shardings=...) has nothing to redistribute; only the copies are compared",
    "PyTorch": "DTensor redistributes over NCCL, which refuses two ranks on one GPU; only the "
    "copies are compared",
}
"""Why whole redistributions of several ranks on one GPU are not compared."""

Copy = tuple[Callable[[], Any], Callable[[], object]]
"""What starts a copy and gives its result, and what waits for all that were started."""


def missing(name: str) -> str | None:
    """Why a library is not compared here; None if it is."""
    module = {"JAX": "jax", "PyTorch": "torch"}[name]
    if importlib.util.find_spec(module) is None:
        return "not installed"
    try:
        return None if _READY[name]() else "sees no GPU"
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"


def torch_copy(case: CopyCase, source: Any, target: Any) -> Copy:
    """Torch's copy of a permuted view into memory that is there."""
    import torch

    of, to = (torch.from_dlpack(array) for array in (source, target))
    if case.unpacks:
        there, here = to.view(case.shape), of.view(case.packed_shape).permute(case.back)
    else:
        there, here = to.view(case.packed_shape), of.view(case.shape).permute(case.order)
    return lambda: there.copy_(here), torch.cuda.synchronize


def jax_copy(case: CopyCase, source: Any, target: Any) -> Copy:
    """JAX's compiled transpose; its result is a new array, as always."""
    import jax

    shape, order = case.shape, case.order
    if case.unpacks:
        shape, order = case.packed_shape, case.back
    move = jax.jit(lambda x: x.reshape(shape).transpose(order))
    held = jax.dlpack.from_dlpack(source)
    last: list[Any] = [None]

    def start() -> Any:
        last[0] = move(held)
        return last[0]

    return start, lambda: last[0].block_until_ready()


def _torch_ready() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _jax_ready() -> bool:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    return any(device.platform in ("gpu", "cuda") for device in jax.devices())


_READY: dict[str, Callable[[], bool]] = {"JAX": _jax_ready, "PyTorch": _torch_ready}
PEERS: dict[str, Callable[[CopyCase, Any, Any], Copy]] = {"JAX": jax_copy, "PyTorch": torch_copy}
