"""Move PyTorch's tensors where they are: plans over process groups, and DTensors. No MPI needed.

Programs of several ranks, as ``torchrun`` starts them, call :func:`redistribute`; plans run by
:meth:`redist.Plan.to_torch`. Needs PyTorch 2.13, which nothing else in redist imports.
"""

from redist.torch.layouts import mesh_of, placements_of, type_of
from redist.torch.redistribute import redistribute
from redist.torch.run_plan import TorchPlan

__all__ = ["TorchPlan", "mesh_of", "placements_of", "redistribute", "type_of"]
