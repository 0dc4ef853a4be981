"""JAX arrays as global arrays of ``redist.pgas``, and back, in the same memory. This also needs MPI."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from redist import pgas
from redist.errors import ConversionError
from redist.jax.types import type_of
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.specs_and_placements import to_partition_spec
from redist.pgas.global_array import Array
from redist.runtime.ranks.world import Comm, comm_or_world


def to_global(x: Any, comm: Comm | None = None) -> Array:
    """**Local.** A jax.Array in memory as a global array, without a copy; do not write to the result.

    Write ``a = redist.jax.to_global(x)``, then for example ``pgas.sum(a, axis=0)``, in a job with one
    process per device that MPI and JAX number alike (``jax.distributed.initialize``).
    """
    comm = comm_or_world(comm)
    t = type_of(x)
    ranks = _ranks(comm, x.sharding.mesh)
    t = ArrayType(Mesh(t.mesh.axes, ranks=ranks), t.dtype, t.shape, t.dims)
    local: Any = None
    for shard in x.addressable_shards:
        if shard.device.platform != "cpu":
            raise ConversionError(
                f"cannot share {t} on {shard.device.platform} with a global array: it must be in memory"
            )
        tile = (
            np.from_dlpack(shard.data) if t.dtype.extended_name is None else np.asarray(shard.data)
        )
        local = tile.view(t.dtype.to_numpy())
    return pgas.from_local(local, t, comm=comm)


def from_global(array: Array, mesh: Any) -> Any:
    """**Local.** A global array as a jax.Array on a mesh like its own, without a copy if JAX allows it.

    JAX uses memory that begins at a multiple of 64 bytes as it is, and copies other memory.
    """
    t = array.type
    axes = tuple(zip(mesh.axis_names, mesh.devices.shape, strict=True))
    ranks = _ranks(array.comm, mesh)
    if axes != t.mesh.axes or ranks != t.mesh.rank_array().tolist():
        raise ConversionError(
            f"cannot make a jax.Array of {t} on mesh {t.mesh}: the mesh of JAX is "
            f"{Mesh(axes, ranks=ranks)}; give one with the same axes and ranks"
        )
    if not t.is_even:
        raise ConversionError(f"cannot make a jax.Array of {t}: it has tiles of one size only")
    sharding = NamedSharding(mesh, PartitionSpec(*to_partition_spec(t)))
    tiles = []
    if array.tile is not None:
        tile = np.asarray(array.tile)
        if t.dtype.extended_name is not None:
            import ml_dtypes

            tile = tile.view(getattr(ml_dtypes, t.dtype.extended_name))
        tiles.append(jax.device_put(tile, jax.local_devices()[0], may_alias=True))
    return jax.make_array_from_single_device_arrays(t.shape, sharding, tiles)


def _ranks(comm: Comm, mesh: Any) -> list[int]:
    """The rank of every device: the process that has it."""
    if jax.process_index() != comm.rank or jax.process_count() != comm.size:
        raise ConversionError(
            f"cannot share memory: this is rank {comm.rank} of {comm.size} for MPI, but process "
            f"{jax.process_index()} of {jax.process_count()} for JAX; start both with the same ranks"
        )
    ranks = [device.process_index for device in mesh.devices.flat]
    if len(set(ranks)) < len(ranks):
        raise ConversionError(
            "cannot share memory: a process has several devices of the mesh; a rank holds one tile"
        )
    return ranks
