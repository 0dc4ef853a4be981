"""What it costs to bring a value from any type to any other, all pairs at once.

A step brings to every rank what it lacks; the busiest one decides, and so do the pieces that it gets. Two
steps may be cheaper than one: a sum is scattered and then gathered. On one level of the network, where tiles
are even, these are the synthesizer's own prices; elsewhere they are close to them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redist.arrange.domain import NOWHERE, PENDING, TypeDomain
from redist.arrange.solving.network import FORBIDDEN, Costs
from redist.layout.axes import SubAxis
from redist.layout.cuts import Ints, cut_dim
from redist.layout.mesh import Mesh
from redist.layout.tiles import coordinates
from redist.plan.topology import Topology
from redist.text.units import ceil_div

MANY_RANKS = 256
"""On more ranks, only those are looked at that are first or last on every factor."""
BLOCK_CELLS = 2**20


def price_moves(domain: TypeDomain, topology: Topology) -> Costs:
    """Picoseconds of all moves between the types of a domain, with one for every step."""
    return _two_steps(_one_step(domain, topology))


def _one_step(domain: TypeDomain, topology: Topology) -> Costs:
    n = len(domain)
    out = np.empty((n, n), dtype=np.int64)
    boxes = [_Intervals.of(domain, dim) for dim in range(len(domain.shape))]
    n_ranks = len(_ranks(domain.mesh, domain.parts))
    partial = (domain.places == PENDING).astype(np.int64)
    sizes = np.array([part.size for part in domain.parts], dtype=np.int64)
    level, itemsize = topology.levels[-1], domain.dtype.itemsize
    need = np.ones((n, n_ranks), dtype=np.int64)
    for box in boxes:
        need *= box.lengths[box.kind]
    rows = max(1, BLOCK_CELLS // max(1, n * n_ranks))
    for lo in range(0, n, rows):
        some = slice(lo, min(n, lo + rows))
        both = np.ones((min(n, lo + rows) - lo, n, n_ranks), dtype=np.int64)
        pieces = np.ones_like(both)
        for box in boxes:
            pairs = box.kind[some][:, None], box.kind[None, :]
            both *= box.overlap[pairs]
            pieces *= box.pieces[pairs]
        resolved = partial[some][:, None] * (1 - partial[None])
        group = np.where(resolved > 0, sizes, 1).prod(axis=2)[:, :, None]
        lack = group * need[None] - both
        messages = np.where(lack > 0, group * pieces - (both > 0), 0).max(axis=2)
        fs = lack.max(axis=2) * (itemsize * level.byte_fs)
        time = messages * level.latency_ps + ceil_div(fs, 1000)
        time += np.where(messages > 0, topology.step_ps, 0) + 1
        new = (1 - partial[some][:, None]) * partial[None]
        out[some] = np.where(new.any(axis=2), FORBIDDEN, time)
    np.minimum(out, _all_reduces(domain, topology), out=out)
    np.fill_diagonal(out, 0)
    return out


def _all_reduces(domain: TypeDomain, topology: Topology) -> Costs:
    """What it costs to resolve partial values everywhere, parts of a tile going round; else FORBIDDEN."""
    n = len(domain)
    out = np.full((n, n), FORBIDDEN, dtype=np.int64)
    elems = domain.tile_bytes() // domain.dtype.itemsize
    level = topology.levels[-1]
    for a, row in enumerate(domain.places[: n - len(domain.others)]):
        pending = np.flatnonzero(row == PENDING)
        for k in range(1, len(pending) + 1):
            for some in itertools.combinations(pending.tolist(), k):
                after = row.copy()
                after[list(some)] = NOWHERE
                b = int(domain.numbers(after[None])[0])
                group = math.prod(domain.parts[f].size for f in some)
                moved = 2 * (int(elems[a]) - int(elems[a]) // group) * domain.dtype.itemsize
                time = level.time_ps(2 * (group - 1), moved) + topology.step_ps
                out[a, b] = time + 1
    return out


def _two_steps(one: Costs) -> Costs:
    """The cheaper of one step and two."""
    out = one.copy()
    for row in range(len(one)):
        best = (one[row][:, None] + one).min(axis=0)
        np.minimum(out[row], best, out=out[row])
    return np.minimum(out, FORBIDDEN)


def _ranks(mesh: Mesh, parts: tuple[SubAxis, ...]) -> Ints:
    """The devices that are looked at: all, or the first and last on every factor."""
    every = np.arange(mesh.n_devices, dtype=np.int64)
    if mesh.n_devices <= MANY_RANKS:
        return every
    good = np.ones(mesh.n_devices, dtype=np.bool_)
    for part in parts:
        digit = coordinates(mesh, [part])
        good &= (digit == 0) | (digit == part.size - 1)
    return every[good]


@dataclass(frozen=True, slots=True, eq=False)
class _Intervals:
    """One dim under every set of factors that may cut it: what devices hold of it, and what pairs share."""

    kind: Ints
    """Of every type, the set that cuts the dim."""
    lengths: Ints
    overlap: Ints
    pieces: Ints

    @staticmethod
    def of(domain: TypeDomain, dim: int) -> _Intervals:
        masks = (domain.places == dim) @ (1 << np.arange(len(domain.parts)))
        n_usual = len(domain) - len(domain.others)
        known, kind = np.unique(masks[:n_usual], return_inverse=True)
        cuts: list[Sequence[SubAxis]] = [
            [part for f, part in enumerate(domain.parts) if mask >> f & 1]
            for mask in known.tolist()
        ]
        kind = np.concatenate([kind.reshape(-1), np.arange(len(domain.others)) + len(cuts)])
        cuts += [t.dims[dim] for t in domain.others]
        ranks, size = _ranks(domain.mesh, domain.parts), domain.shape[dim]
        lows, highs, tile_sizes = [], [], []
        for parts in cuts:
            n_tiles = 1
            for part in parts:
                n_tiles *= part.size
            cut = cut_dim(size, n_tiles)
            low, high = cut.ranges_of(coordinates(domain.mesh, parts)[ranks])
            lows.append(low)
            highs.append(high)
            tile_sizes.append(max(1, cut.tile_size))
        lo, hi = np.stack(lows), np.stack(highs)
        lengths = np.maximum(hi - lo, 0)
        shape = (len(cuts), len(cuts), len(ranks))
        overlap, pieces = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        for a, b in itertools.product(range(len(cuts)), repeat=2):
            overlap[a, b] = np.maximum(np.minimum(hi[a], hi[b]) - np.maximum(lo[a], lo[b]), 0)
            first, last = lo[b] // tile_sizes[a], (hi[b] - 1) // tile_sizes[a]
            pieces[a, b] = np.where(lengths[b] > 0, last - first + 1, 0)
        return _Intervals(kind.astype(np.int64), lengths, overlap, pieces)
