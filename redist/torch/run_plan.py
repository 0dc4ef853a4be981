"""A plan in a form that PyTorch runs: ``plan.to_torch(group)``."""

from __future__ import annotations

from typing import Any

import torch

from redist.errors import RedistError, RequestError
from redist.plan.plan import Plan
from redist.torch.layouts import to_torch
from redist.torch.requests import Request
from redist.torch.transfer import TensorTransfer
from redist.torch.world import check_transport, world_of


class TorchPlan:
    """A plan on the ranks of a process group; call it with this rank's tile. Creating one is **collective**.

    In a job of 4 ranks that ``torchrun`` started::

        plan = redist.synthesize("f32[8{x}, 8]", "f32[8, 8{x}]", mesh=redist.Mesh(x=4))
        move = plan.to_torch()                  # over the default group
        columns = move(torch.zeros(2, 8))       # shape (8, 2)

    Ranks of the plan's meshes are ranks of the group; ranks outside a mesh pass None and get None.
    """

    def __init__(
        self, plan: Plan, group: Any, device: str | None, transport: str, timeout_s: float | None
    ) -> None:
        self.plan = plan
        self._world = world = world_of(group, timeout_s)
        self.device, self.transport = device or world.ranks.device, transport
        ranks = {*plan.source.mesh.ranks, *plan.target.mesh.ranks}
        error: RedistError | None = None
        try:
            check_transport(transport)
        except RedistError as problem:
            error = problem
        if max(ranks) >= world.ranks.size:
            error = RequestError(
                f"cannot run the plan: it names rank {max(ranks)}, but the group has "
                f"{world.ranks.size} ranks; make it for a mesh of these"
            )
        how = f"{describe(plan)} on {self.device}, transport {transport}"
        self._request = Request((), (), how)
        self.transfer: TensorTransfer = world.find(
            self._request, error, self.device, transport, lambda topology, ends: [plan]
        )

    def __call__(self, local: torch.Tensor | None) -> torch.Tensor | None:
        """**Collective.** Move this rank's tile; returns its target tile. ``local`` is not modified."""
        error: RedistError | None = None
        try:
            check_tile(local, self.transfer.shape_of(0, False), self.plan, self.device)
        except RedistError as problem:
            error = problem
        request = None if error is not None else self._request
        transfer = self._world.find(
            request, error, self.device, self.transport, lambda topology, ends: [self.plan]
        )
        return self._world.run(transfer, [local])[0]

    @property
    def received_bytes(self) -> int:
        """**Local.** The number of bytes that this rank receives in a call."""
        return self.transfer.received_bytes


def describe(plan: Plan) -> str:
    """Everything about a plan that ranks must agree on, in one line."""
    steps = ", ".join(f"{step.op} {step.staging_bytes} {step.after}" for step in plan.steps)
    meshes = f"{plan.source.mesh} to {plan.target.mesh}"
    return f"{plan.source} -> {plan.target} ({meshes}; {steps})"


def check_tile(
    local: torch.Tensor | None, shape: tuple[int, ...] | None, plan: Plan, device: str
) -> None:
    """**Local.** Raise unless a tensor is this rank's tile of the plan's source."""
    dtype = to_torch(plan.source.dtype)
    want = "no tile (pass None)" if shape is None else f"{dtype} of shape {list(shape)} on {device}"
    if local is None:
        have, good = "None", shape is None
    else:
        have = f"{local.dtype} of shape {list(local.shape)} on {local.device.type}"
        good = (tuple(local.shape), local.dtype, local.device.type) == (shape, dtype, device)
    if not good:
        raise RequestError(f"cannot move {have}: {plan.source} puts {want} on this rank")
