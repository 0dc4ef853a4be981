"""What steps between patterns cost at least: what a few ranks move whose tiles depend on patterns alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from redist.layout.tiles import Ints
from redist.synth.alike import Blocks
from redist.synth.objective_costs import MESSAGE_BITS, Prices
from redist.synth.word_pairs import WordPairs
from redist.text.units import ceil_div


@dataclass(frozen=True, slots=True, eq=False)
class PatternSteps:
    """Steps between patterns, ``before`` and ``after`` being types of these, and their pairs of words.

    Of the ranks of the tables, some ``columns`` are looked at.
    """

    prices: Prices
    blocks: Blocks
    tables: tuple[WordPairs, ...]
    words: tuple[Ints, ...]
    before: Ints
    after: Ints

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
        messages, elems = _Busiest(self.blocks.wide), _Busiest(self.blocks.wide)
        for number, (latency, byte_fs) in enumerate(self._levels()):
            within = self._within(number, volumes)
            if permuting:
                found = waits & (within[0] > 0)
                waits &= ~found
                messages.add(latency, found.astype(np.int64))
                elems.add(byte_fs, np.where(found, volumes, 0))
            else:
                here = [now - less for now, less in zip(within, moved, strict=True)]
                messages.add(latency, here[0], here[2])
                elems.add(byte_fs, here[1], here[3])
            moved = within
        waiting, fs = messages.total(), elems.total() * request.source.dtype.itemsize
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
        levels, n = self.prices.request.topology.levels, len(self.blocks.within)
        apart = [levels[number : number + 1] for number in range(n - 1)] + [levels[n - 1 :]]
        return [
            (min(level.latency_ps for level in some), min(level.byte_fs for level in some))
            for some in apart
        ]

    def _within(self, number: int, volumes: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Messages and elements that each rank gets and sends within its block, its own included."""
        copies = self.blocks.within[number].copies
        times = (copies[self.after] // np.maximum(copies[self.before], 1))[:, None]
        if number < len(self.blocks.within) - 1:
            near = [self._product([t.near[number][k] for t in self.tables]) for k in range(4)]
            return near[0], near[1], times * near[2], times * near[3]
        return (
            self._product([t.pieces_in for t in self.tables]),
            volumes,
            times * self._product([t.pieces_out for t in self.tables]),
            times * self._product([t.before for t in self.tables]),
        )

    def _product(self, tables: list[Ints]) -> Ints:
        """Over dims: the entries of the pairs of words."""
        out: Ints | None = None
        for table, pairs in zip(tables, self.words, strict=True):
            here = table[:, self.columns][pairs]
            out = here if out is None else out * here
        return np.ones((len(self.before), 1), dtype=np.int64) if out is None else out


@dataclass(slots=True, eq=False)
class _Busiest:
    """What the busiest rank spends: at every level another, or if ``one``, the same at all."""

    one: bool
    _sums: list[Ints] = field(default_factory=list)

    def add(self, each: int, *columns: Ints) -> None:
        """Count so much for every message or element at a level, for each of some roles of every rank."""
        if not self.one:
            most = np.maximum.reduce([values.max(axis=1) for values in columns])
            columns = (most[:, None],)
        if not self._sums:
            self._sums = [each * values for values in columns]
        else:
            self._sums = [
                old + each * values for old, values in zip(self._sums, columns, strict=True)
            ]

    def total(self) -> Ints:
        """What it spends at all levels."""
        out: Ints = np.maximum.reduce([values.max(axis=1) for values in self._sums])
        return out
