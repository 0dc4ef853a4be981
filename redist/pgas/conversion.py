"""Global arrays from what ranks have already: their tiles, or the same values on all of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import Box
from redist.pgas.creation import Type, make, to_numbers
from redist.pgas.elementwise.apply import astype
from redist.pgas.global_array import Array
from redist.pgas.kinds import as_tile_of, dtype_asked, tile_dtype
from redist.pgas.memory import memory_for
from redist.pgas.tiles.devices import is_gpu
from redist.pgas.tiles.layouts import MeshLike, dtype_of, line_mesh, mesh_of, must_be_type
from redist.pgas.tiles.move import tile_shape
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.runtime.arguments import refuse_masked, why_not_balanced
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import as_device, to_device, to_host
from redist.runtime.ranks.world import Comm, comm_or_world


def from_local(
    local: Any, type: Type, *, mesh: MeshLike | None = None, comm: Comm | None = None,
    device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** Make a global array from the ranks' own tiles, in NumPy or GPU arrays, without a copy.

    ``pgas.from_local(tile, "f64[4096{x}, 512]", mesh=redist.Mesh(x=4))``. A rank outside the mesh
    has no tile; it passes ``device="cuda"`` if the tiles of the other ranks are on GPUs.
    """
    comm = comm_or_world(comm)
    must_be_type(type)
    if isinstance(type, str) and type and "[" not in type:
        raise ArgumentError(
            f"cannot use the type {type!r} here: from_local cannot know the whole shape; write all of it, "
            "such as 'f64[16{x}, 16]'"
        )
    if isinstance(type, str):
        type = ArrayType.parse(type, mesh_of(mesh, comm.size))
    on_device = is_device(local) if local is not None else is_gpu(device)
    if local is not None and device is not None and is_gpu(device) != on_device:
        raise ArgumentError(f"cannot use a tile that is not on {device!r} there: copy it first")
    if on_device and local is not None:
        local = as_device(local)
    elif local is not None and not isinstance(local, np.ndarray):
        raise ArgumentTypeError(f"cannot use {local!r} as a tile: need a NumPy array, or None")
    refuse_masked(local)
    shape = tile_shape(type, comm.rank)
    if local is None or shape is None:
        if local is not shape:
            have = "no tile" if local is None else f"a tile of shape {local.shape}"
            need = "none: it is outside the mesh" if shape is None else f"one of shape {shape}"
            raise RequestError(f"cannot make {type} from {have}: rank {comm.rank} must give {need}")
    else:
        check_local(local, shape, type, comm.rank)
        local = as_tile_of(type.dtype, local)
    made = Array(type, comm, local, memory_for(on_device))
    made.share()
    return made


def check_local(local: Tile, shape: tuple[int, ...], type: ArrayType, rank: int) -> None:
    """**Local.** Refuse an array that is not a tile of a type, and say what this rank's tile is."""
    dtype = tile_dtype(type.dtype)
    if local.shape != shape or local.dtype not in (dtype, type.dtype.to_numpy()):
        raise RequestError(
            f"cannot make {type}: rank {rank} passed {local.dtype}{list(local.shape)}; its tile is "
            f"{dtype}{list(shape)}{why_not_balanced(local.shape, shape, type)}"
        )


def array(
    obj: Any, /, dtype: Any = None, *, copy: bool | None = True, type: Type | None = None,
    mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
) -> Array:  # fmt: skip
    """**Local.** Make a new global array from values that are the same on all ranks, as ``numpy.array`` does.

    ``pgas.array([[1, 2], [3, 4]], dtype=float)``; :func:`asarray` copies only if it must.
    """
    return asarray(obj, dtype=dtype, copy=copy, type=type, mesh=mesh, comm=comm, device=device)


