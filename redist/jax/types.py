"""Array types of jax.Arrays and shardings, and shardings of types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from redist.errors import ConversionError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, refined_parts
from redist.layout.dtype import DType
from redist.layout.interop import from_partition_spec
from redist.layout.mesh import Mesh


def type_of(x: Any, sharding: Any = None) -> ArrayType:
    """The type of a jax.Array, or of one like it under another sharding.

    Devices are the ranks of the mesh: number ``k`` is the device with that id.
    """
    if sharding is None and isinstance(x, jax.core.Tracer):
        raise ConversionError(
            "cannot see how an array is sharded inside jit or grad; give its sharding as `source`, "
            "or plan outside and call plan.to_jax(mesh)"
        )
    found = x.sharding if sharding is None else sharding
    if not isinstance(found, NamedSharding):
        raise ConversionError(
            f"cannot take the type of an array with a {type(found).__name__}: "
            "redist plans between NamedShardings; name the axes of a jax.sharding.Mesh"
        )
    ids = [device.id for device in found.mesh.devices.flat]
    mesh = Mesh(zip(found.mesh.axis_names, found.mesh.devices.shape, strict=True), ranks=ids)
    dtype = DType.parse(str(np.dtype(x.dtype)))
    return from_partition_spec(found.spec, mesh, dtype, x.shape)


def refined_mesh(devices: Any, mesh: Mesh, atoms: Sequence[SubAxis]) -> jax.sharding.Mesh:
    """The same devices with an axis for every atom."""
    names = [name_of(mesh, atom) for atom in atoms]
    shape = [atom.size for atom in atoms]
    return jax.sharding.Mesh(np.reshape(devices, shape), tuple(names))


def name_of(mesh: Mesh, atom: SubAxis) -> str:
    """What an atom is called in JAX: ``x``, or ``x:(2)4`` where it is a part of an axis."""
    return atom.text(mesh)


def spec_of(t: ArrayType, atoms: Sequence[SubAxis]) -> PartitionSpec:
    """The partition spec of a type over a refined mesh."""
    return PartitionSpec(
        *(
            tuple(name_of(t.mesh, a) for part in dim for a in atoms if a.inside(part))
            for dim in t.dims
        )
    )


def sharding_of(t: ArrayType, devices: Any = None) -> NamedSharding:
    """The sharding of a type over devices with the ids that are its ranks, or over those given.

    Where the type cuts by parts of axes, so does the mesh of the sharding.
    """
    if t.pending_op is not None:
        raise ConversionError(
            f"cannot make a sharding of {t}: jax.Arrays hold no pending {t.pending_op}; resolve it"
        )
    if devices is None:
        by_id = {device.id: device for device in jax.devices()}
        missing = [rank for rank in t.mesh.rank_array().tolist() if rank not in by_id]
        if missing:
            raise ConversionError(
                f"cannot make a sharding of {t}: JAX has no device {missing[0]}; "
                f"it has {len(by_id)}"
            )
        devices = [by_id[rank] for rank in t.mesh.rank_array().tolist()]
    atoms = refined_parts(t.mesh, t.used)
    return NamedSharding(refined_mesh(devices, t.mesh, atoms), spec_of(t, atoms))


def on_one_axis(t: ArrayType) -> ArrayType:
    """The same layout over a mesh of one axis, whose parts are the axes of the other.

    >>> print(on_one_axis(ArrayType.parse("f32[8{y}, 8{x}]", Mesh(x=2, y=4))))
    f32[8{devices:(2)4}, 8{devices:(1)2}]
    """
    before: dict[str, int] = {}
    n = 1
    for name, size in t.mesh.axes:
        before[name] = n
        n *= size
    mesh = Mesh({"devices": n}, ranks=t.mesh.ranks)
    dims = [
        [SubAxis("devices", before[part.name] * part.pre, part.size) for part in dim]
        for dim in t.dims
    ]
    return ArrayType.of(mesh, t.dtype, t.shape, dims)
