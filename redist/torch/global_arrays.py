"""DTensors as global arrays of ``redist.pgas``, and back, in the same memory. This also needs MPI.

PyTorch and MPI may number the same ranks differently, so a mesh of PyTorch's ranks 0 and 1 may be a mesh of
other ranks in MPI. ``pgas.asarray`` lets ranks tell each other their numbers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from redist import pgas
from redist.errors import ConversionError, RedistError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.pgas.global_array import Array
from redist.runtime.cuda.arrays import as_device
from redist.runtime.ranks.agreement import all_agree
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm, comm_or_world
from redist.torch.layouts import mesh_of, mesh_ranks, placements_of, to_torch, type_of
from redist.torch.redistribute import local_of

SHARES = True
"""What ``pgas.asarray`` makes shares the memory."""
_PLAIN = {1: torch.int8, 2: torch.int16}
"""Integers of the size of elements that NumPy does not know."""


def to_global(dtensor: DTensor, comm: Comm | None = None) -> Array:
    """**Local.** A DTensor as a global array, without a copy, in memory or on the ranks' GPUs.

    Write ``a = redist.torch.to_global(weight)``, then for example ``pgas.sum(a, axis=0)``. MPI and PyTorch
    must number the ranks alike, or ``pgas.asarray`` must have been called with a DTensor before. Gradients
    do not flow through the array: it has the values of ``weight.detach()``. Pending sums stay pending. If
    several dims of the mesh cut one dim, PyTorch may cut it differently from redist; an error then says
    where.
    """
    comm = comm_or_world(comm)
    numbers = _known_numbers(comm)
    absent = [rank for rank in mesh_ranks(dtensor.device_mesh) if rank not in numbers]
    if absent:
        raise ConversionError(
            f"cannot share a DTensor on {dtensor.device_mesh}: rank {absent[0]} of PyTorch is not in the "
            f"communicator of {comm.size}; give comm= with all ranks of its mesh"
        )
    t = type_of(dtensor, numbers)
    local: Any = None
    if comm.rank in t.mesh.ranks:
        local = _as_tile(local_of(dtensor.detach()), t)
    device = "cuda" if dtensor.device_mesh.device_type == "cuda" else None
    return pgas.from_local(local, t, comm=comm, device=device)


def _as_tile(tile: torch.Tensor, t: ArrayType) -> Any:
    """**Local.** The memory of a local tensor as NumPy's or CuPy's array."""
    if tile.layout != torch.strided or tile.is_quantized or tile.is_conj() or tile.is_neg():
        raise ConversionError(
            f"cannot share {t} with a global array: its local tensor is sparse, quantized, or still to be "
            "conjugated; x.to_dense() or x.resolve_conj() makes a plain one"
        )
    if tile.device.type not in ("cpu", "cuda"):
        raise ConversionError(
            f"cannot share {t} on {tile.device} with a global array: it must be in memory or on a GPU of "
            "NVIDIA; use dtensor.cpu()"
        )
    if t.dtype.extended_name is not None:
        tile = tile.view(_PLAIN[t.dtype.itemsize])
    plain = tile.numpy() if tile.device.type == "cpu" else as_device(tile)
    return plain.view(t.dtype.to_numpy())


def as_global(
    dtensor: DTensor, *, type: Any, mesh: Any, comm: Comm | None, limit_bytes: Any
) -> Array:
    """**Collective.** The global array that ``pgas.asarray`` makes of a DTensor; all ranks raise errors.

    Ranks tell each other their numbers in PyTorch, which :func:`from_global` then also knows.
    """
    comm, made, error = comm_or_world(comm), None, None
    _NUMBERS[comm.handle] = _numbers(comm)
    try:
        for name, value in (("type", type), ("mesh", mesh), ("limit_bytes", limit_bytes)):
            if value is not None:
                raise ConversionError(
                    f"cannot use {name}= for a DTensor: it stays as its placements say, without a copy; "
                    "use a.to(type) afterwards"
                )
        made = to_global(dtensor, comm)
    except RedistError as problem:
        error = problem
    say = None if made is None else f"{made.type} on {made.mesh}"
    all_agree(comm, "cannot share a DTensor", say, error, TIMEOUT_S)
    assert made is not None
    return made


_NUMBERS: dict[int, tuple[int, ...]] = {}
"""For communicators, by their handles, the rank in PyTorch of each rank."""


def _numbers(comm: Comm) -> tuple[int, ...]:
    """**Collective.** The rank in PyTorch of every rank of a communicator."""
    own = dist.get_rank() if dist.is_initialized() else None
    found = gather(comm, own, TIMEOUT_S)
    if None in found or len(set(found)) < len(found):
        raise ConversionError(
            f"cannot share DTensors: ranks 0 to {comm.size - 1} of MPI are ranks {found} of PyTorch; every "
            "one must call init_process_group() first, with a rank of its own"
        )
    return tuple(found)


def _known_numbers(comm: Comm) -> tuple[int, ...]:
    """**Local.** The rank in PyTorch of every rank, as told before, or if both number them alike."""
    numbers = _NUMBERS.get(comm.handle, ())
    if len(numbers) == comm.size and numbers[comm.rank] == dist.get_rank():
        return numbers
    if dist.get_rank() != comm.rank or dist.get_world_size() != comm.size:
        raise ConversionError(
            f"cannot share memory: this is rank {comm.rank} of {comm.size} for MPI, but "
            f"{dist.get_rank()} of {dist.get_world_size()} for PyTorch; start both with the same ranks, or "
            "let all ranks call pgas.asarray(dtensor) first, which finds out who is who"
        )
    return tuple(range(comm.size))


def from_global(array: Array, device_mesh: DeviceMesh | None = None) -> DTensor:
    """**Local.** A global array as a DTensor on a device mesh like its own, without a copy.

    ``redist.torch.from_global(a, mesh)`` has the placements that ``a.type`` means. If no device mesh is
    given, one like the array's mesh is created and reused later; creating it is **collective** over all
    ranks of PyTorch. It is an error if placements cannot express the type, for example if axes cut a dim in
    another order than the mesh's.
    """
    numbers = _known_numbers(array.comm)
    kind = "cuda" if array.memory.on_device else "cpu"
    if device_mesh is None:
        world = id(dist.group.WORLD)
        device_mesh = _device_mesh(array.type.mesh, numbers, kind, world)
    mesh = mesh_of(device_mesh, numbers)
    if mesh.axes != array.type.mesh.axes or tuple(mesh.ranks) != tuple(array.type.mesh.ranks):
        raise ConversionError(
            f"cannot make a DTensor of {array.type} on mesh {array.type.mesh}: the device mesh is {mesh}; "
            "give one with the same dims, names and ranks"
        )
    if device_mesh.device_type != kind:
        raise ConversionError(
            f"cannot make a DTensor of {array.type} on a device mesh of {device_mesh.device_type}: its "
            f'tiles are on {kind}; use a.to_device("{device_mesh.device_type}") first'
        )
    placements = placements_of(array.type)
    dtype = to_torch(array.type.dtype)
    tile: Any = array.local
    if tile is None:
        local = torch.empty(0, dtype=dtype, device=kind)
    else:
        if array.type.dtype.extended_name is not None:
            tile = tile.view(f"i{array.type.dtype.itemsize}")
        local = torch.from_numpy(tile) if kind == "cpu" else torch.from_dlpack(tile)
        local = local if local.dtype == dtype else local.view(dtype)
    shape = torch.Size(array.type.shape)
    strides = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        local, device_mesh, placements, run_check=False, shape=shape, stride=strides
    )


@lru_cache(maxsize=64)
def _device_mesh(mesh: Mesh, numbers: tuple[int, ...], kind: str, _world: int) -> DeviceMesh:
    """**Collective** over PyTorch's ranks. A device mesh like a mesh of ours."""
    names, sizes = zip(*mesh.axes, strict=True)
    ranks = torch.tensor([numbers[rank] for rank in mesh.ranks]).reshape(sizes)
    return DeviceMesh(kind, ranks, mesh_dim_names=names)
