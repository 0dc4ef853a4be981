"""Device meshes and placements as meshes and types: the border between PyTorch's terms and ours."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.placement_types import Partial, Placement, _StridedShard

from redist.errors import ConversionError, RedistError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.specs_and_placements import Partial as PartialOver
from redist.layout.specs_and_placements import RaggedShard as RaggedOver
from redist.layout.specs_and_placements import Replicate as ReplicateOver
from redist.layout.specs_and_placements import StridedShard as StridedOver
from redist.layout.specs_and_placements import from_placements, to_placements

# Element types of PyTorch as ours, and back.


_NAMES = {
    "bool": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "f8e4m3fn": torch.float8_e4m3fn,
    "f8e4m3fnuz": torch.float8_e4m3fnuz,
    "f8e5m2": torch.float8_e5m2,
    "f8e5m2fnuz": torch.float8_e5m2fnuz,
    "f8e8m0fnu": torch.float8_e8m0fnu,
}
_OURS = {theirs: DType.parse(name) for name, theirs in _NAMES.items()}


def from_torch(dtype: torch.dtype) -> DType:
    """Our name for an element type of PyTorch.

    ``from_torch(torch.bfloat16).name`` is ``'bf16'``.
    """
    found = _OURS.get(dtype)
    if found is None:
        raise ConversionError(
            f"cannot move a tensor of {dtype}: it is not known; view it as another"
        )
    return found


def to_torch(dtype: DType) -> torch.dtype:
    """PyTorch's name for an element type of ours."""
    found = _NAMES.get(dtype.name)
    if found is None:
        raise ConversionError(f"cannot move {dtype} with PyTorch: it has no such element type")
    return found


@lru_cache(maxsize=256)
def mesh_ranks(device_mesh: DeviceMesh) -> tuple[int, ...]:
    """The ranks of a device mesh, in the order of its devices."""
    return tuple(int(rank) for rank in device_mesh.mesh.flatten().tolist())


@lru_cache(maxsize=256)
def mesh_of(device_mesh: DeviceMesh, ranks: tuple[int, ...] | None = None) -> Mesh:
    """A device mesh as a redist mesh; with ``ranks``, its ranks are numbered by their places there.

    Its axes have the names of the device mesh's dims; without names they are called ``d0``, ``d1``, and so
    on.
    """
    sizes = tuple(device_mesh.mesh.shape)
    own = mesh_ranks(device_mesh)
    axes = list(zip(_axis_names(device_mesh, len(sizes)), map(int, sizes), strict=True))
    return Mesh(axes, ranks=own if ranks is None else map(ranks.index, own))


def _axis_names(device_mesh: DeviceMesh, n: int) -> list[str]:
    names = []
    for dim, name in enumerate(device_mesh.mesh_dim_names or [f"d{k}" for k in range(n)]):
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = plain if plain and not plain[0].isdigit() else f"d{dim}_{plain}"
        names.append(plain if plain not in names else f"{plain}_{dim}")
    return names


def type_of(dtensor: DTensor, ranks: tuple[int, ...] | None = None) -> ArrayType:
    """The type of a DTensor.

    ``type_of(distribute_tensor(torch.zeros(8, 6), mesh, [Shard(0)]))`` prints ``f32[8{x}, 6]`` if the dim of
    the mesh is called x.
    """
    return _type_of(dtensor, dtensor._spec.placements, ranks)


def summed_type_of(dtensor: DTensor, ranks: tuple[int, ...]) -> ArrayType:
    """The type of a DTensor with sums in place of averages; :func:`averaged_over` says what to divide by."""
    if averaged_over(dtensor) > 1 and not (dtensor.is_floating_point() or dtensor.is_complex()):
        raise ConversionError(
            f"cannot take the average of {dtensor.dtype} that Partial('avg') asks for: it may be no whole "
            "number; make it of Partial('sum')"
        )
    found = (Partial("sum") if _is_average(p) else p for p in dtensor.placements)
    return _type_of(dtensor, tuple(found), ranks)


def averaged_over(dtensor: DTensor) -> int:
    """What the sum of a DTensor's pending values is to be divided by: 1 unless an average is pending."""
    sizes = zip(dtensor.device_mesh.mesh.shape, dtensor.placements, strict=True)
    return math.prod(size for size, placement in sizes if _is_average(placement))


def _is_average(placement: Any) -> bool:
    return isinstance(placement, Partial) and placement.reduce_op == "avg"


def _type_of(
    dtensor: DTensor, placements: tuple[Any, ...], ranks: tuple[int, ...] | None
) -> ArrayType:
    spec = dtensor._spec
    order = getattr(spec, "shard_order", None)
    if order is not None and not _is_in_mesh_order(order):
        raise ConversionError(
            f"cannot read placements {placements!r} applied in the order {order!r}: "
            "redistribute it to the order of the mesh first"
        )
    return placed_type(spec.mesh, placements, dtensor.dtype, tuple(dtensor.shape), ranks)


def _is_in_mesh_order(order: Any) -> bool:
    return all(list(entry.mesh_dims) == sorted(entry.mesh_dims) for entry in order)


@lru_cache(maxsize=4096)
def placed_type(
    device_mesh: DeviceMesh,
    placements: tuple[Any, ...],
    dtype: torch.dtype,
    shape: tuple[int, ...],
    ranks: tuple[int, ...] | None = None,
) -> ArrayType:
    """The type that placements mean on a device mesh; errors use PyTorch's terms if they cannot be read."""
    return from_placements(placements, mesh_of(device_mesh, ranks), from_torch(dtype), shape)


def one_cut_less(
    device_mesh: DeviceMesh, placements: tuple[Any, ...], dtype: torch.dtype, shape: tuple[int, ...]
) -> list[Any] | None:
    """Placements that replicate over one more dim of the mesh and can be read; None if there are none.

    FSDP's cut comes after those of other dims, so it is the first to be dropped.
    """
    dims = sorted(range(len(placements)), key=lambda k: (type(placements[k]) is Shard, -k))
    for dim in dims:
        found = [Replicate() if k == dim else p for k, p in enumerate(placements)]
        try:
            placed_type(device_mesh, tuple(found), dtype, shape)
        except RedistError:
            continue
        return found
    return None


def placements_of(t: ArrayType) -> tuple[Any, ...]:
    """PyTorch's placements for a type, on a device mesh like the type's mesh."""
    out: list[Any] = []
    for placement in to_placements(t):
        if isinstance(placement, ReplicateOver):
            out.append(Replicate())
        elif isinstance(placement, PartialOver):
            out.append(Partial(placement.reduce_op))
        elif isinstance(placement, StridedOver):
            out.append(_StridedShard(placement.dim, split_factor=placement.split_factor))
        elif isinstance(placement, RaggedOver):
            raise ConversionError(
                f"cannot convert {t} to placements of PyTorch: it has none for ragged dims; move the array "
                "to a plain type first"
            )
        else:
            out.append(Shard(placement.dim))
    return tuple(out)


def checked_placements(placements: Any, n_dims: int, name: str = "") -> tuple[Any, ...]:
    """Placements with dims counted from the front; an error if they are not placements."""
    is_list = isinstance(placements, Sequence) and not isinstance(placements, str)
    if not is_list or not all(isinstance(placement, Placement) for placement in placements):
        what = f"{name!r} " if name else ""
        raise RequestError(
            f"cannot move {what}to placements {placements!r}: give a list with one per dim of the mesh, such "
            "as [Shard(0)] or [Replicate()]"
        )
    return tuple(Shard(p.dim + n_dims) if type(p) is Shard and p.dim < 0 else p for p in placements)
