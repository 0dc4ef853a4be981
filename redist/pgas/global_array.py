"""The global array: where it lies, its elements, and what the array API standard asks of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from redist.errors import (
    ArgumentError,
    ArgumentTypeError,
    MissingNameError,
    RequestError,
    WholeArrayError,
)
from redist.layout.array_type import ArrayType
from redist.layout.tiles import Box, box_of
from redist.pgas import reductions
from redist.pgas.indexing import dispatch, inspected
from redist.pgas.kinds import number_kind
from redist.pgas.memory import memory_for
from redist.pgas.methods import Methods
from redist.pgas.namespace_info import API_VERSIONS
from redist.pgas.numpy_functions import call_function
from redist.pgas.onesided import epochs, get_put
from redist.pgas.printing import format_array, format_number, format_value, number_call
from redist.pgas.shapes.permute import matrix_transpose, permute_dims
from redist.pgas.suggestions import explain_conversion, explain_missing
from redist.pgas.tiles import devices
from redist.pgas.tiles.arranging import asked, left_alone
from redist.pgas.tiles.layouts import dtype_of, line_mesh, must_be_type, parse_target, with_dtype
from redist.pgas.tiles.move import move, move_as_asked, resolve_pending
from redist.pgas.tiles.tiled import Tile, tile_in
from redist.pgas.ufuncs import call_ufunc
from redist.pgas.worker_processes import refuse_workers
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import comm_or_world
from redist.text.extras import pickling_advice
from redist.text.units import format_bytes

BY_GLOBAL = "give it as a global array of indices, or end the program first"
OUTSIDE_IT = "return it, and gather or write it outside"
"""What to do where a program has no values."""


def namespace() -> ModuleType:
    """Import ``redist.pgas``, which stands above this module: arrays and submodules name what it offers."""
    from redist import pgas

    return pgas


class Array(Methods):
    """An array that spans all ranks of a communicator and behaves like a NumPy array.

    In an SPMD program::

        a = pgas.zeros((4096, 4096), type="{x}, {}")
        b = a + 1                    # local: no data moves
        c = b.to("{}, {x}")          # moved by the best plan
        s = pgas.sum(c)              # pending until someone needs the value
        print(a.type, float(s))

    ``local`` is this rank's tile, ``type`` the layout, and ``gather()`` returns the whole array as a NumPy
    array.
    """

    __slots__ = ()
    __array_priority__ = 1000

    # Where it lies

    def to(self, type: str | ArrayType) -> Array:
        """**Collective.** Move the array to another type, given by its cuts as text or as a complete type.

        ``a.to("{y}, {x}")`` cuts dim 0 by y and dim 1 by x; ``a.to(t)`` may name another mesh.
        """
        must_be_type(type)
        t = self._type if self._owes is None else with_dtype(self._type, dtype_of(self._owes))
        return move_as_asked(self, parse_target(t, type))

    @property
    def box(self) -> Box | None:
        """The start and end of this rank's indices along every dim; None if it has no tile.

        ``(lo, hi), _ = a.box`` says that ``a.local[0]`` is row ``lo`` of the whole.
        """
        return box_of(self.type, self.comm.rank)

    def settled(self) -> Array:
        """**Collective.** Finish a pending reduction; return the array itself if none is pending."""
        return resolve_pending(self)

    def gather(self) -> Tile:
        """**Collective.** Bring the whole array to every rank, as a new NumPy array.

        Ranks outside the mesh get it too. If the tiles are on GPUs, the result is a CuPy array.
        """
        self.memory.check_values("gather", self.type, OUTSIDE_IT, noted=True)
        everyone = self.mesh.n_devices == self.comm.size
        mesh = self.mesh if everyone else line_mesh(self.comm.size)
        target = ArrayType(mesh, self.type.dtype, self.shape, ((),) * self.ndim)
        whole = move(self if everyone else resolve_pending(self), target, asked=True)
        assert whole.tile is not None
        if whole is not self:
            return whole.tile
        self.memory.check_room(whole.type.tile_bytes)
        return whole.tile.copy()

    @asked
    def copy(self) -> Array:
        """**Local.** Copy the array: the same values in new tiles."""
        own = tile_in(self)
        if own is None:
            return self.new(self.type, None)
        tile = self.memory.empty(own.shape, own.dtype, self.type.tile_bytes)
        np.copyto(tile, own)
        return self.new(self.type, tile)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Array:
        return self.copy()

    def __reduce__(self) -> Any:
        self.memory.check_values("pickle", self.type)
        refuse_workers(f"the global array {self.type}", self.comm)
        if self.comm is not comm_or_world(None):
            raise ArgumentTypeError(
                f"cannot pickle {self.type} on a communicator other than COMM_WORLD: it cannot be stored; "
                "store a.local and a.type, and use pgas.from_local"
            )
        on_device = self.memory.on_device
        held = on_device, self.type, tile_in(self), self.comm.rank, self.comm.size
        return _restore, (*held, self._owes)

    # The standard's own

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        if api_version not in (None, *API_VERSIONS):
            raise ArgumentError(f"unknown version {api_version!r} of the standard")
        return namespace()

    @property
    def device(self) -> str:
        """Where this rank's tile lies: ``cpu``, or a GPU such as ``cuda:0``."""
        return devices.name_of(self)

    @asked
    def to_device(self, device: str, /, *, stream: Any = None) -> Array:
        """**Local.** Copy the tiles to ``cpu`` or to ``cuda``, the rank's current GPU.

        Returns the array itself if the tiles are already there. Pass the same device on all ranks.
        """
        if stream is not None:
            raise ArgumentError("cannot use a stream: tiles are carried on the current one")
        return devices.to_device(self, device)

    @property
    def T(self) -> Array:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ArgumentError(
                f"cannot transpose {self.ndim} dims by .T: need 2; use permute_dims"
            )
        return permute_dims(self, (1, 0))

    @property
    def mT(self) -> Array:
        """The transpose of each matrix in a stack."""
        return matrix_transpose(self)

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the array to another library if every rank holds all of it; a mere tile is refused."""
        return self._whole().__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tile().__dlpack_device__()

    def _whole(self) -> Tile:
        """The tile, if it is the whole array on every rank."""
        if max(self.type.cuts, default=1) > 1:
            raise WholeArrayError(
                f"cannot hand over the global array {self.type} by DLPack: a rank has a tile of it; "
                "write a.gather() for all of it, or a.local for this rank's tile"
            )
        return self._tile()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return call_ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self, function: Any, types: Any, args: Sequence[Any], options: dict[str, Any]
    ) -> Any:
        return call_function(function, args, options, namespace())

    def __array__(self, *args: Any, **options: Any) -> Tile:
        self.memory.check_values("make a NumPy array of", self.type, OUTSIDE_IT)
        raise ArgumentTypeError(
            f"cannot turn the global array {self.type} into one NumPy array by itself"
            + explain_conversion(
                sys._getframe(1),
                format_bytes(self.nbytes),
                number_call(self) if self.ndim == 0 else None,
            )
        )

    def _tile(self) -> Tile:
        self.memory.check_tile("reach into", self.type)
        whole = resolve_pending(self)
        if whole.tile is None:
            raise RequestError(f"this rank has no tile of {self.type} on {self.mesh}")
        whole.version += 1
        whole.share()
        return whole.tile

    def __getattr__(self, name: str) -> Any:
        if name == "tile":  # it is spilled
            return self._reload()
        raise MissingNameError(explain_missing("an Array", name, vars(namespace())))

    # One element

    def item(self, *index: Any) -> Any:
        """**Collective.** One element as a Python number: the only one, ``a.item(7)`` or ``a.item(1, 2)``."""
        if not index:
            if self.size != 1:
                raise ArgumentError(f"cannot take the item of {self.size} elements: name one")
            return self.reshape(())._element().item()
        at = index[0] if len(index) == 1 else index
        if isinstance(at, tuple):
            return self[at]._element().item()
        return self.reshape(-1)[at]._element().item()

    def tolist(self) -> Any:
        """**Collective.** All elements as nested lists of Python numbers, on every rank."""
        return self.memory.host(self.gather()).tolist()

    def _element(self) -> Any:
        if self.shape != ():
            raise ArgumentTypeError(
                f"cannot make a number of an array of shape {self.shape}: only of one without dims"
            )
        self.memory.check_values("read", self.type, noted=True)
        return self.memory.number_in(self.gather())

    def __bool__(self) -> bool:
        if self.shape != ():
            raise ArgumentTypeError(
                f"cannot say whether an array of shape {self.shape} is true; "
                "write pgas.any or pgas.all, or & and | between masks"
            )
        return bool(self._element())

    def __format__(self, how: str) -> str:
        if how and self.shape == ():
            return format_number(self, how)
        return format(str(self), how)

    def __int__(self) -> int:
        return int(self._element())

    def __float__(self) -> float:
        return float(self._element())

    def __round__(self, ndigits: int | None = None) -> Any:
        if ndigits is None and self.shape == ():
            return round(self._element().item())
        return self.round(ndigits or 0)

    def __complex__(self) -> complex:
        return complex(self._element())

    def __index__(self) -> int:
        if number_kind(self.dtype) not in "iu":
            raise ArgumentTypeError(f"an array of {self.type.dtype} is not an index")
        return int(self._element())

    def __len__(self) -> int:
        if self.shape == ():
            raise ArgumentTypeError("an array without dims has no length")
        return self.shape[0]

    # Elements

    def __iter__(self) -> Iterator[Array]:
        if self.shape == ():
            raise ArgumentTypeError("cannot iterate over an array without dims")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool(reductions.any(self == value))

    def __getitem__(self, key: Any) -> Array:
        return dispatch.get(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        dispatch.put(self, key, value)

    # Elements, from any rank

    def get(self, index: Any) -> Any:
        """**Local.** Read the elements at a global index, on whichever ranks they lie, as a NumPy array.

        **Collective** if the index is or contains a global array of integers: then the result, like that of
        ``a[index]``, is a global array that is cut as the index arrays are. A program inspects such an index
        once, and from then on passes only values, for as long as the index stays the same.

        Elements can be read after the first :meth:`epoch` or :meth:`fence`. Inside an epoch, they have the
        values from the start of the interval; see :mod:`redist.pgas.onesided.get_put`. On a GPU, the result
        stays there: looking at one element requires a copy to the host.
        """
        if inspected.names_arrays(index):
            get_put.check_closed(self, "get elements of")
            return inspected.get(self, index)
        self.memory.check_tile("get elements of", self.type, BY_GLOBAL)
        return get_put.get(self, index)

    def put(self, index: Any, values: Any) -> None:
        """**Local.** Write to a global index inside an epoch; the values are visible after the next fence."""
        self.memory.check_tile("put into", self.type)
        get_put.put(self, index, values)

    def accumulate(self, index: Any, values: Any, op: str = "sum") -> None:
        """**Local.** Combine elements with values by sum, prod, max, min or replace, inside an epoch.

        **Collective** if the index is or contains a global array of integers and ``values`` is a global
        array: then it is done at once, as an epoch of its own, and also works in programs.
        """
        if inspected.names_arrays(index):
            get_put.check_closed(self, "accumulate into")
            inspected.accumulate(self, index, values, op)
            return
        self.memory.check_tile("accumulate into", self.type, BY_GLOBAL)
        get_put.accumulate(self, index, values, op)

    @left_alone
    def epoch(
        self, timeout_s: float | None = TIMEOUT_S, *, prefetch: bool = True, cache: bool = True
    ) -> epochs.Epoch[Array]:
        """**Collective** at both ends. Let any rank call get, put and accumulate: ``with a.epoch():``.

        Data read from other nodes is cached until the fence, and prefetched in the next interval;
        ``cache=False`` and ``prefetch=False`` switch these off, for comparison.
        """
        self.memory.check_tile("open an epoch on", self.type)
        return epochs.Epoch(self, timeout_s, prefetch, cache)

    @left_alone
    def fence(self, timeout_s: float | None = TIMEOUT_S) -> None:
        """**Collective.** Make all earlier puts and writes, on any rank, visible to all ranks."""
        self.memory.check_tile("fence", self.type)
        epochs.fence(self, timeout_s)

    def __repr__(self) -> str:
        return format_array(self)

    def __str__(self) -> str:
        return format_value(self)


def _restore(
    on_device: bool, type: ArrayType, local: Tile | None, rank: int, size: int, owed: Any = None
) -> Array:
    """**Local.** Load a pickle, which has what one rank holds; refuse it where that is not this rank's.

    What every rank held whole is held whole by every rank here, however many there are.
    """
    comm, memory = comm_or_world(None), memory_for(on_device)
    if (
        local is not None and not type.used and comm.size != size
    ):  # everything: each rank has it here
        alike = ((),) * len(type.shape)
        everywhere = ArrayType(line_mesh(comm.size), type.dtype, type.shape, alike)
        return Array(everywhere, comm, local, memory)
    has_all = type.mesh.n_devices == size and not type.used
    if comm.size != size or (comm.rank != rank and not has_all):
        raise RequestError(
            f"cannot load {type} on rank {comm.rank} of {comm.size}: the pickle has what rank {rank} of "
            f"{size} held; pickle or send a.gather(), or write all of it with pgas.write_npy"
            f"{pickling_advice()}"
        )
    made = Array(type, comm, local, memory)
    made._owes = owed
    return made
