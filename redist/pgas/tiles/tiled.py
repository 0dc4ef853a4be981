"""What a global array is made of: a type, a communicator, and the tile of this rank."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from redist.errors import CaptureError, LayoutError, MissingNameError
from redist.layout.array_type import ArrayType
from redist.layout.axes import format_axes
from redist.layout.mesh import Mesh
from redist.layout.tiles import Box, box_of, spans_of
from redist.pgas.kinds import array_dtype
from redist.pgas.limit_in_force import current_limit
from redist.pgas.memory import BUFFERS, SHARED_FROM, TileMemory
from redist.runtime.ranks.world import Comm

# Which part of a global array this rank holds.


def own_box(x: Tiled) -> Box:
    """Start and end of indices along every dim, on a rank that has a tile of the array."""
    box = box_of(x.type, x.comm.rank)
    assert box is not None
    return box


def own_boxes(x: Tiled) -> Iterator[tuple[Tile, Box]]:
    """The parts of this rank's tile that are boxes of the array, and these: one if no dim has segments."""
    tile = tile_in(x)
    assert tile is not None
    if not x._type.segments:
        yield tile, own_box(x)
        return
    spans = spans_of(x._type, x.comm.rank)
    assert spans is not None
    for box in itertools.product(*spans):
        part = []
        for (lo, hi), dim in zip(box, spans, strict=True):
            start = sum(end - begin for begin, end in dim if end <= lo)
            part.append(slice(start, start + hi - lo))
        yield tile[tuple(part)], box


Tile = NDArray[Any]
T = TypeVar("T", bound="Tiled")
"""A kind of global array: functions give the kind that they were given."""


class Tiled:
    """A global array as its rank sees it.

    ``tile`` is what this rank holds: no copy, None on ranks outside the mesh. ``type`` may say that a
    reduction is pending; :attr:`settled` has the values. ``version`` counts what may have changed the
    values. ``memory`` says, on all ranks alike, where the tiles lie: on the host, on a GPU, or, while a
    program is captured, nowhere.

    A spilled array has no attribute ``tile`` until somebody asks for it, which reloads the tile::

        on the host  tile: a NumPy array   _stored: None
        on a GPU     tile: a CuPy array    _stored: None
        captured     tile: a ghost         _stored: as before
        spilled      no tile               _stored: its place in a file, or in pinned memory
        segments     no tile               _stored: the tile, for what knows that it is not a box

    The last is an array whose dims have segments. A function that takes tiles for boxes would be wrong
    there; it asks for the tile, and is refused. :func:`tile_in` is for those that know better.
    """

    __slots__ = (
        "__weakref__", "_is_shared", "_owes", "_space", "_stored", "_type", "_version", "comm", "memory",
        "tile",
    )  # fmt: skip
    tile: Tile | None
    memory: TileMemory
    _stored: Any
    _space: Any
    """None before other ranks can reach the tiles."""
    _version: int
    _owes: np.dtype[Any] | None
    """The dtype that values are cast to once the pending sum is finished: partial values of 16-bit floats are
    f32, as the type says, so that a sum is rounded once. None if nothing is owed."""
    _is_shared: object
    """None before others may write to the tile without a word, whoever asked for it or has a view of it: the
    same on all arrays that lie in one memory."""

    def __init__(
        self, type: ArrayType, comm: Comm, local: Tile | None, memory: TileMemory = BUFFERS
    ) -> None:
        self._type, self.comm, self.memory = type, comm, memory
        self._is_shared = self._space = self._stored = self._owes = None
        self._version = 0
        if type.segments:
            self._stored = SegmentTile(type, local, memory)
            return
        self.tile = local
        if memory.is_ghost or (
            local is not None
            and (local.nbytes >= SHARED_FROM or current_limit().limit_bytes is not None)
        ):
            memory.enrol(self)

    def new(self: T, type: ArrayType, local: Tile | None) -> T:
        """Another array over the same ranks, in the same memory; what is still pending owes the same cast."""
        made = self.__class__(type, self.comm, local, self.memory)
        if self._owes is not None and type.pending_op is not None:
            made._owes = self._owes
        return made

    def sharing(self: T, type: ArrayType, local: Tile | None) -> T:
        """Another array over the same tile: from now on, versions of neither say all."""
        other = self.new(type, local)
        other._is_shared = self.share()
        return other

    def share(self) -> object:
        """**Local.** Count as shared from now on; what all arrays in this memory have in common."""
        token = self._is_shared
        if token is None:
            token = self._is_shared = object()
        return token

    @property
    def shared_with(self) -> object:
        """What all arrays in the same memory have in common; None if nobody has asked for it."""
        return self._is_shared

    @property
    def is_shared(self) -> bool:
        """Whether the values may change on this rank without a new :attr:`version`."""
        return self.shared_with is not None or self._space is not None

    @property
    def local(self) -> Tile | None:
        """The tile of this rank: writable and not a copy; None on ranks outside the mesh.

        Whoever asks for it may write to it, now or later, so the array counts as changed and as shared.
        """
        self.memory.check_tile("reach into", self._type)
        self.version += 1
        self.share()
        return tile_in(self)

    @property
    def version(self) -> int:
        """How many times the values may have changed on this rank."""
        return self._version

    @version.setter
    def version(self, value: int) -> None:
        self._version = value
        if self.memory.is_ghost:
            self.memory.updated(self)

    def _take_over(self, other: Tiled) -> None:
        """**Local.** Let the tile and the type of another array be this one's: its values have changed."""
        self._type, self._owes = other._type, other._owes
        if other._type.segments:
            self._stored = other._stored
        else:
            hold(self, other.tile)
        self.version += 1

    def _reload(self) -> Tile | None:
        """**Local.** Load the tile of a spilled array, which has it from now on."""
        tile: Tile = self._stored.load()
        hold(self, tile)
        return tile

    @property
    def type(self) -> ArrayType:
        """How the array lies on its mesh, including a pending reduction."""
        return self._type

    @property
    def mesh(self) -> Mesh:
        """The mesh of devices that hold the array."""
        return self._type.mesh

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of all dims of the whole array."""
        return self._type.shape

    @shape.setter
    def shape(self, value: Any) -> None:
        raise MissingNameError(
            f"cannot set the shape of {self._type}: write a = a.reshape({value})"
        )

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self._type.shape)

    @property
    def size(self) -> int:
        """The number of elements in the whole array."""
        return self._type.global_elems

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements; for a pending sum that owes a cast, the dtype after the cast."""
        owed = self._owes
        if owed is not None:
            return owed
        return array_dtype(self._type.dtype)


