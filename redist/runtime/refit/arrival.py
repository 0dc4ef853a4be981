"""Where weights arrive, and how they become those that serve: copied, swapped, or in place.

| commit | memory beside the tiles | after a failure |
|---|---|---|
| ``copy`` | as much again | the old weights, where they were |
| ``swap`` | as much again; the tiles that serve are in turn one of two sets | the old weights |
| ``in place`` | none | a mixture: the version is None |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redist.errors import RequestError, TransferError
from redist.runtime.copies.addresses import Addresses
from redist.runtime.refit.copies import BLOCKS, FIRST, Blocks, Copies, begin_of
from redist.runtime.refit.program import Dtypes, Program
from redist.runtime.refit.tiles import Side, view_like
from redist.runtime.shm.segments import can_share, shared_bytes
from redist.text.units import ceil_div, format_bytes

COPY, SWAP, IN_PLACE = COMMITS = ("copy", "swap", "in place")
ALIGN = 256
"""Tiles of a set that is made here begin at multiples of this."""


@dataclass(frozen=True, slots=True)
class Handover:
    """Copies between sets of tiles: before weights arrive, and when all have."""

    before: Copies | None = None
    after: Copies | None = None


class Arrival:
    """The tiles that a refit writes, and what makes them those that serve.

    ``sets`` are the places in which weights arrive in turn, as addresses by number of the tensor. For
    copies and swaps they are made here, in memory that is ``shared`` with the node if that is asked for.
    """

    def __init__(self, side: Side, commit: str, dtypes: Dtypes, shared: bool) -> None:
        self.commit, self._side, self._dtypes = commit, side, dtypes
        self._own = side.addresses()
        self._numbers = sorted(side.tiles)
        self.turn = 0
        """The set in which the next weights arrive."""
        n_made = {COPY: 1, SWAP: 2, IN_PLACE: 0}[commit]
        self._memory = [self._made(shared) for _ in range(n_made)]
        self.sets: list[Addresses] = [self._placed(memory) for memory in self._memory]
        if commit == IN_PLACE:
            self.sets = [self._own]
        if commit == SWAP:  # what was given serves from the first set, and may go
            self.turn = 1
            self._run(self._copies(self._whole(self._numbers)), self.sets[0], self._own)
            for k in self._numbers:
                tile = side.tiles[k]
                side.tiles[k] = replace(tile, array=self._view(0, k), address=int(self.sets[0][k]))

    @property
    def keeps_old(self) -> bool:
        """Whether the old weights outlive a failure."""
        return self.commit != IN_PLACE

    @property
    def is_shared(self) -> bool:
        """Whether neighbours may write all sets, because they were made so."""
        return bool(self._memory) and self._side.gpu is None

    @property
    def tiles(self) -> dict[str, Any]:
        """The arrays that serve, by name."""
        names, tiles = self._side.names, self._side.tiles
        if self.commit != SWAP:
            return {names[k]: tiles[k].array for k in self._numbers} | self._side.empty
        return {names[k]: self._view(1 - self.turn, k) for k in self._numbers} | self._side.empty

    def prepare(self, program: Program) -> Handover:
        """**Local.** What is copied around a program: swaps keep what it does not write."""
        sizes = {k: self._side.tiles[k].n_bytes for k in self._numbers}
        if self.commit == COPY:
            complete = [k for k, n_bytes in program.written.items() if n_bytes == sizes[k]]
            parts = program.arrivals[~np.isin(program.arrivals["dst"], complete)]
            return Handover(after=self._copies(np.concatenate([self._whole(complete), parts])))
        if self.commit == SWAP:
            kept = [k for k in self._numbers if program.written.get(k, 0) < sizes[k]]
            return Handover(before=self._copies(self._whole(kept)))
        return Handover()

    def begin(self, handover: Handover) -> None:
        """**Local.** Make the place ready in which weights arrive."""
        if handover.before is not None:
            self._run(handover.before, self.sets[self.turn], self.sets[1 - self.turn])

    def finish(self, handover: Handover) -> None:
        """**Local.** Let the new weights serve."""
        if handover.after is not None:
            self._run(handover.after, self._own, self.sets[0])
        if self.commit == SWAP:
            self.turn = 1 - self.turn

    def close(self) -> None:
        """**Local.** Let the place go in which weights arrived before they were copied."""
        if self.commit == COPY:
            self._memory.clear()

    def _view(self, which: int, k: int) -> Any:
        """A tile of a set that was made here, as an array of the library of the one that was given."""
        tile, memory = self._side.tiles[k], self._memory[which]
        at = int(self.sets[which][k]) - begin_of(memory)
        return view_like(memory[at : at + tile.n_bytes], tile)

    def _made(self, shared: bool) -> Any:
        n_bytes = sum(ceil_div(tile.n_bytes, ALIGN) * ALIGN for tile in self._side.tiles.values())
        try:
            if self._side.gpu is None:
                share = shared and can_share()
                return shared_bytes(n_bytes) if share else np.empty(n_bytes, np.uint8)
            from redist.runtime.cuda.arrays import empty_on_device

            return empty_on_device((n_bytes,), np.dtype(np.uint8))
        except (MemoryError, TransferError) as problem:
            raise RequestError(
                f"cannot bind with commit={self.commit!r}: there is no memory for another set of tiles, "
                f"{format_bytes(n_bytes)} ({problem}); commit='in place' needs none, but leaves no weights "
                "that could serve after a failure"
            ) from None

    def _placed(self, memory: Any) -> Addresses:
        """Where tiles lie in memory, one behind another."""
        table = np.zeros(len(self._side.names), np.uintp)
        at = begin_of(memory)
        for k in self._numbers:
            table[k] = at
            at += ceil_div(self._side.tiles[k].n_bytes, ALIGN) * ALIGN
        return table

    def _whole(self, numbers: Sequence[int]) -> Blocks:
        """Whole tiles as blocks; ``dst`` is the number of a tile."""
        blocks = np.zeros(len(numbers), BLOCKS)
        types = self._dtypes.target[np.array(numbers, np.int64)]
        n_bytes = np.array([self._side.tiles[k].n_bytes for k in numbers], np.int64)
        blocks["dst"], blocks["dst_type"], blocks["count"] = numbers, types, 1
        blocks["elems"] = n_bytes // self._dtypes.sizes[types]
        return blocks

    def _copies(self, blocks: Blocks) -> Copies | None:
        """Copies of blocks to the same places of another set."""
        if not len(blocks):
            return None
        moves = blocks.copy()
        moves["dst"] = blocks["dst"] + FIRST
        moves["src"] = moves["dst"] + len(self._side.names)
        for name in ("offset", "step", "type"):
            moves[f"src_{name}"] = blocks[f"dst_{name}"]
        return Copies.of(moves, self._dtypes.known, self._side.gpu is not None, streams=True)

    def _run(self, copies: Copies | None, to: Addresses, of: Addresses) -> None:
        if copies is not None:
            copies.run(np.concatenate([np.zeros(FIRST, np.uintp), to, of]))