def asarray(
    obj: Any, /, *, dtype: Any = None, copy: bool | None = None, type: Type | None = None,
    mesh: MeshLike | None = None, comm: Comm | None = None, device: Any = None,
    limit_bytes: int | str | None = None,
) -> Array:  # fmt: skip
    """**Local.** Make a global array from values that are the same on all ranks: numbers, lists, arrays.

    Every rank keeps its part, and nothing moves. A global array is returned as it is. Arrays on GPUs
    stay there unless you pass ``device="cpu"``.

    **Collective** for arrays that another library has distributed over several ranks. A PyTorch DTensor
    shares its memory. A Dask array, or references to Ray objects (nested lists of blocks, or a dict by
    index), are read a block at a time. In addition to the array, a rank then uses at most ``limit_bytes``
    (by default 64 MiB).
    """
    taker = _taker_of(obj)
    if taker is not None:
        if copy is False and not taker.SHARES:
            raise ArgumentError(
                "cannot make a global array of this object without a copy: it comes in blocks"
            )
        made: Array = taker.as_global(obj, type=type, mesh=mesh, comm=comm, limit_bytes=limit_bytes)
        return asarray(made, dtype=dtype, copy=copy if taker.SHARES else None, device=device)
    if limit_bytes is not None:
        raise ArgumentError(
            "cannot use limit_bytes= here: it is for arrays that come in blocks, of Dask or Ray"
        )
    if isinstance(obj, Tiled):
        kind = obj.dtype if dtype is None else dtype_asked(dtype)
        if copy is False and kind != obj.dtype:
            raise ArgumentError(f"cannot turn {obj.dtype} into {kind} without a copy")
        where = {"type": type, "mesh": mesh, "comm": comm}
        named = [name for name, value in where.items() if value is not None]
        if named:
            raise ArgumentError(
                f"cannot place {obj.type} anew by {', '.join(named)}=: use a.to(type)"
            )
        array = obj if isinstance(obj, Array) else Array(obj.type, obj.comm, obj.tile)
        if device is not None and is_gpu(device) != obj.memory.on_device:
            if copy is False:
                raise ArgumentError(f"cannot bring {obj.type} to {device!r} without a copy")
            array, copy = array.to_device(device), None
        if kind != obj.dtype:
            return astype(array, kind)
        return array.copy() if copy else array
    if copy is False:
        raise ArgumentError(
            "cannot make a global array of this object without a copy: pgas.from_local shares tiles"
        )
    if is_device(obj) and (device is None or is_gpu(device)):
        whole = as_device(obj)
        whole = whole if dtype is None else whole.astype(dtype_asked(dtype), copy=False)
        device = "cuda"
    else:
        whole = _in_memory(to_host(obj) if is_device(obj) else obj, dtype)

    def fill(tile: Tile, box: Box) -> None:
        tile[...] = whole[tuple(slice(lo, hi) for lo, hi in box)]

    anywhere = not isinstance(whole, np.ndarray)
    return make(whole.shape, whole.dtype, fill, type, mesh, comm, device, anywhere)


TAKERS = {
    ("torch", "DTensor"): "redist.torch.global_arrays",
    ("dask", "Array"): "redist.pgas.foreign.dask_arrays",
    ("ray", "ObjectRef"): "redist.pgas.foreign.ray_objects",
}
"""Who makes global arrays of other libraries' arrays, by library and class: some are in layers above."""


def _taker_of(obj: Any) -> Any:
    """**Local.** The module that takes an array of another library, or a list or dict of its blocks."""
    one = obj
    while isinstance(one, (list, tuple, dict)) and one:
        one = next(iter(one.values())) if isinstance(one, dict) else one[0]
    kind = one.__class__
    name = TAKERS.get((kind.__module__.partition(".")[0], kind.__name__))
    return None if name is None else import_module(name)


def _in_memory(obj: Any, dtype: Any) -> Tile:
    refuse_masked(obj)
    dtype = None if dtype is None else dtype_asked(dtype)
    if obj is None:
        raise ArgumentTypeError(
            "cannot make a global array of None: every rank must give the same values; comm.bcast them "
            "first, or use pgas.from_local, to which each rank gives its tile"
        )
    try:
        return np.asarray(obj, dtype=dtype)
    except TypeError:
        return np.asarray(to_numbers(obj), dtype=dtype)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """**Local.** Make a global array from an array of any library that is the same on all ranks.

    It is whole on every rank, and shares the memory unless a copy is needed or asked for.
    """
    if isinstance(x, Tiled):
        return asarray(x, copy=copy, device=device)
    on_device = is_device(x)
    if device is not None and is_gpu(device) != on_device:
        if copy is False:
            raise ArgumentError(f"cannot bring it to {device!r} without a copy")
        x = to_host(x) if on_device else to_device(np.from_dlpack(x))
        on_device, copy = not on_device, None
    whole = as_device(x) if on_device else np.from_dlpack(x, copy=copy)
    whole = whole.copy() if on_device and copy else whole
    comm = comm_or_world(None)
    t = ArrayType(line_mesh(comm.size), dtype_of(whole.dtype), whole.shape, ((),) * whole.ndim)
    return from_local(whole, t, comm=comm)