_CAPTURED = (
    "cannot use {} in a program: a dim with segments is not captured; move the array to a plain type before "
    "the call, and back after it"
)


class SegmentTile:
    """The tile of an array whose dims have segments, in the place of a spilled one."""

    __slots__ = ("tile", "type")

    def __init__(self, type: ArrayType, tile: Tile | None, memory: TileMemory) -> None:
        if memory.is_ghost:
            raise CaptureError(_CAPTURED.format(type))
        self.type, self.tile = type, tile

    @property
    def strides(self) -> Any:
        """Refuse: a program is called with the array."""
        raise CaptureError(_CAPTURED.format(self.type))

    def load(self) -> Tile:
        """Refuse: a function wants the tile that does not know of segments."""
        plain = self.type.with_dims(self.type.dims)
        cuts = ", ".join(f"{{{format_axes(plain.mesh, axes)}}}" for axes in plain.dims)
        raise LayoutError(
            f"cannot do this with {self.type}: a tile has several ranges of a dim; move the array to a "
            f"plain type first, as with a.to({cuts!r})"
        )


def tile_in(array: Tiled) -> Tile | None:
    """**Local.** The tile of an array, also if its dims have segments."""
    if array._type.segments:
        return array._stored.tile
    return array.tile


def owing(x: T, dtype: np.dtype[Any] | None) -> T:
    """**Local.** The same pending array, whose values are cast to another dtype once they are finished."""
    made = x.__class__(x._type, x.comm, tile_in(x), x.memory)
    made._owes = dtype
    return made


_TILE: Any = vars(Tiled)["tile"]


def held_by(array: Tiled) -> Any:
    """**Local.** The tile of an array, None, or what is stored in its place: nothing is reloaded."""
    try:
        return _TILE.__get__(array)
    except AttributeError:
        return array._stored


def hold(array: Tiled, tile: Tile | None) -> None:
    """**Local.** Let a tile be that of an array, wherever its own is."""
    array.tile, array._stored = tile, None
    if tile is None or array.memory.is_ghost:
        return
    if tile.nbytes >= SHARED_FROM or current_limit().limit_bytes is not None:
        array.memory.enrol(array)


def hold_stored(array: Tiled, stored: Any) -> None:
    """**Local.** Let go the tile of an array: ``stored`` loads it when somebody asks for it."""
    if array._stored is None:
        del array.tile
    array._stored = stored
