"""The tiles that a rank gives for a refit: are they those of the types, and where do they lie?"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from redist.errors import RedistError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.dtype import DType
from redist.layout.tiles import tile_shapes
from redist.runtime.copies.addresses import Addresses, address_of
from redist.runtime.copies.gpu_arrays import is_device
from redist.text.extras import install_line

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """An array of any library: where it begins, and what it is."""

    array: Any
    address: int
    shape: Shape
    dtype: DType
    gpu: int | None
    """The number of the GPU that holds it; None in memory of the host."""

    @property
    def n_bytes(self) -> int:
        """Bytes of all elements."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Side:
    """The stored tensors of one side in the order in which runs number them, and the tiles of this rank.

    ``what`` is what errors call a tile. ``tiles`` has what this rank was given, by number, ``empty``
    those without elements, by name.
    """

    def __init__(self, types: Mapping[str, ArrayType], what: str) -> None:
        self.names = sorted(types)
        self.types = [types[name] for name in self.names]
        self.what = what
        self.tiles: dict[int, Tile] = {}
        self.empty: dict[str, Any] = {}

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of every name."""
        return {name: number for number, name in enumerate(self.names)}

    def take(self, rank: int, given: Mapping[str, Any] | None) -> None:
        """**Local.** Take the tiles of a rank; raise for the first that is missing or is not its tile."""
        arrays = {} if given is None else given
        shapes = self.shapes(rank)
        if not isinstance(arrays, Mapping):
            raise RequestError(
                f"cannot bind {self.what}s: need a dict of arrays by name, not {given!r}"
            )
        more = sorted(set(arrays) - set(shapes))
        if more:
            known = (
                "has no such name" if more[0] not in self.numbers else f"puts none on rank {rank}"
            )
            raise RequestError(
                f"cannot bind {self.what} {more[0]!r}: the plan {known}{_and_more(more)}; leave it out"
            )
        missing = sorted(name for name in set(shapes) - set(arrays) if 0 not in shapes[name])
        if missing:
            number = self.numbers[missing[0]]
            want = f"{self.types[number].dtype}{list(shapes[missing[0]])}"
            raise RequestError(
                f"cannot bind {self.what}s without {missing[0]!r}{_and_more(missing)}: rank {rank} has a "
                f"tile of it, {want}; give an array of this name"
            )
        for name, array in arrays.items():
            number = self.numbers[name]
            tile = tile_of(array, shapes[name], self.types[number], f"{self.what} {name!r}")
            if 0 in shapes[name]:
                self.empty[name] = tile.array
            else:
                self.tiles[number] = tile
        gpus = {tile.gpu for tile in self.tiles.values()}
        if len(gpus) > 1:
            raise RequestError(
                f"cannot bind {self.what}s of rank {rank}: some lie on {_place(min(gpus, key=_order))}, "
                f"others on {_place(max(gpus, key=_order))}; put all into one memory"
            )

    def shapes(self, rank: int) -> dict[str, Shape]:
        """**Local.** The shapes of the tiles of a rank, by name, of tensors that it has a part of."""
        found = {}
        for name, t in zip(self.names, self.types, strict=True):
            if rank in t.mesh.ranks:
                found[name] = tile_shapes(t)[rank]
        return found

    @property
    def gpu(self) -> int | None:
        """The GPU that holds the tiles; None in memory of the host, or if there is none."""
        return next((tile.gpu for tile in self.tiles.values()), None)

    def addresses(self) -> Addresses:
        """Where all tiles lie, by number; 0 for those of others."""
        table = np.zeros(len(self.names), np.uintp)
        for number, tile in self.tiles.items():
            table[number] = tile.address
        return table


def _order(gpu: int | None) -> int:
    return -1 if gpu is None else gpu


def _place(gpu: int | None) -> str:
    return "the host" if gpu is None else f"GPU {gpu}"


def _and_more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if names[1:] else ""


def tile_of(array: Any, shape: Shape, t: ArrayType, what: str) -> Tile:
    """**Local.** An array of NumPy, CuPy or PyTorch as a tile of type t; an error if it is none.

    >>> from redist.layout.mesh import Mesh
    >>> t = ArrayType.parse("bf16[4{x}, 8]", Mesh(x=2))
    >>> tile_of(np.zeros((2, 8), "u2"), (2, 8), t, "target tile 'w'").n_bytes
    32
    >>> tile_of(np.zeros((2, 8), "f4"), (2, 8), t, "target tile 'w'")
    Traceback (most recent call last):
    redist.errors.RequestError: cannot bind target tile 'w': it is float32[2, 8]; its tile of bf16[4{x}, 8] \
