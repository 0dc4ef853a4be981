"""The cheapest way to do one operation: which parts of the mesh's axes cut which of its labels.

The rule is that of a program (:mod:`redist.arrange.layouts`): what it takes to bring operands there, to
compute, and to finish partial values. An operation by itself has no neighbours to agree with, so there is
nothing to solve, and more can be looked at: all prime factors of the mesh, and the operands' own cuts,
whatever the order of their axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from redist.arrange.ein_graph import EinNode
from redist.arrange.price_book import (
    Intervals,
    Ranges,
    group_ps,
    n_within,
    ranks_to_look_at,
    step_prices,
)
from redist.arrange.solving.network import FORBIDDEN, Costs
from redist.arrange.strategies import compute_ps, rate_of
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, prime_parts
from redist.layout.cuts import Ints
from redist.layout.mesh import Mesh
from redist.plan.rates import DeviceCosts
from redist.plan.topology import Topology
from redist.plan.traffic import group_level

CutAxes = tuple[SubAxis, ...]

MOST_WAYS = 1500
"""Of more ways only those are listed in which few labels take turns along an axis."""
MOST_CELLS = 2**21
"""Fewer still on many devices: ways times devices."""

NEAR = 64
"""Ways whose moves take at most 1/64 longer count as equally quick. Of these the one is taken in which all
devices together receive least; the time of a move only knows the busiest device."""


@dataclass(frozen=True, slots=True)
class PlacedOperation:
    """The types in which an operation is done: of its operands, and of its result; and what it takes."""

    operands: tuple[ArrayType, ...]
    result: ArrayType
    time_ps: int = 0


def place_operation(
    node: EinNode,
    types: Sequence[ArrayType],
    topology: Topology,
    device: DeviceCosts,
    free_bytes: int | None = None,
) -> PlacedOperation:
    """The types in which an operation takes least, if its operands have these types.

    Ways that take more than ``free_bytes`` of a device are taken only if none takes less: an operand that
    moves is there twice, but in blocks if its tile grows to more than twice its size.

    >>> from redist.plan.rates import CPU, ONE_NODE
    >>> a, b = (ArrayType.parse(t, Mesh(x=4)) for t in ("f64[4096, 64{x}]", "f64[64{x}, 8]"))
    >>> product = EinNode("ij,jk->ik", (~0, ~1), {"i": 4096, "j": 64, "k": 8}, dtype=a.dtype)
    >>> print(place_operation(product, (a, b), ONE_NODE, CPU).result)
    f64[4096, 8] sum{x}
    """
    ways = _Ways.of(node, types, topology)
    made = ways.tile_elems(node.kept) * node.dtype.itemsize
    moving, received = _finish(ways, node, topology)
    touched, held = made, made
    for term, t in zip(node.terms, types, strict=True):
        tile = ways.tile_elems(term) * t.dtype.itemsize
        time, n_bytes = _move(ways, term, t, topology)
        moving, received, touched = moving + time, received + n_bytes, touched + tile
        held = held + np.where(time > 0, np.minimum(tile, 2 * t.tile_bytes), 0)
    elem_fs = device.of(*rate_of(node))
    total = moving + compute_ps(ways.tile_elems(node.labels), touched, elem_fs, device.byte_fs)
    if free_bytes is not None:
        total = total + np.where(held > free_bytes, FORBIDDEN, 0)
    best = int(np.argmin(total))
    near = total <= total[best] + moving[best] // NEAR
    best = int(np.argmin(np.where(near, received, np.inf)))
    return _placed(node, types, ways.cuts_of(best), int(total[best]))


def _placed(
    node: EinNode, types: Sequence[ArrayType], cuts: Mapping[str, CutAxes], time_ps: int
) -> PlacedOperation:
    operands = [
        ArrayType(t.mesh, t.dtype, t.shape, tuple(cuts.get(label, ()) for label in term))
        for term, t in zip(node.terms, types, strict=True)
    ]
    dims = tuple(cuts.get(label, ()) for label in node.kept)
    result = ArrayType(types[0].mesh, node.dtype, node.shape, dims)
    pending = tuple(part for label in node.aggregated for part in cuts.get(label, ()))
    if pending:
        result = result.with_pending(node.agg, pending)
    return PlacedOperation(tuple(operands), result, time_ps)


@dataclass(frozen=True, slots=True, eq=False)
class _Ways:
    """Ways to cut the labels of an operation: every cut of every label, and which of them each way has."""

    mesh: Mesh
    sizes: Mapping[str, int]
    labels: str
    """Those that may be cut."""
    cuts: tuple[tuple[CutAxes, ...], ...]
    ids: Ints
    """A row for each way: of every label, the number of its cut."""
    ranks: Ints
    """Those that are looked at."""
    ranges: tuple[tuple[Ranges, ...], ...]
    """Of every cut of every label: what these ranks hold."""

    @staticmethod
    def of(node: EinNode, types: Sequence[ArrayType], topology: Topology) -> _Ways:
        """The operands' own ways, then all to put parts of axes on labels, or nowhere."""
        mesh, labels = types[0].mesh, [n for n in node.labels if node.sizes[n] > 1]
        first = _own_ways(node, types)
        used = [part for way in first for cut in way.values() for part in cut]
        parts = tuple(part for part in prime_parts(mesh, used) if part.size > 1)
        most = max(1, min(MOST_WAYS, MOST_CELLS // mesh.n_devices))
        places = _list_places(parts, len(labels), most)
        sizes = np.array([part.size for part in parts], dtype=np.int64)
        for number, label in enumerate(labels):
            fits = np.where(places == number, sizes, 1).prod(axis=1) <= node.sizes[label]
            places = places[fits]
        cuts, columns = [], [np.zeros((len(first) + len(places), 0), dtype=np.int64)]
        for number, label in enumerate(labels):
            masks = (places == number) @ (1 << np.arange(len(parts), dtype=np.int64))
            kinds, ids = np.unique(masks, return_inverse=True)
            known: dict[CutAxes, int] = {}
            for mask in kinds.tolist():
                known[tuple(part for i, part in enumerate(parts) if mask >> i & 1)] = len(known)
            begin = [known.setdefault(way.get(label, ()), len(known)) for way in first]
            cuts.append(tuple(known))
            columns.append(np.concatenate([begin, ids.reshape(-1)]).astype(np.int64)[:, None])
        ranks = ranks_to_look_at(mesh, parts)
        ranges = [
            tuple(Ranges.of(mesh, ranks, node.sizes[label], cut, topology) for cut in some)
            for label, some in zip(labels, cuts, strict=True)
        ]
        ids = np.concatenate(columns, axis=1)
        return _Ways(mesh, node.sizes, "".join(labels), tuple(cuts), ids, ranks, tuple(ranges))

    def tile_elems(self, labels: str) -> Ints:
        """Elements of the fullest device's tile of an array with these labels, for every way."""
        out = np.ones(len(self.ids))
        for label in labels:
            out = out * self.tile_size(label)
        return np.minimum(out, FORBIDDEN).astype(np.int64)

    def tile_size(self, label: str) -> Ints:
        """The size of a full tile along a label, for every way."""
        at = self.labels.find(label)
        if at < 0:
            return np.full(len(self.ids), self.sizes[label], dtype=np.int64)
        return np.array([one.tile_size for one in self.ranges[at]], np.int64)[self.ids[:, at]]

    def distinct(self, labels: Sequence[int]) -> tuple[Ints, Ints]:
        """The different ways to cut some labels, and of every way, which it is."""
        code = np.zeros(len(self.ids), dtype=np.int64)
        for at in labels:
            code = code * len(self.cuts[at]) + self.ids[:, at]
            if int(code.max(initial=0)) > 2**40:  # renumber before an overflow
                code = np.unique(code, return_inverse=True)[1].reshape(-1)
        _, first, back = np.unique(code, return_index=True, return_inverse=True)
        return self.ids[first], back.reshape(-1)

    def cuts_of(self, way: int) -> dict[str, CutAxes]:
        """What cuts every label that may be cut."""
        named = zip(self.labels, self.cuts, self.ids[way].tolist(), strict=True)
        return {label: cuts[number] for label, cuts, number in named}


def _own_ways(node: EinNode, types: Sequence[ArrayType]) -> list[dict[str, CutAxes]]:
    """The operands' own cuts, and all together, those of one operand first."""
    own = [
        {label: cut for label, cut in zip(term, t.dims, strict=True) if node.sizes[label] > 1}
        for term, t in zip(node.terms, types, strict=True)
    ]
    together = []
    for first in range(len(own)):
        cuts = dict(own[first])
        names = {part.name for cut in cuts.values() for part in cut}
        for other in (*own[:first], *own[first + 1 :]):
            for label, cut in other.items():
                if not cuts.get(label) and not names & {part.name for part in cut}:
                    cuts[label] = cut
                    names |= {part.name for part in cut}
        together.append(cuts)
    return [*own, *together]


def _move(ways: _Ways, term: str, t: ArrayType, topology: Topology) -> tuple[Costs, Ints]:
    """What every way takes to bring an operand from where it lies, 0 if it stays; bytes that all receive."""
    rows, back = ways.distinct([ways.labels.index(n) for n in term if n in ways.labels])
    own = np.ones((len(rows), len(ways.ranks)), dtype=np.int64)
    near = [(own.copy(), own.copy()) for _ in topology.levels]
    stays = np.ones(len(rows), dtype=np.bool_)
    for dim, label in enumerate(term):
        here = Ranges.of(ways.mesh, ways.ranks, t.shape[dim], t.dims[dim], topology)
        at = ways.labels.find(label)
        cuts: tuple[CutAxes, ...] = ways.cuts[at] if at >= 0 else ((),)
        ids = rows[:, at] if at >= 0 else np.zeros(len(rows), dtype=np.int64)
        stays &= np.array([cut == t.dims[dim] for cut in cuts])[ids]
        whole = Ranges.of(ways.mesh, ways.ranks, t.shape[dim], (), topology)
        box = Intervals.of((here,), ways.ranges[at] if at >= 0 else (whole,))
        own *= box.overlap[0][ids]
        for number, (elems, pieces) in enumerate(near):
            elems *= box.held[number][0][ids]
            pieces *= box.pieces[number][0][ids]
    for number, counts in enumerate(near):
        for count in counts:
            count *= n_within(t.pending_axes, number, ways.mesh, topology)
    itemsize = t.dtype.itemsize
    time = step_prices(own, near, itemsize, topology)
    if t.pending_op is None:
        time[stays] = 0
    else:
        group = math.prod(part.size for part in t.pending_axes)
        moved = 2 * (t.tile_bytes - t.tile_bytes // group)
        level = group_level(ways.mesh, t.pending_axes, topology)
        time[stays] = np.minimum(time[stays], group_ps(2 * (group - 1), moved, level, topology))
    received = (near[-1][0] - own).sum(axis=1) * itemsize
    return time[back], received[back]


def _finish(ways: _Ways, node: EinNode, topology: Topology) -> tuple[Costs, Ints]:
    """What every way takes to finish partial values, and bytes that all receive for it.

    They are scattered along the longest side of a tile; if that is too short, all devices combine all.
    """
    gone = [ways.labels.index(label) for label in node.aggregated]
    rows, back = ways.distinct(gone)
    axes = [[part for at in gone for part in ways.cuts[at][row[at]]] for row in rows.tolist()]
    group = np.array([math.prod(part.size for part in some) for some in axes], np.int64)[back]
    elems = ways.tile_elems(node.kept)
    longest = np.max([np.zeros_like(elems), *map(ways.tile_size, node.kept)], axis=0)
    rounds = np.where(longest >= group, 1, 2)
    n_bytes = rounds * (elems - elems // group) * node.dtype.itemsize
    time = np.zeros_like(n_bytes)
    for number, some in enumerate(axes):
        if some:
            here, level = back == number, group_level(ways.mesh, some, topology)
            time[here] = group_ps((rounds * (group - 1))[here], n_bytes[here], level, topology)
    return time, n_bytes * len(ways.ranks)


def _list_places(parts: Sequence[SubAxis], n_labels: int, most: int) -> Ints:
    """A row for each way: for every part the number of its label, or ``n_labels`` for none.

    If there are too many, the parts of an axis go to few labels, each taking a run of them.

    >>> _list_places([SubAxis("x", 1, 2), SubAxis("x", 2, 2)], 1, 9).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    lengths = [len(list(run)) for _, run in itertools.groupby(parts, lambda part: part.name)]
    for turns in range(max(lengths, default=1), 0, -1):
        if math.prod(_count_runs(n, n_labels, turns) for n in lengths) <= most:
            axes = (list(_runs(n, n_labels, turns)) for n in lengths)
            rows = [list(itertools.chain(*row)) for row in itertools.product(*axes)]
            return np.array(rows, dtype=np.int64).reshape(len(rows), len(parts))
    return np.zeros((0, len(parts)), dtype=np.int64)


def _count_runs(n: int, n_labels: int, turns: int) -> int:
    """How many sequences of ``n`` labels, or none, have at most this many runs."""
    return sum(math.comb(n - 1, k) * (n_labels + 1) * n_labels**k for k in range(min(turns, n)))


def _runs(n: int, n_labels: int, turns: int) -> Iterator[tuple[int, ...]]:
    """The sequences that :func:`_count_runs` counts, in order."""

    def extend(row: tuple[int, ...], left: int) -> Iterator[tuple[int, ...]]:
        if len(row) == n:
            yield row
            return
        for label in range(n_labels + 1):
            if row and label == row[-1]:
                yield from extend((*row, label), left)
            elif left:
                yield from extend((*row, label), left - 1)

    yield from extend((), turns)
