"""The array types of jax.Arrays and shardings, and the shardings of types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redist.errors import ConversionError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, refined_parts
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.specs_and_placements import from_partition_spec
from redist.text.columns import one_line
from redist.text.units import ceil_div


def type_of(x: Any, sharding: Any = None) -> ArrayType:
    """The type of a jax.Array, or of one like it under another sharding.

    The devices are the ranks of the mesh: rank ``k`` is the device with id ``k``.
    """
    found = sharding_like(x, sharding, sharding_from(x) if sharding is None else None)
    return type_under(found, tuple(x.shape), x.dtype)


def sharding_from(x: Any, source: Any = None) -> Any:
    """The sharding of an array; a traced array cannot tell, so ``source`` gives it."""
    is_traced = isinstance(x, jax.core.Tracer)
    if isinstance(x, jax.Array) and not is_traced:
        return x.sharding
    if isinstance(source, PartitionSpec):
        raise ConversionError(
            f"cannot use {source} as source: it names no mesh; give NamedSharding(mesh, {source})"
        )
    if source is not None:
        return source
    if is_traced:
        raise ConversionError(
            "cannot see how an array is sharded inside jit or grad; give its sharding as `source`, "
            "or plan outside and call plan.to_jax(mesh)"
        )
    if isinstance(x, jax.ShapeDtypeStruct):
        if x.sharding is None:
            raise ConversionError(
                "cannot take the sharding of a jax.ShapeDtypeStruct that has none; give "
                "jax.ShapeDtypeStruct(shape, dtype, sharding=its_sharding)"
            )
        return x.sharding
    raise ConversionError(
        f"cannot take the sharding of a {type(x).__name__}: it is not a jax.Array; "
        "put it on devices first with jax.device_put(x, sharding)"
    )


def sharding_like(x: Any, sharding: Any, own: Any = None) -> NamedSharding:
    """The NamedSharding that is meant: a ``P(...)`` is over the mesh of the array's ``own`` sharding."""
    found = own if sharding is None else sharding
    if isinstance(found, PartitionSpec):
        own = sharding_from(x) if own is None else own
        if not isinstance(own, NamedSharding):
            raise ConversionError(
                f"cannot tell the mesh of {found}: the array has a {type(own).__name__}, which names "
                f"no mesh; give NamedSharding(mesh, {found})"
            )
        try:
            _check_axes(found, own.mesh)
            found = NamedSharding(own.mesh, found)
        except ValueError as problem:
            raise ConversionError(
                f"cannot use {found}: JAX says: {one_line(problem)}; give a NamedSharding"
            ) from problem
    if not isinstance(found, NamedSharding):
        raise ConversionError(
            f"cannot take the type of an array with a {type(found).__name__}: "
            "redist plans between NamedShardings; name the axes of a jax.sharding.Mesh"
        )
    return found


def _check_axes(spec: PartitionSpec, mesh: Any) -> None:
    """Refuse a spec that names an axis twice, or one that the mesh does not have."""
    entries = [(entry,) if isinstance(entry, str) else entry for entry in spec]
    times = Counter(name for entry in entries if isinstance(entry, tuple) for name in entry)
    axes = ", ".join(mesh.axis_names)
    for name, n in times.items():
        if name not in mesh.axis_names:
            raise ConversionError(
                f"cannot use {spec}: the array's mesh has the axes {axes}, and no {name!r}; "
                "name one of these, or give a NamedSharding over another mesh"
            )
        if n > 1:
            raise ConversionError(
                f"cannot use {spec}: it names axis {name!r} {n} times, and an axis cuts one dim, once; "
                f"write None in the other places, or another axis of {axes}"
            )


@lru_cache(maxsize=2**12)
def type_under(sharding: NamedSharding, shape: tuple[int, ...], dtype: Any) -> ArrayType:
    """The type of an array under a sharding; refused if its tiles would not all be the same size."""
    if not has_plans(dtype):
        raise ConversionError(
            f"cannot plan for an array of dtype {dtype}: plans move elements of whole bytes; "
            "redist.jax.redistribute uses jax.device_put there"
        )
    return _checked_type(sharding, shape, DType.parse(str(dtype)), str(dtype))


