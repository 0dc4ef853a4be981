"""Global arrays whose tiles lie on GPUs: the same rules, and CuPy's arrays in place of NumPy's."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from redist.pgas.global_array import Array
from redist.pgas.memory import DEVICE, TileMemory
from redist.pgas.tiles.devices import refuse
from redist.pgas.tiles.tiled import Tiled
from redist.runtime.ranks.waiting import TIMEOUT_S


class DeviceArray(Array):
    """An :class:`Array` with tiles on the GPUs of its ranks, made by ``device="cuda"``.

    ``local`` and ``gather()`` are CuPy's arrays, ready on the current stream. What has no rule for
    GPUs (sorting, sets, indexing by arrays, decompositions, elements that pass between ranks by
    selection) works on copies in memory; one-sided access is refused.
    """

    __slots__ = ()
    _memory: ClassVar[TileMemory] = DEVICE

    def __buffer__(self, flags: int) -> memoryview:
        refuse("take the buffer of")

    def get(self, index: Any) -> NoReturn:
        """Refused: other ranks cannot reach into a GPU."""
        refuse("get elements of")

    def put(self, index: Any, values: Any) -> NoReturn:
        """Refused: other ranks cannot reach into a GPU."""
        refuse("put into")

    def accumulate(self, index: Any, values: Any, op: str = "sum") -> NoReturn:
        """Refused: other ranks cannot reach into a GPU."""
        refuse("accumulate into")

    def epoch(
        self, timeout_s: float | None = TIMEOUT_S, *, prefetch: bool = True, cache: bool = True
    ) -> NoReturn:
        """Refused: other ranks cannot reach into a GPU."""
        refuse("open an epoch on")

    def fence(self, timeout_s: float | None = TIMEOUT_S) -> NoReturn:
        """Refused: other ranks cannot reach into a GPU."""
        refuse("fence")


Tiled._kinds[True] = DeviceArray
