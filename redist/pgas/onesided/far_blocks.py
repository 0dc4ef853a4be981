"""Blocks of tiles on other nodes, kept within an interval and fetched ahead in the next.

Reads of an interval see the values from its start, so what was fetched stays right until the fence: no rank
must be told. A line of a program reads much the same blocks in every interval: when it misses one, all
that it read in the interval before are fetched with it, in one go.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np

from redist.pgas.keeper import FAR_BYTES
from redist.pgas.tiles.tiled import Tile
from redist.pgas.watch.seam import FarRead, traffic
from redist.runtime.index_sets.part import Part
from redist.runtime.onesided.window import Index, Window
from redist.text.call_site import Line

Block = tuple[int, Part]
"""The number of a tile, and which part of it."""


_NUMBERS = count()


class FarBlocks:
    """Reads parts of tiles for one array, those of other nodes as seldom as can be.

    ``prefetch`` and ``cache`` may be switched off, for comparison.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self.prefetch = self.cache = True
        self._number = next(_NUMBERS)
        self._interval = 0
        self._now: dict[Line, dict[Any, Block]] = {}
        """By line: what it has read in this interval."""
        self._before: dict[Line, dict[Any, Block]] = {}
        self._kept: list[Any] = []
        self._ahead: dict[Any, tuple[Line, int]] = {}
        """What was fetched ahead and not read yet: for which line, and its bytes."""

    def read(self, parts: Iterable[tuple[int, Part, Index]], out: Tile, line: Line) -> None:
        """**Local.** Copy parts of tiles to places in ``out``."""
        near, missing = [], []
        for shard, part, where in parts:
            if shard not in self.window.sources:
                near.append((shard, part, where))
                continue
            key = self._key(shard, part)
            self._now.setdefault(line, {})[key] = shard, part
            block = FAR_BYTES.get(key) if self.cache else None
            if block is None:
                missing.append((key, shard, part, where))
            else:
                out[where] = block
                self._ahead.pop(key, None)
                traffic().note_far_read(line, FarRead(hits=1, kept_bytes=block.nbytes))
        if near:
            self.window.read(near, out)
        if missing:
            self._fetch(missing, out, line)

    def _fetch(self, missing: list[tuple[Any, int, Part, Index]], out: Tile, line: Line) -> None:
        """Fetch what is missing, and with it what the line read in the interval before."""
        wanted = {key: (shard, part) for key, shard, part, _ in missing}
        ahead: dict[Any, Block] = {}
        if self.prefetch and self.cache:
            before = self._before.pop(line, {})  # once in an interval
            there = self._now[line]
            for shard, part in before.values():
                key = self._key(shard, part)
                if key not in wanted and key not in there:
                    ahead[key] = shard, part
        dtype = self.window.dtype
        blocks = {
            key: np.empty(part.shape, dtype) for key, (_, part) in {**wanted, **ahead}.items()
        }
        self.window.fetch(
            [(shard, part, blocks[key]) for key, (shard, part) in {**wanted, **ahead}.items()]
        )
        fetched = sum(block.nbytes for block in blocks.values())
        traffic().note_far_read(line, FarRead(misses=len(wanted), fetched_bytes=fetched))
        for key, _, _, where in missing:
            out[where] = blocks[key]
        if self.cache:
            for key, block in blocks.items():
                if FAR_BYTES.put(key, block, block.nbytes):
                    self._kept.append(key)
                    if key in ahead:
                        self._ahead[key] = line, block.nbytes

    def _key(self, shard: int, part: Part) -> Any:
        return self._number, self._interval, shard, part.words().tobytes()

    def end_interval(self) -> None:
        """**Local.** Keep nothing of this interval but what its lines have read."""
        for line, n_bytes in self._ahead.values():
            traffic().note_far_read(line, FarRead(wasted_bytes=n_bytes))
        for key in self._kept:
            FAR_BYTES.drop(key)
        self._interval += 1
        self._before, self._now = self._now, {}
        self._kept, self._ahead = [], {}
