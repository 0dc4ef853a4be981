"""What a user passes to be saved: dicts, nested or not, of arrays of several kinds, as tiles with types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redist.errors import ArgumentError, ArgumentTypeError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.pgas.conversion import from_local
from redist.pgas.files.blocks import must_be_written
from redist.pgas.global_array import Array
from redist.pgas.tiles.move import resolve_pending
from redist.pgas.tiles.tiled import tile_in
from redist.runtime.ranks.world import Comm
from redist.store.header import check_name
from redist.store.pieces import Spans, shares_of
from redist.text.nested import flattened


@dataclass(frozen=True, slots=True)
class Given:
    """An array to be saved: its type, and the tiles that this process has of it, each with its rank.

    If it is a global array, ``array`` is that array: it can be moved before it is written.
    """

    name: str
    type: ArrayType
    tiles: tuple[tuple[int, Any], ...]
    array: Array | None = None

    @property
    def dtype(self) -> DType:
        """The dtype of its elements in memory."""
        return self.type.dtype

    def own_parts(self) -> Iterator[tuple[Spans, Any]]:
        """**Local.** The ranges that this process writes, and the tiles that have them."""
        for rank, tile in self.tiles:
            for share in shares_of(self.type, rank):
                if share.is_own:
                    yield share.spans, tile

    def settled(self) -> Given:
        """**Collective** if a reduction is pending. The same array with the reduction computed."""
        if self.array is None or self.type.pending_op is None:
            return self
        return of_array(self.name, resolve_pending(self.array))


def given_arrays(path: str, arrays: Any, comm: Comm | None) -> tuple[list[Given], Comm | None]:
    """**Local.** The arrays to be saved, in the order of their names, and their communicator."""
    found: dict[str, Given] = {}
    for name, value in flattened(arrays, "save"):
        check_name(name)
        if name in found:
            raise ArgumentError(f"cannot save {path!r}: two arrays have the name {name!r}")
        one = given_array(path, name, value, comm)
        found[name] = one
        if one.array is not None:
            if comm is not None and one.array.comm != comm:
                raise ArgumentError(
                    f"cannot save {name!r} to {path!r}: it lies on other ranks than the arrays before it; "
                    "save them to files of their own"
                )
            comm = one.array.comm
    return [found[name] for name in sorted(found)], comm


def given_array(path: str, name: str, value: Any, comm: Comm | None) -> Given:
    """**Local.** One array of a supported kind; otherwise an error that lists the supported kinds."""
    if isinstance(value, Array):
        return of_array(name, must_be_written(path, value))
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], ArrayType):
        tile, t = value
        return of_array(name, from_local(tile if tile is None else _raw(tile, t), t, comm=comm))
    module = type(value).__module__.partition(".")[0]
    if module == "torch" and hasattr(value, "placements"):
        from redist.torch import to_global

        return of_array(name, to_global(value, comm))
    if module in ("jax", "jaxlib") and hasattr(value, "addressable_shards"):
        return _of_jax(name, value)
    also = "; pgas.asarray makes one of what all ranks have alike" if _is_array(value) else ""
    raise ArgumentTypeError(
        f"cannot save {name!r} of {type(value).__name__}: need a global array, a tile with its type as in "
        f"(tile, redist.ArrayType.parse(...)), a DTensor or a jax.Array{also}"
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "__array__") or np.isscalar(value)


def of_array(name: str, a: Array) -> Given:
    """**Local.** A global array as an array to be saved."""
    tile = a.type.dtype.raw(tile_in(a))
    tiles = () if tile is None else ((a.comm.rank, tile),)
    return Given(name, a.type, tiles, a)


def _raw(tile: Any, t: ArrayType) -> Any:
    """A tile with the bits of a dtype that NumPy does not know as NumPy's integers."""
    raw = t.dtype.to_numpy()
    is_own = t.dtype.extended_name is not None and tile.dtype.name == t.dtype.extended_name
    return tile.view(raw) if is_own else tile


def _of_jax(name: str, x: Any) -> Given:
    """**Local.** A jax.Array: a process may have several of its tiles."""
    from redist.jax.types import type_of

    t = type_of(x)
    devices = [device.id for device in x.sharding.mesh.devices.flat]
    mesh = Mesh(t.mesh.axes)
    t = replace(t, mesh=mesh)
    raw = t.dtype.to_numpy()
    tiles = []
    for shard in x.addressable_shards:
        tile = np.asarray(shard.data)
        tiles.append(
            (devices.index(shard.device.id), tile.view(raw) if t.dtype.extended_name else tile)
        )
    return Given(name, t, tuple(tiles))
