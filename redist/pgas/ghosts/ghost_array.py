"""Global arrays whose tiles are ghosts: programs are captured with them."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from redist.errors import CaptureError
from redist.layout.array_type import ArrayType
from redist.pgas.ghosts.memory import DEVICE_GHOSTS, GHOSTS
from redist.pgas.ghosts.tape import RETURN_IT, current_tape
from redist.pgas.global_array import Array
from redist.pgas.memory import TileMemory
from redist.pgas.tiles.tiled import Tile, Tiled
from redist.runtime.ranks.waiting import TIMEOUT_S
from redist.runtime.ranks.world import Comm
from redist.text.call_site import calling_line

END_IT = "end the program first, or use pgas.map_tiles"
OUTSIDE_IT = "return it, and gather or write it outside"


class GhostArray(Array):
    """An :class:`Array` as a program sees it while it is captured: types and shapes, no values."""

    __slots__ = ()
    _memory: ClassVar[TileMemory] = GHOSTS
    _kinds: ClassVar[dict[bool, type[Tiled]]] = {}

    def __init__(self, type: ArrayType, comm: Comm, local: Tile | None) -> None:
        self._type, self.comm, self.tile = type, comm, local
        self._is_shared = self._space = None
        self._version = 0
        tape = current_tape()
        if tape is not None:
            tape.made(type, local)

    @property
    def local(self) -> NoReturn:
        """Refused: a program has no values before it runs."""
        self._reach_into("reach into")

    @Array.version.setter  # type: ignore[attr-defined, untyped-decorator]
    def version(self, value: int) -> None:
        """How often the program has changed the values; every change goes onto the tape."""
        self._version = value
        tape = current_tape()
        if tape is not None:
            tape.updated(self.tile)

    def gather(self) -> Tile:
        """Refused, because a program has no values before it runs; an explanation notes the move."""
        if not _explains():
            self._read("gather", OUTSIDE_IT)
        return super().gather()

    def __array__(self, *args: Any, **options: Any) -> NoReturn:
        self._read("make a NumPy array of", OUTSIDE_IT)

    def _element(self) -> Any:
        if not _explains():
            self._read("read")
        super().gather()
        return self.dtype.type(1)

    def _tile(self) -> NoReturn:
        self._reach_into("reach into")

    def get(self, index: Any) -> NoReturn:
        """Refused: one rank's indices are no part of a program."""
        self._reach_into("get elements of")

    def put(self, index: Any, values: Any) -> NoReturn:
        """Refused: one rank's indices are no part of a program."""
        self._reach_into("put into")

    def accumulate(self, index: Any, values: Any, op: str = "sum") -> NoReturn:
        """Refused: one rank's indices are no part of a program."""
        self._reach_into("accumulate into")

    def epoch(
        self, timeout_s: float | None = TIMEOUT_S, *, prefetch: bool = True, cache: bool = True
    ) -> NoReturn:
        """Refused: one rank's indices are no part of a program."""
        self._reach_into("open an epoch on")

    def fence(self, timeout_s: float | None = TIMEOUT_S) -> NoReturn:
        """Refused: one rank's indices are no part of a program."""
        self._reach_into("fence")

    def __reduce__(self) -> NoReturn:
        self._read("pickle")

    def __repr__(self) -> str:
        return f"<{self.type}, captured: no values>"

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, how: str) -> str:
        if not how or self.shape:
            return format(repr(self), how)
        if not _explains():
            self._read("format")
        return format(self.dtype.type(1), how)

    def _read(self, what: str, instead: str = RETURN_IT) -> NoReturn:
        raise CaptureError(
            f"cannot {what} {self.type} in a program ({calling_line()}): its value is not known "
            f"before the program runs; {instead}"
        )

    def _reach_into(self, what: str) -> NoReturn:
        raise CaptureError(f"cannot {what} {self.type} in a program ({calling_line()}): {END_IT}")


def _explains() -> bool:
    tape = current_tape()
    return tape is not None and tape.explains


class DeviceGhostArray(GhostArray):
    """A :class:`GhostArray` in the place of an array on GPUs."""

    __slots__ = ()
    _memory: ClassVar[TileMemory] = DEVICE_GHOSTS


GhostArray._kinds.update({False: GhostArray, True: DeviceGhostArray})


def ghost_kind(kind: type[Tiled]) -> type[GhostArray]:
    """The kind of ghosts that stands in the place of arrays of a kind."""
    return DeviceGhostArray if kind._memory.on_device else GhostArray