is bf16[2, 8]
    """
    local = getattr(array, "to_local", None)
    if local is not None:  # a DTensor of PyTorch
        array = local()
    try:
        found = _of_torch(array) if hasattr(array, "data_ptr") else _of_numpy(array)
    except RedistError as problem:
        raise RequestError(f"cannot bind {what}: {problem}") from None
    if found is None:
        raise RequestError(
            f"cannot bind {what}: it is {type(array).__name__}; need an array of NumPy, CuPy or PyTorch"
        )
    tile, is_contiguous, may_write = found
    if tile.shape != shape or tile.dtype not in (t.dtype, DType.parse(t.dtype.to_numpy())):
        raise RequestError(
            f"cannot bind {what}: it is {getattr(array, 'dtype', tile.dtype)}{list(tile.shape)}; its tile of "
            f"{t} is {t.dtype}{list(shape)}"
        )
    if not is_contiguous and tile.n_bytes:
        raise RequestError(f"cannot bind {what}: it is not contiguous; give a contiguous array")
    if what.startswith("target") and not may_write:
        raise RequestError(f"cannot bind {what}: it is read-only")
    return tile


Found = tuple[Tile, bool, bool]
"""A tile, whether it is contiguous, and whether it may be written."""


def _of_torch(tensor: Any) -> Found:
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise RequestError(f"it is on {kind}; need memory of the host or of a GPU of NVIDIA")
    if tensor.is_conj() or tensor.is_neg():  # such a view has other bits than its memory
        raise RequestError(
            "it is a view of values that change sign; give its resolve_conj().resolve_neg()"
        )
    gpu = None if kind == "cpu" else int(tensor.device.index)
    shape = tuple(int(n) for n in tensor.shape)
    tile = Tile(tensor, int(tensor.data_ptr()), shape, DType.parse(tensor.dtype), gpu)
    return tile, bool(tensor.is_contiguous()), True


def _of_numpy(array: Any) -> Found | None:
    if isinstance(array, np.ndarray) and not hasattr(array, "mask"):
        dtype = DType.parse(array.dtype)
        tile = Tile(array, address_of(array), array.shape, dtype, None)
        return tile, bool(array.flags.c_contiguous), bool(array.flags.writeable)
    if not is_device(array):
        return None
    from redist.runtime.cuda.arrays import as_device, device_address, gpu_of, is_read_only

    there = as_device(array)
    dtype = DType.parse(there.dtype)
    tile = Tile(there, device_address(there), tuple(there.shape), dtype, gpu_of(there))
    return tile, bool(there.flags.c_contiguous), not is_read_only(array)


def check_gpu(gpu: int | None) -> None:
    """**Local.** Raise unless kernels can be started on the GPU that holds tiles."""
    try:
        import cupy
    except ImportError:
        raise RequestError(
            f"cannot bind tiles on a GPU: CuPy is not installed; {install_line('gpu')}"
        ) from None
    current = int(cupy.cuda.runtime.getDevice())
    if current != gpu:
        raise RequestError(
            f"cannot bind tiles on GPU {gpu}: GPU {current} is current; make it current before, as "
            f"torch.cuda.set_device({gpu}) does"
        )


def view_like(memory: Any, like: Tile) -> Any:
    """**Local.** Bytes, of NumPy or CuPy, as an array of the same library, dtype and shape as a tile.

    >>> from redist.layout.mesh import Mesh
    >>> like = tile_of(np.zeros((1, 2)), (1, 2), ArrayType.parse("f64[1, 2]", Mesh()), "tile")
    >>> view_like(np.zeros(16, np.uint8), like)
    array([[0., 0.]])
    """
    if hasattr(like.array, "data_ptr"):
        torch = sys.modules["torch"]
        memory = torch.as_tensor(memory)
    return memory.view(like.array.dtype).reshape(like.shape)
