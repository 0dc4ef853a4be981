"""Run the plan of one array on all ranks: read parts, assemble blocks, write each unit whole and once."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.tiles import Box
from redist.pgas.files.heads import ArrayHead, Reader
from redist.pgas.files.shares import readable
from redist.pgas.files.workers import Workers
from redist.runtime.files.disk import disk, write_bytes
from redist.runtime.files.kernels import READ, carry_runs
from redist.runtime.files.new_file import NewTree
from redist.store.chunks.grids import Grid, extent, inside, place_of_piece, shared
from redist.store.chunks.targets import Target
from redist.store.chunks.ways import ArrayPlan

Values = NDArray[Any]
TOGETHER = 16
"""So many chunks are asked for in one call; they are still decoded one after another."""


@dataclass(slots=True)
class ArrayRun:
    """What one rank does for one array."""

    plan: ArrayPlan
    head: ArrayHead
    rank: int
    reader: Reader
    target: Target
    units_done: Flags
    workers: Workers
    out: NewTree
    tell: Callable[[int], None]
    scratch_read: int = 0
    scratch_written: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _buffer: Values = field(default_factory=lambda: np.empty(0, np.uint8))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of elements in memory."""
        return self.head.dtype.newbyteorder("=")

    @property
    def read_bytes(self) -> int:
        """What this rank has read."""
        return self.reader.read_bytes + self.scratch_read

    @property
    def written_bytes(self) -> int:
        """What this rank has written."""
        return self.target.written_bytes + self.scratch_written

    def own(self, grid: Grid) -> range:
        """The numbers of the boxes of a grid that are this rank's."""
        return range(self.rank, grid.n_boxes, self.plan.request.ranks)

    def direct(self) -> None:
        """**Local.** Assemble own blocks of units, and write those units that are not there yet."""
        for number in self.own(self.plan.blocks):
            block = self.plan.blocks.nth(number)
            todo = [one for one in self._units_in(block) if not self.units_done[one]]
            if todo:
                self.out.stop_if_failed()
                write = partial(self._write_unit, block, self._read_block(block))
                self.workers.each(write, todo)
            self.tell(math.prod(extent(block)) * self.dtype.itemsize)

    def fill_scratch(self, path: Path, done: Flags) -> None:
        """**Local.** Decode own blocks of the source, and put the pieces where their units lie."""
        file = os.open(path, os.O_WRONLY)
        try:
            for number in self.own(self.plan.blocks):
                block = self.plan.blocks.nth(number)
                if not done[number]:
                    self.out.stop_if_failed()
                    put = partial(self._put, file, block, self._read_block(block))
                    self.workers.each(put, map(self.plan.units.box, self.plan.units.met_by(block)))
                    done.set(number)
                self.tell(math.prod(extent(block)) * self.dtype.itemsize // 2)
        finally:
            os.close(file)
            self._buffer = np.empty(0, np.uint8)

    def write_units(self, path: Path) -> None:
        """**Local.** Take own units from the scratch file, and write those that are not there yet."""
        file = os.open(path, os.O_RDONLY)
        try:
            todo = [one for one in self.own(self.plan.units) if not self.units_done[one]]
            self.workers.each(lambda one: self._take_and_write(file, one), todo)
        finally:
            os.close(file)

    def _read_block(self, block: Box) -> Values:
        """**Local.** All elements of a block, in a buffer that is used again."""
        elems = math.prod(extent(block))
        if self._buffer.nbytes < elems * self.dtype.itemsize:
            self._buffer = np.empty(elems * self.dtype.itemsize, np.uint8)
        flat = self._buffer[: elems * self.dtype.itemsize].view(self.dtype)
        values = flat.reshape(extent(block))
        by_slabs = self.head.parts is None and self.plan.way.part is not None
        read = self._pick if by_slabs else self._read
        with readable(self.head.path):
            self.workers.each(partial(read, block, values), self._reads(block))
        return values

    def _read(self, block: Box, values: Values, box: Box) -> None:
        own = shared(box, block)
        self.reader.read(own, values[inside(own, block)])

    def _pick(self, block: Box, values: Values, box: Box) -> None:
        """**Local.** Read a slab of a raw file in one run, and take from it what is in the block."""
        slab, own = np.empty(extent(box), self.dtype), shared(box, block)
        self.reader.read(box, slab)
        np.copyto(values[inside(own, block)], slab[inside(own, box)])

    def _reads(self, block: Box) -> Iterator[Box]:
        """The boxes that are asked for to fill a block; a box has parts along one dim."""
        part = self.plan.way.part
        if part is None or not block:
            yield block
            return
        several = list(part)
        if self.head.kind == "zarr" and self.head.shards is None:
            met = [-(-hi // p) - lo // p for (lo, hi), p in zip(block, part, strict=True)]
            dim = max((i for i, n in enumerate(met) if n > 1), default=0)
            each = max(1, min(TOGETHER, met[dim] // self.plan.way.threads))
            several[dim] *= each
        grid = Grid(self.plan.request.shape, tuple(several))
        for index in grid.met_by(block):
            yield grid.box(index)

    def _units_in(self, block: Box) -> list[int]:
        counts = self.plan.units.counts
        found = []
        for index in self.plan.units.met_by(block):
            number = 0
            for i, n in zip(index, counts, strict=True):
                number = number * n + i
            found.append(number)
        return found

    def _write_unit(self, block: Box, values: Values, number: int) -> None:
        unit = self.plan.units.nth(number)
        self.target.write(unit, values[inside(unit, block)])
        self.units_done.set(number)

    def _put(self, file: int, block: Box, values: Values, unit: Box) -> None:
        piece = shared(unit, block)
        own = np.ascontiguousarray(values[inside(piece, block)])
        place = place_of_piece(piece, unit, self.plan.request.shape) * self.dtype.itemsize
        write_bytes(file, own, place)
        with self._lock:
            self.scratch_written += own.nbytes

    def _take_and_write(self, file: int, number: int) -> None:
        self.out.stop_if_failed()
        unit = self.plan.units.nth(number)
        values = np.empty(extent(unit), self.dtype)
        for index in self.plan.blocks.met_by(unit):
            piece = shared(self.plan.blocks.box(index), unit)
            room = values[inside(piece, unit)]
            here = room if room.flags.c_contiguous else np.empty(room.shape, self.dtype)
            place = place_of_piece(piece, unit, self.plan.request.shape) * self.dtype.itemsize
            carry_runs(READ, file, here.reshape(-1).view(np.uint8), place, (1,))
            if here is not room:
                np.copyto(room, here)
        self.target.write(unit, values)
        self.units_done.set(number)
        with self._lock:
            self.scratch_read += values.nbytes
            self.tell(values.nbytes // 2)


class Flags:
    """A byte for each of some tasks, in a file that all ranks see: whether it is done."""

    def __init__(self, path: Path, n: int) -> None:
        self._file = disk().create(path, 0, again=True)
        read = os.pread(self._file, n, 0)
        self._done = np.zeros(n, bool)
        self._done[: len(read)] = np.frombuffer(read, np.uint8) != 0

    def __getitem__(self, number: int) -> bool:
        return bool(self._done[number])

    @property
    def n_done(self) -> int:
        """How many were done when the file was opened, or have been by this rank since."""
        return int(self._done.sum())

    def set(self, number: int) -> None:
        """**Local.** Note that a task is done."""
        write_bytes(self._file, b"\1", number)
        self._done[number] = True

    def close(self) -> None:
        """**Local.** Close the file."""
        os.close(self._file)
