"""Find the process group that joins the ranks of some device meshes, or make it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from redist.errors import RequestError
from redist.torch.layouts import mesh_ranks

_MADE: dict[tuple[Any, tuple[int, ...]], Any] = {}
"""Groups that were made here, by the default group of their time and their ranks."""


def group_of(meshes: Sequence[DeviceMesh]) -> Any:
    """**Collective over the ranks of the meshes**, the first time. The group of all their ranks."""
    ranks = tuple(sorted({rank for mesh in meshes for rank in mesh_ranks(mesh)}))
    everyone = dist.group.WORLD
    if everyone is None:
        raise RequestError(
            "cannot move: torch.distributed is not initialised; call init_process_group first"
        )
    if len(ranks) == dist.get_world_size():
        return everyone
    if dist.get_rank() not in ranks:
        raise RequestError(
            f"cannot move between ranks {list(ranks)} from rank {dist.get_rank()}, which is in neither "
            "mesh; call it on their ranks only"
        )
    for mesh in meshes:
        if mesh.ndim == 1 and mesh_ranks(mesh) == ranks:
            return mesh.get_group()
    found = _MADE.get((everyone, ranks))
    if found is None:
        found = dist.new_group(list(ranks), use_local_synchronization=True)
        _MADE[everyone, ranks] = found
    return found
