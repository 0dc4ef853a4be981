"""Move PyTorch tensors where they lie: plans over process groups, and DTensors. No MPI needed.

Programs that ``torchrun`` starts on several ranks call :func:`redistribute`; plans run through
:meth:`redist.Plan.to_torch`. Tested with PyTorch 2.13; no other part of redist imports this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redist.text.extras import install_line as _install_line

try:
    import torch  # noqa: F401
except ImportError as _problem:
    raise ImportError(
        f"cannot import redist.torch: PyTorch is not installed; {_install_line('torch')}"
    ) from _problem

from redist.torch.layouts import mesh_of, placements_of, type_of
from redist.torch.recorder import recorded
from redist.torch.redistribute import plan_for, redistribute
from redist.torch.run_plan import TorchPlan

if TYPE_CHECKING:
    from redist.torch.checkpoints import checkpoint_transfer
    from redist.torch.global_arrays import from_global, to_global

__all__ = [
    "TorchPlan",
    "checkpoint_transfer",
    "from_global",
    "mesh_of",
    "placements_of",
    "plan_for",
    "recorded",
    "redistribute",
    "to_global",
    "type_of",
]


def __getattr__(name: str) -> Any:
    """Import names that need MPI, or that are rarely needed, when they are first used."""
    if name == "checkpoint_transfer":
        return getattr(import_module("redist.torch.checkpoints"), name)
    if name in ("from_global", "to_global"):
        return getattr(import_module("redist.torch.global_arrays"), name)
    raise AttributeError(f"module 'redist.torch' has no attribute {name!r}")
