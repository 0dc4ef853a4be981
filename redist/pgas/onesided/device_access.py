"""One array on GPUs in the global address space: reads go to the GPU, writes are sorted by element there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from redist.errors import ArgumentTypeError
from redist.pgas.kinds import is_stored, tile_dtype
from redist.pgas.memory import DEVICE, TileMemory
from redist.pgas.onesided.address_space import (
    NAMES,
    ArrayAccess,
    kept_shape,
)
from redist.pgas.onesided.index_selection import TileSelection
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.parts import fold_in, joined, places_of
from redist.runtime.cuda.window import DeviceWindow
from redist.runtime.elements.inspected import OPS
from redist.runtime.index_sets.part import Part
from redist.runtime.onesided.delivery import once, open_record, refer
from redist.runtime.onesided.window import Index
from redist.runtime.shm.segments import Bytes

# What a rank was given to do, in order, is done in groups: writes of slices one by one, by CuPy's functions;
# those of lists, and small ones that follow each other, element by element, sorted, by one kernel.

KEEP_FROM = 2**12
"""Values of the host of fewer bytes travel; others wait on the GPU for their owners."""
SMALL_ELEMS = 2**12
"""Writes of slices up to this size join others in a group, where they stand side by side."""
GROUP_ELEMS = 2**22
"""So many elements are noted before they are written."""
LISTED_ELEMS = 2**16
"""A record has no more indices: they travel, their values do not."""

Taken = tuple[int, Part, Any]
"""The number of what is to be done, with which part, and values that stretch to it."""


class DeviceAccess(ArrayAccess):
    """What this rank knows of an array on GPUs in the global address space."""

    memory: ClassVar[TileMemory] = DEVICE
    window: DeviceWindow

    __slots__ = ("_n_taken", "_taken", "values_dtype")

    def __init__(self, window: DeviceWindow) -> None:
        super().__init__(window)
        self.views = [None] * len(self.views)  # every read is a copy
        self.dtype = self.type.dtype.named_numpy()
        self.values_dtype = (
            np.dtype(np.uint8) if is_stored(self.dtype) else tile_dtype(self.type.dtype)
        )
        """Of tiles on the GPU."""
        self._taken: list[Taken] = []
        self._n_taken = 0

    def new(self, shape: tuple[int, ...]) -> Any:
        """**Local.** An array for elements that are copied."""
        return DEVICE.empty(shape, self.values_dtype, 0).view(self.window.dtype)

    def given(self, out: Any) -> Any:
        """**Local.** Elements that were read, as the user gets them: on the GPU, also a single one."""
        return out.view(self.values_dtype)

    def copied(self, selection: TileSelection, values: Any) -> Any:
        """Copy values as they are now, in the array's dtype; those that repeat are kept once.

        Few that come from the host stay there, and travel. Others lie on the GPU.
        """
        on_gpu = is_device(values)
        shape = kept_shape(selection, values.shape if on_gpu else np.shape(values))
        n_bytes = math.prod(shape) * self.dtype.itemsize
        if on_gpu:
            if is_stored(self.dtype) and values.dtype != self.values_dtype:
                raise ArgumentTypeError(
                    f"cannot put {values.dtype} of a GPU into {self.type}: give values of the host"
                )
            data: Any = DEVICE.empty(shape, self.values_dtype, n_bytes)
            data[...] = values
        else:
            data = np.empty(shape, self.dtype)
            data[...] = values
            if n_bytes >= KEEP_FROM:
                DEVICE.check_room(n_bytes)
                data = DEVICE.asarray(data)
        if is_device(data):
            self._keep(data)
        wide = data if shape == selection.shape else np.broadcast_to(data, selection.shape)
        return wide.reshape(selection.part.shape)

    def _keep(self, data: Any) -> None:
        """**Local.** Keep values on the GPU until the interval ends, and count them."""
        DEVICE.adopt(data, 0)
        self.staged.append(data)

    def part_of(self, data: Any, piece: Part, where: Index) -> Any:
        """**Local.** The values of a part."""
        if not (is_device(data) and piece.has_list):
            return super().part_of(data, piece, where)
        there = (DEVICE.asarray(one) if isinstance(one, np.ndarray) else one for one in where)
        given = data[tuple(there)]
        self._keep(given)
        return given

    def on_host(self, given: Any) -> Any:
        """**Local.** Values that travel."""
        if not is_device(given):
            return given
        return np.broadcast_to(DEVICE.host(once(given)).view(self.dtype), given.shape)

    def references(self, code: int, piece: Part, given: Any) -> Iterator[Bytes]:
        """**Local.** Records for owners on the node that leave values where they are; none if they travel."""
        if not is_device(given) or self.window.place_of(given) is None:
            return
        for small, there in piece.split(LISTED_ELEMS) if piece.has_list else [(piece, ())]:
            values = once(given[(*there, ...)])
            place = self.window.place_of(values)
            assert place is not None
            yield refer(code, small, values, place)

    def take(self, record: Bytes) -> None:
        """**Local.** Note a write to this rank's tile; it is done with others, in order."""
        window, dtype = self.window, self.values_dtype
        taken = open_record(
            record.copy(), dtype, lambda place, shape: window.at_place(place, shape, dtype)
        )
        self._taken.append(taken)
        self._n_taken += taken[1].n_elems
        if self._n_taken >= GROUP_ELEMS:
            self._write_taken()

    def finish(self) -> None:
        """**Local.** Have done all that was taken, when the stream has come to its end."""
        self._write_taken()
        DEVICE.settle()

    def _write_taken(self) -> None:
        taken, self._taken, self._n_taken = self._taken, [], 0
        group: list[Taken] = []
        for one in taken:
            if not one[1].has_list and one[1].n_elems > SMALL_ELEMS:
                self._write_group(group)
                group = []
                self._write_slices(*one)
            else:
                group.append(one)
        self._write_group(group)

    def _write_slices(self, code: int, part: Part, values: Any) -> None:
        """**Local.** Do a write of slices."""
        tile: Any = self.tile
        view, function = tile[(*part.index(tile.shape), ...)], OPS[NAMES[code]]
        if not is_device(values):
            values = DEVICE.asarray(values)
        if function is None:
            view[...] = values
        else:
            function(view, values, out=view)

    def _write_group(self, group: list[Taken]) -> None:
        """**Local.** Do writes of lists, and small ones, element by element."""
        if len(group) == 1 and not group[0][1].has_list:
            self._write_slices(*group[0])
        elif group:
            is_raw = self.type.dtype.extended_name is not None
            tile: Any = self.window.raw if is_raw else self.tile
            values = [
                np.broadcast_to(given, part.shape).reshape(-1).view(tile.dtype)
                for _, part, given in group
            ]
            at = np.concatenate([places_of(part, tile) for _, part, _ in group])
            fold_in(tile, at, joined(values), [(code, part.n_elems) for code, part, _ in group])
