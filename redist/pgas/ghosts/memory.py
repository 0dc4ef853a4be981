"""Memory for tiles that are not there: what would be allocated goes onto the tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from redist.errors import CaptureError
from redist.pgas.elementwise.on_device import compute, is_plain
from redist.pgas.ghosts.ghost import DeviceGhost, Ghost, likes_of, note, refs_of, write
from redist.pgas.ghosts.stand_ins import KNOWN, pretend, try_out
from redist.pgas.ghosts.tape import Tape, TaskKind, current_tape
from redist.pgas.memory import BUFFERS, DEVICE, Tile, TileMemory


class GhostMemory(TileMemory):
    """Gives ghosts, and counts nothing; ``real`` is where tiles come from when the program runs."""

    is_ghost = True
    is_plain = False
    ghost_kind: ClassVar[type[Ghost]] = Ghost

    def __init__(self, real: TileMemory) -> None:
        super().__init__()
        self.real = real

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
        """**Local.** Note that a function writes a tile."""
        ghosts: list[Ghost] = []
        refs = refs_of((tile, *args), ghosts)
        reads = [one.root for one in ghosts]
        tile.tape.record(TaskKind.WRITE, function, refs, {}, None, reads, (tile.root,))


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
        return self._carried(self.real.asarray, known, like, DeviceGhost)

    def host(self, tile: Any) -> Any:
        """**Local.** A ghost in memory."""
        return self._carried(self.real.host, tile, pretend(tile.shape, tile.dtype), Ghost)

    def contiguous(self, tile: Any) -> Any:
        """**Local.** Copy a ghost into C order; itself if it is."""
        if tile.flags.c_contiguous:
            return tile
        return self._carried(
            self.real.contiguous, tile, pretend(tile.shape, tile.dtype), DeviceGhost
        )

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

    def _carried(
        self, function: Callable[..., Any], given: Any, like: Any, kind: type[Ghost]
    ) -> Ghost:
        """A ghost that a task of one operand gives."""
        tape = _tape()
        made = kind(like, tape)
        ghosts: list[Ghost] = []
        refs = refs_of((given,), ghosts)
        reads = [one.root for one in ghosts]
        tape.record(TaskKind.PURE, function, refs, {}, made.number, reads)
        return made


GHOSTS = GhostMemory(BUFFERS)
DEVICE_GHOSTS = DeviceGhostMemory(DEVICE)
