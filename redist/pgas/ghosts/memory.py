"""Memory for tiles that are not there: what would be allocated goes onto the tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from redist.errors import CaptureError
from redist.layout.array_type import ArrayType
from redist.pgas.elementwise.on_device import compute, is_plain
from redist.pgas.ghosts.ghost import DeviceGhost, Ghost, likes_of, note, refs_of, write
from redist.pgas.ghosts.stand_ins import KNOWN, pretend, try_out
from redist.pgas.ghosts.tape import RETURN_IT, Tape, TaskKind, current_tape
from redist.pgas.memory import BUFFERS, DEVICE, Tile, TileMemory
from redist.pgas.tiles.tiled import Tiled
from redist.text.call_site import calling_line

END_IT = "end the program first, or use pgas.map_tiles"


class GhostMemory(TileMemory):
    """Gives ghosts, and counts nothing; ``real`` is where tiles come from when the program runs."""

    is_ghost = True
    is_plain = False
    ghost_kind: ClassVar[type[Ghost]] = Ghost

    limit_bytes = None

    def __init__(self, real: TileMemory) -> None:
        super().__init__()
        self.real = real

    def beside(self, on_device: bool) -> GhostMemory:
        """**Local.** The ghosts of the host, or of the GPU."""
        return ghosts_for(on_device)

    def enrol(self, array: Tiled) -> None:
        """**Local.** Note a new array."""
        tape = current_tape()
        if tape is not None:
            tape.made(array.type, array.tile)

    def updated(self, array: Tiled) -> None:
        """**Local.** Note that an array has changed."""
        tape = current_tape()
        if tape is not None:
            tape.updated(array.tile)

    def check_values(
        self, what: str, t: ArrayType, instead: str = RETURN_IT, noted: bool = False
    ) -> None:
        """**Local.** Refuse: a program has no values before it runs. An explanation notes a move."""
        if not noted or not explains():
            raise CaptureError(
                f"cannot {what} {t} in a program ({calling_line()}): its value is not known before the "
                f"program runs; {instead}"
            )

    def check_tile(self, what: str, t: ArrayType, instead: str = END_IT) -> None:
        """**Local.** Refuse: one rank's tiles and indices are not part of a program."""
        raise CaptureError(f"cannot {what} {t} in a program ({calling_line()}): {instead}")

    def number_in(self, tile: Tile) -> Any:
        """**Local.** A number that is made up, for an explanation."""
        return tile.dtype.type(1)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], worst_bytes: int) -> Any:
        """**Local.** A ghost of this shape."""
        tape = _tape()
        made = self.ghost_kind(pretend(shape, dtype), tape)
        given = tuple(shape), np.dtype(dtype), worst_bytes
        tape.record(TaskKind.NEW, self.real.empty, given, {}, made.number)
        return made

    def asarray(self, values: Any) -> Any:
        """**Local.** A ghost is one; values that are known become part of the program."""
        if isinstance(values, Ghost):
            return values
        known = np.array(values)
        return note(_tape(), np.array, (known,), {}, pretend(known.shape, known.dtype))

    def host(self, tile: Tile) -> Tile:
        """**Local.** A ghost is as near as it can be."""
        return tile

    def contiguous(self, tile: Any) -> Any:
        """**Local.** Copy a ghost into C order; itself if it is."""
        if tile.flags.c_contiguous:
            return tile
        return note(tile.tape, np.ascontiguousarray, (tile,), {}, pretend(tile.shape, tile.dtype))

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """**Local.** Note a function of tiles; one of our own is tried out on small arrays."""
        if isinstance(function, np.ufunc) or function in KNOWN:
            return function(*args, **options)
        if isinstance(options.get("out"), Ghost):
            return write(function, args, options, options["out"])
        like = try_out(function, likes_of(list(args)), likes_of(options))
        return note(_tape(), function, args, options, like)

    def check_room(self, n_bytes: int) -> None:
        """**Local.** Nothing is allocated; what an operation would take goes onto the tape."""
        tape = current_tape()
        if tape is not None:
            tape.note_room(n_bytes)

    def adopt(self, tile: Tile, worst_bytes: int) -> None:
        """**Local.** Nothing is held."""

    def write(self, function: Callable[..., None], tile: Any, *args: Any) -> None:
        """**Local.** Note that a function writes a tile, or several."""
        ghosts: list[Ghost] = []
        refs = refs_of((tile, *args), ghosts)
        reads = [one.root for one in ghosts]
        written = [one.root for one in (tile if isinstance(tile, list) else [tile])]
        _tape().record(TaskKind.WRITE, function, refs, {}, None, reads, written)


def explains() -> bool:
    """**Local.** Whether nothing of what is captured will run."""
    tape = current_tape()
    return tape is not None and tape.explains


def _tape() -> Tape:
    tape = current_tape()
    if tape is None:
        raise CaptureError(
            "cannot use an array that was made while a program was captured: it has no values; "
            "return it from the program"
        )
    return tape


class DeviceGhostMemory(GhostMemory):
    """Ghosts of tiles on a GPU; those of tiles in memory come from them, and go to them, by a task."""

    on_device = True
    ghost_kind = DeviceGhost

    def asarray(self, values: Any) -> Any:
        """**Local.** A ghost on the GPU."""
        if isinstance(values, DeviceGhost):
            return values
        known = values if isinstance(values, Ghost) else np.array(values)
        like = pretend(known.shape, known.dtype)
        return note(_tape(), self.real.asarray, (known,), {}, like, kind=DeviceGhost)

    def host(self, tile: Any) -> Any:
        """**Local.** A ghost in memory."""
        like = pretend(tile.shape, tile.dtype)
        return note(_tape(), self.real.host, (tile,), {}, like, kind=Ghost)

    def contiguous(self, tile: Any) -> Any:
        """**Local.** Copy a ghost into C order; itself if it is."""
        if tile.flags.c_contiguous:
            return tile
        return note(_tape(), self.real.contiguous, (tile,), {}, pretend(tile.shape, tile.dtype))

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """**Local.** Note a function of tiles on a GPU as it is."""
        return function(*args, **options)

    def compute(
        self, function: Callable[..., Any], tiles: Sequence[Any], kinds: Sequence[Any], dtype: Any
    ) -> Any:
        """**Local.** Note an element-wise function."""
        like = pretend(np.broadcast_shapes(*(np.shape(tile) for tile in tiles)), dtype)
        if is_plain(function, tiles, dtype):  # nothing is left to look after
            return note(_tape(), function, tiles, {}, like)
        given = function, list(tiles), list(kinds), dtype
        return note(_tape(), compute, given, {}, like)

    def multiply(self, function: Callable[..., Any], x: Any, y: Any, dtype: Any) -> Any:
        """**Local.** Note a product of matrices, which takes 16-bit floats as they lie."""
        stack = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        rows, columns = x.shape[-2:-1], y.shape[-1:] if y.ndim > 1 else ()
        return note(_tape(), function, (x, y, dtype), {}, pretend((*stack, *rows, *columns), dtype))


GHOSTS = GhostMemory(BUFFERS)
DEVICE_GHOSTS = DeviceGhostMemory(DEVICE)


def ghosts_for(on_device: bool) -> GhostMemory:
    """The memory in which programs are captured: of arrays on GPUs, or on the host."""
    return DEVICE_GHOSTS if on_device else GHOSTS
