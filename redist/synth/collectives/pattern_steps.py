"""What steps between patterns cost at least: what a few ranks move whose tiles depend on patterns alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from redist.layout.tiles import Ints
from redist.synth.chains import Bools
from redist.synth.collectives.alike_factors import Blocks
from redist.synth.collectives.block_mates import Beside
from redist.synth.collectives.word_pairs import WordPairs
from redist.synth.objective_costs import MESSAGE_BITS, Prices
from redist.text.units import ceil_div


@dataclass(frozen=True, slots=True, eq=False)
class PatternSteps:
    """Steps between patterns, ``before`` and ``after`` being types of these, and their pairs of words.

    Of the ``ranks`` of the tables, some ``columns`` are looked at.
    """

    prices: Prices
    blocks: Blocks
    tables: tuple[WordPairs, ...]
    words: tuple[Ints, ...]
    before: Ints
    after: Ints
    ranks: Ints
    columns: slice

    def floors(self, permuting: bool) -> Ints:
        """What the steps cost at least; all of them are permutes, or none."""
        request = self.prices.request
        if request.objective == "bytes":
            return self._bytes()
        both = self._product([t.both for t in self.tables])
        volumes = self._product([t.after for t in self.tables])
        own = (both > 0).astype(np.int64)
        moved, waits = (own, both, own, both), volumes > both
        waiting, fs = np.zeros((2, len(self.before)), dtype=np.int64)
        for number, (latency, byte_fs) in enumerate(self._levels()):
            within = self._within(number, volumes)
            if permuting:
                found = waits & self._found(number, within[0])
                waits &= ~found
                waiting += latency * found.any(axis=1)
                fs += byte_fs * np.where(found, volumes, 0).max(axis=1)
            else:
                here = [(now - less).max(axis=1) for now, less in zip(within, moved, strict=True)]
                waiting += latency * np.maximum(here[0], here[2])
                fs += byte_fs * np.maximum(here[1], here[3])
            moved = within
        fs *= request.source.dtype.itemsize
        step = np.where((waiting > 0) | (fs > 0), request.topology.step_ps, 0)
        return waiting + ceil_div(fs, 1000) + step + 1

    def _bytes(self) -> Ints:
        """The same if elements count: no rank keeps more of them than the first."""
        request, space = self.prices.request, self.prices.space
        first = replace(self, columns=slice(1))
        both = first._product([t.both for t in self.tables])[:, 0]
        held = request.source.global_elems * space.copies()
        n_ranks = space.table.present.sum(axis=1)[space.mesh_of[self.before]]
        kept = np.minimum(both * n_ranks, held[self.before])
        return (np.maximum(held[self.after] - kept, 0) << MESSAGE_BITS) + 1

    def _levels(self) -> list[tuple[int, int]]:
        """Latency and time per byte of the levels; of the last, the least of those not told apart."""
        levels, n = self.prices.request.topology.levels, len(self.blocks.nearer) + 1
        apart = [levels[number : number + 1] for number in range(n - 1)] + [levels[n - 1 :]]
        return [
            (min(level.latency_ps for level in some), min(level.byte_fs for level in some))
            for some in apart
        ]

    def _within(self, number: int, volumes: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Messages and elements that each rank gets and sends within its block, its own included."""
        if number < len(self.blocks.nearer):
            block = self.blocks.nearer[number]
            near = [
                self._product(list(t))
                for t in zip(*(t.near[number] for t in self.tables), strict=True)
            ]
            if isinstance(block, Beside):
                agree = self._agreeing(block, True)
                needs, asked = (elems * agree for elems in near)
                return (
                    (needs > 0).sum(axis=2),
                    needs.sum(axis=2),
                    (asked > 0).sum(axis=2),
                    asked.sum(axis=2),
                )
            times = self._times(block.copies)
            return near[0], near[1], times * near[2], times * near[3]
        times = self._times(self.blocks.every.copies)
        return (
            self._product([t.pieces_in for t in self.tables]),
            volumes,
            times * self._product([t.pieces_out for t in self.tables]),
            times * self._product([t.before for t in self.tables]),
        )

    def _times(self, copies: Ints) -> Ints:
        """How many more copies of a tile there are after the steps."""
        times: Ints = copies[self.after] // np.maximum(copies[self.before], 1)
        return times[:, None]

    def _found(self, number: int, messages: Ints) -> Bools:
        """Whether a rank of its block has the tile that each rank asks for."""
        if number < len(self.blocks.nearer):
            block = self.blocks.nearer[number]
            if isinstance(block, Beside):
                needs = self._product([t.near[number][0] for t in self.tables])
                return np.any((needs > 0) & self._agreeing(block, False), axis=2)
        return messages > 0

    def _agreeing(self, block: Beside, idle: bool) -> Bools:
        """Which ranks beside each agree with it, before each step."""
        space = self.prices.space
        used = space.used_factors()[self.before]
        return block.agreeing(used, 0, self.ranks[self.columns], idle)

    def _product(self, tables: list[Ints]) -> Ints:
        """Over dims: the entries of the pairs of words."""
        out: Ints | None = None
        for table, pairs in zip(tables, self.words, strict=True):
            here = table[:, self.columns][pairs]
            out = here if out is None else out * here
        return np.ones((len(self.before), 1), dtype=np.int64) if out is None else out
