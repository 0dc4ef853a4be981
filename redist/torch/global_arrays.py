"""DTensors as global arrays of ``redist.pgas``, and back, in the same memory. This needs MPI as well."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from redist import pgas
from redist.errors import ConversionError
from redist.pgas.global_array import Array
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.torch.layouts import mesh_of, mesh_ranks, placements_of, to_torch, type_of

_PLAIN = {1: torch.int8, 2: torch.int16}
"""Integers of the size of elements that NumPy does not know."""


def to_global(dtensor: DTensor, comm: Comm | None = None) -> Array:
    """**Local.** A DTensor in memory as a global array, without a copy.

    ``a = redist.torch.to_global(weight)`` and then ``pgas.sum(a, axis=0)``, on ranks that MPI and PyTorch
    number alike. An error says where tiles differ: PyTorch may cut a dim that several dims of the mesh
    share otherwise than redist does.
    """
    comm = comm_or_world(comm)
    _check_ranks(comm)
    t = type_of(dtensor)
    if dtensor.device_mesh.device_type != "cpu":
        raise ConversionError(
            f"cannot share {t} on {dtensor.device_mesh.device_type} with a global array: "
            "it must be in memory; use dtensor.cpu()"
        )
    local: Any = None
    if comm.rank in mesh_ranks(dtensor.device_mesh):
        tile = dtensor.detach()._local_tensor
        if t.dtype.extended_name is not None:
            tile = tile.view(_PLAIN[t.dtype.itemsize])
        local = tile.numpy().view(t.dtype.to_numpy())
    return pgas.from_local(local, t, comm=comm)


def from_global(array: Array, device_mesh: DeviceMesh) -> DTensor:
    """**Local.** A global array as a DTensor on a device mesh like its own, without a copy.

    ``redist.torch.from_global(a, mesh)`` has the placements that ``a.type`` means. An error says what
    placements cannot say, such as a dim that is cut by its axes in another order than the mesh's.
    """
    _check_ranks(array.comm)
    mesh = mesh_of(device_mesh)
    if mesh.axes != array.type.mesh.axes or tuple(mesh.ranks) != tuple(array.type.mesh.ranks):
        raise ConversionError(
            f"cannot make a DTensor of {array.type} on mesh {array.type.mesh}: the device mesh is {mesh}; "
            "give one with the same dims, names and ranks"
        )
    placements = placements_of(array.type)
    kind = to_torch(array.type.dtype)
    tile: Any = array.tile
    if tile is None:
        local = torch.empty(0, dtype=kind)
    elif array.type.dtype.extended_name is not None:
        local = torch.from_numpy(tile.view(f"i{array.type.dtype.itemsize}")).view(kind)
    else:
        local = torch.from_numpy(tile)
    shape = torch.Size(array.type.shape)
    strides = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        local, device_mesh, placements, run_check=False, shape=shape, stride=strides
    )


def _check_ranks(comm: Comm) -> None:
    if dist.get_rank() != comm.rank or dist.get_world_size() != comm.size:
        raise ConversionError(
            f"cannot share memory: this is rank {comm.rank} of {comm.size} for MPI, but "
            f"{dist.get_rank()} of {dist.get_world_size()} for PyTorch; start both with the same ranks"
        )