def check_cut(sharding: NamedSharding, shape: tuple[int, ...], dtype: Any) -> None:
    """Refuse a sharding under which the tiles would not all be the same size, whatever the dtype."""
    if has_plans(dtype):
        type_under(sharding, shape, dtype)
    else:
        _checked_type(sharding, shape, DType.parse("u8"), str(dtype))


def has_plans(dtype: Any) -> bool:
    """Whether plans move elements of a dtype: not those smaller than a byte, such as int4, nor PRNG keys."""
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return False
    return np.dtype(dtype).kind != "V" or DType.parse(str(dtype)).extended_name is not None


def _checked_type(
    sharding: NamedSharding, shape: tuple[int, ...], dtype: DType, name: str
) -> ArrayType:
    mesh = sharding.mesh
    if not isinstance(mesh, jax.sharding.Mesh):
        raise ConversionError(
            f"cannot plan for {sharding.spec} on an AbstractMesh: it names no devices; "
            "give a sharding over a jax.sharding.Mesh"
        )
    ids = [device.id for device in mesh.devices.flat]
    ours = Mesh(zip(mesh.axis_names, mesh.devices.shape, strict=True), ranks=ids)
    t = from_partition_spec(sharding.spec, ours, dtype, shape)
    if not t.is_even:
        raise ConversionError(_why_uneven(t, sharding.spec, name))
    return t


def _why_uneven(t: ArrayType, spec: Any, dtype: str) -> str:
    dim = next(i for i in range(t.ndim) if not t.cut(i).is_even)
    size, cuts = t.shape[dim], t.cuts[dim]
    axes = ", ".join(f"{part.name}={part.size}" for part in t.dims[dim])
    others = [i for i in range(t.ndim) if i != dim and t.shape[i] % cuts == 0 and not t.dims[i]]
    other = f"cut dim {others[0]} ({t.shape[others[0]]}) instead, or " if others else ""
    return (
        f"cannot cut {dtype}[{', '.join(map(str, t.shape))}] by {spec}: dim {dim} has {size} indices, "
        f"which {cuts} tiles ({axes}) do not divide, and JAX has tiles of one size only; {other}pad dim "
        f"{dim} to {ceil_div(size, cuts) * cuts} with jax.numpy.pad"
    )


def refined_mesh(devices: Any, mesh: Mesh, atoms: Sequence[SubAxis]) -> jax.sharding.Mesh:
    """The same devices with one axis for every atom."""
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
    """The sharding of a type over the devices whose ids are its ranks, or over the given devices.

    If the type cuts by parts of axes, so does the mesh of the sharding.
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


def is_explicit(mesh: Any) -> bool:
    """Whether shardings over a mesh are part of JAX's types, as over one of ``jax.make_mesh``."""
    return any(kind != AxisType.Auto for kind in mesh.axis_types)


def sharding_over(mesh: Any, t: ArrayType) -> NamedSharding | None:
    """The sharding of a type over a mesh whose devices play the type's, in order.

    None if there is no mesh, or if the type cuts by parts of its axes.
    """
    if mesh is None:
        return None
    axes: dict[int, tuple[str, int]] = {}
    n = 1
    for name, size in zip(mesh.axis_names, mesh.devices.shape, strict=True):
        if size > 1:
            axes[n] = name, size
        n *= size
    entries: list[tuple[str, ...] | None] = []
    for dim in on_one_axis(t).dims:
        names: list[str] = []
        for part in dim:
            at, end = part.pre, part.pre * part.size
            while at < end:
                if at not in axes or at * axes[at][1] > end:
                    return None
                names.append(axes[at][0])
                at *= axes[at][1]
        entries.append(tuple(names) or None)
    return NamedSharding(mesh, PartitionSpec(*entries))


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
