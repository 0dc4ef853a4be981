"""Random refits with literal tiles, and a machine that carries out runs on bytes.

Stored arrays are built from named ones by NumPy, and tiles are cut out index by index, by the oracle of
``tests/problems/segments.py``: nothing here asks ``redist.layout``, ``redist.names`` or ``redist.refits``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.problems.segments import KINDS, holds, random_layout

Array = NDArray[Any]
PADDING = 0
"""What stored arrays have where no named tensor is; elements count from 1."""
SHORT = {2: "u16", 4: "u32", 8: "u64"}


@dataclass
class Side:
    """Types as text, meshes, rules, and the literal tile of every rank and stored tensor."""

    types: dict[str, tuple[str, str]] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    tiles: dict[tuple[int, str], Array] = field(default_factory=dict)


@dataclass
class Refit:
    """Two sides, the bytes that ranks lack of what they need, and a limit."""

    source: Side
    target: Side
    lacking_bytes: int
    limit: int | None


Stored = dict[str, tuple[str, Array]]
"""Stored arrays by name, each with its rule ('' if it is a named tensor)."""


def _heads(rng: random.Random, at: str, new: Callable[..., Array]) -> list[Stored]:
    """Queries, keys, values: apart, one after another, with padding behind, group by group."""
    groups, m = rng.choice((1, 2, 3)), rng.choice((1, 4, 5))
    a, b = rng.randint(1, 6), rng.randint(1, 3)
    q, k, v = new(groups * a, m), new(groups * b, m), new(groups * b, m)
    parts = f"{at}.q, {at}.k, {at}.v"
    pad = rng.randint(1, 3)
    whole = np.concatenate([q, k, v])
    by_group = [x.reshape(groups, -1, m) for x in (q, k, v)]
    return [
        {f"{at}.q": ("", q), f"{at}.k": ("", k), f"{at}.v": ("", v)},
        {f"{at}.qkv": (f"{at}.qkv[{groups * a}|{groups * b}|{groups * b}, :] = {parts}", whole)},
        {f"{at}.qkvp": (f"{at}.qkvp[{groups * a}|{groups * b}|{groups * b}|_{pad}, :] = {parts}",
                        np.concatenate([whole, np.full((pad, m), PADDING, whole.dtype)]))},
        {f"{at}.g": (f"{at}.g[{groups}*({a}|{b}|{b}), :] = {parts}",
                     np.concatenate(by_group, axis=1).reshape(-1, m))},
    ]  # fmt: skip


def _experts(rng: random.Random, at: str, new: Callable[..., Array]) -> list[Stored]:
    """Two matrices of each expert: one by one, stacked, and stacked with both in one."""
    n, f, m = rng.randint(1, 5), rng.randint(1, 6), rng.choice((1, 3, 8))
    ones, threes = [new(f, m) for _ in range(n)], [new(f, m) for _ in range(n)]
    every: Stored = {}
    for e in range(n):
        every |= {f"{at}.{e}.w1": ("", ones[e]), f"{at}.{e}.w3": ("", threes[e])}
    both = np.stack([np.concatenate(pair) for pair in zip(ones, threes, strict=True)])
    return [
        every,
        {f"{at}.w13": (f"{at}.w13[e, {f}|{f}, :] = {at}.{{e}}.w1, {at}.{{e}}.w3", both)},
        {f"{at}.s1": (f"{at}.s1[e, :, :] = {at}.{{e}}.w1", np.stack(ones)),
         f"{at}.s3": (f"{at}.s3[e, :, :] = {at}.{{e}}.w3", np.stack(threes))},
    ]  # fmt: skip


def _turned(rng: random.Random, at: str, new: Callable[..., Array]) -> list[Stored]:
    """A matrix: as it is, transposed, with heads as a dim."""
    h, d, m = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 6)
    w = new(h * d, m)
    turned = np.ascontiguousarray(w.T)
    return [
        {f"{at}.w": ("", w)},
        {f"{at}.t": (f"{at}.t[i, o] = {at}.w[o, i]", turned)},
        {f"{at}.h": (f"{at}.h[m, h, d] = {at}.w[h*d, m]", turned.reshape(m, h, d))},
    ]


def _flat(rng: random.Random, at: str, new: Callable[..., Array]) -> list[Stored]:
    """A matrix and a vector: apart, and in one dim, where a cut is no box of the matrix."""
    r, m, n = rng.randint(1, 6), rng.randint(1, 5), rng.randint(1, 4)
    w, b = new(r, m), new(n)
    flat = np.concatenate([w.reshape(-1), b])
    return [
        {f"{at}.w": ("", w), f"{at}.b": ("", b)},
        {f"{at}.f": (f"{at}.f[r*{m}|{n}] = {at}.w[r, {m}], {at}.b", flat)},
    ]


def _tied(rng: random.Random, at: str, new: Callable[..., Array]) -> list[Stored]:
    """An embedding: by itself, padded, and twice."""
    v, h, pad = rng.randint(1, 9), rng.choice((1, 2, 6)), rng.randint(1, 4)
    w = new(v, h)
    padded = np.concatenate([w, np.full((pad, h), PADDING, w.dtype)])
    return [
        {f"{at}.e": ("", w)},
        {f"{at}.p": (f"{at}.p[{v}|_{pad}, :] = {at}.e", padded)},
        {f"{at}.p": (f"{at}.p[{v}|_{pad}, :] = {at}.e", padded), f"{at}.o": (f"{at}.o = {at}.e", w)},
    ]  # fmt: skip


def _small(rng: random.Random, at: str, new: Callable[..., Array]) -> list[Stored]:
    """A vector or a number."""
    w = new(*((rng.randint(1, 9),) if rng.random() < 0.8 else ()))
    return [{f"{at}.n": ("", w)}]


UNITS = (_heads, _experts, _turned, _flat, _tied, _small)


def random_refit(seed: int, n_weights: int = 50, alike: int = 1) -> Refit:
    """About this many named tensors, each side's in random forms, layouts and meshes.

    ``alike`` layers at a time differ in their values alone.
    """
    rng = random.Random(f"refit {seed}")
    n_ranks = rng.choices((1, 2, 3, 4, 6, 8), (2, 4, 4, 4, 1, 1))[0]
    last = 0
    source, target = Side(), Side()
    meshes = _meshes(rng, n_ranks), _meshes(rng, n_ranks)
    named = number = 0

    def new(*shape: int) -> Array:
        nonlocal last, named
        size = int(np.prod(shape, dtype=np.int64))
        out = np.arange(last + 1, last + 1 + size, dtype=f"u{width}").reshape(shape)
        last += size
        named += 1
        return out

    while named < n_weights:
        width = rng.choice((2, 4, 8)) if last < 2**15 else 4
        unit = f"u{number}"
        number += 1
        state = rng.getstate()
        chosen: list[tuple[int, list[_Cut]]] = []
        for layer in range(alike):  # the same draws make the same forms
            rng.setstate(state)
            forms = rng.choice(UNITS)(rng, f"{unit}.{layer}", new)
            if not layer:
                for where in meshes:
                    form = rng.randrange(len(forms))
                    stored = forms[form].values()
                    chosen.append((form, [_cut(rng, where, whole) for _, whole in stored]))
            for side, (form, cuts) in zip((source, target), chosen, strict=True):
                for (name, (rule, whole)), cut in zip(forms[form].items(), cuts, strict=True):
                    _lay(side, name, whole, cut)
                    if rule and not layer:
                        side.rules.append(rule.replace(f"{unit}.0.", f"{unit}.*."))
    lacking = _lacking(source, target)
    limit = None if rng.random() < 0.3 else rng.choices((8, 64, 1000, 4000), (1, 3, 8, 8))[0]
    return Refit(source, target, lacking, limit)


def _meshes(rng: random.Random, n: int) -> list[tuple[dict[str, int], list[int]]]:
    """A few meshes over some of the ranks of a side."""
    first = rng.choice((0, 0, 1, n))
    found = []
    for _ in range(rng.randint(1, 3)):
        size = rng.choice([k for k in (1, 2, 3, 4, 6, 8) if k <= n])
        ranks = rng.sample(range(first, first + n), size)
        if rng.random() < 0.5:
            ranks = sorted(ranks)
        axes = {"x": size}
        if size in (4, 6, 8) and rng.random() < 0.6:
            axes = {"x": 2, "y": size // 2}
        found.append((axes, ranks))
    return found


_Cut = tuple[str, str, list[tuple[int, Any]]]
"""A type, its mesh, and for every rank what it has, for NumPy."""


def _cut(rng: random.Random, meshes: Sequence[Any], whole: Array) -> _Cut:
    """A random layout of an array."""
    axes, ranks = rng.choice(meshes)
    kind = rng.choice(("plain", "plain", "plain", *KINDS))
    where = ",".join(f"{a}={n}" for a, n in axes.items()) + "@" + ";".join(map(str, ranks))
    if len(ranks) == 1:
        where = f"x=1@{ranks[0]}"
    dtype = SHORT[whole.itemsize]
    if whole.ndim == 0:
        return f"{dtype}[]", where, [(rank, ()) for rank in ranks]
    layout = random_layout(rng, whole.shape, axes, kind, False)
    sizes, held = list(axes.values()), []
    for device, rank in enumerate(ranks):
        at = dict(zip(axes, (int(c) for c in np.unravel_index(device, sizes)), strict=True))
        index = [
            [i for i in range(n) if holds(dim, i, at, axes)]
            for dim, n in zip(layout.dims, whole.shape, strict=True)
        ]
        held.append((rank, np.ix_(*index)))
    return layout.text(dtype), where, held


def _lay(side: Side, name: str, whole: Array, cut: _Cut) -> None:
    """Cut an array into tiles."""
    text, where, held = cut
    side.types[name] = (text, where)
    side.tiles |= {(rank, name): np.array(whole[index], order="C") for rank, index in held}


def _lacking(source: Side, target: Side) -> int:
    """Bytes of target tiles whose elements their rank does not have."""
    has: dict[tuple[int, int], set[int]] = {}
    for (rank, _), tile in source.tiles.items():
        has.setdefault((rank, tile.itemsize), set()).update(tile.ravel().tolist())
    total = 0
    for (rank, _), tile in target.tiles.items():
        own = has.get((rank, tile.itemsize), set())
        total += sum(tile.itemsize for v in tile.ravel().tolist() if v != PADDING and v not in own)
    return total


MOVE = np.dtype([
    (name, "<i8") for name in ("round", "sender", "there", "there_offset", "there_step",
                               "receiver", "tensor", "offset", "step", "bytes", "count")
])  # fmt: skip
"""A run with both of its ranks; tensors are numbers of stored ones."""
Moves = NDArray[Any]


def listed(plan: Any, rank: int, sends: bool) -> Moves:
    """What a rank lists, as moves."""
    runs = plan.runs(rank, sends=sends)
    out = np.empty(len(runs), MOVE)
    mine, theirs = ("sender", "receiver") if sends else ("receiver", "sender")
    out[mine], out[theirs] = rank, runs["peer"]
    for name in ("round", "bytes", "count"):
        out[name] = runs[name]
    for name in ("tensor", "offset", "step"):
        other = "there" if name == "tensor" else f"there_{name}"
        here, there = (other, name) if sends else (name, other)
        out[here], out[there] = runs[name], runs[other]
    return out


class Memory:
    """The tiles of one side, as bytes one behind another."""

    def __init__(self, tiles: Mapping[tuple[int, str], Array], names: Sequence[str]) -> None:
        self.sizes = {key: tile.nbytes for key, tile in tiles.items()}
        ends = np.cumsum([0, *self.sizes.values()]).tolist()
        self.start = dict(zip(self.sizes, ends[:-1], strict=True))
        self.n_bytes = ends[-1]
        shape = (1 + max((rank for rank, _ in tiles), default=0), max(1, len(names)))
        self.starts, self.ends = np.full(shape, -1), np.full(shape, -1)
        for (rank, name), at in self.start.items():
            self.starts[rank, names.index(name)] = at
            self.ends[rank, names.index(name)] = at + self.sizes[rank, name]

    def places(
        self, ranks: Array, tensors: Array, offset: Array, step: Array, moves: Moves
    ) -> Array:
        """Where every byte of moves lies; IndexError if one is outside its tile."""
        if not len(moves):
            return np.zeros(0, np.int64)
        begin, end = self.starts[ranks, tensors], self.ends[ranks, tensors]
        count: Array = moves["count"]
        block = np.repeat(np.arange(len(moves)), count)
        number: Array = np.arange(len(block)) - np.repeat(np.cumsum(count) - count, count)
        at = (begin + offset)[block] + number * step[block]
        n: Array = moves["bytes"][block]
        if (begin < 0).any() or (at < begin[block]).any() or (at + n > end[block]).any():
            raise IndexError("a run leaves its tile")
        within = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
        return np.asarray(np.repeat(at, n) + within)

    def tags(self, tiles: Mapping[tuple[int, str], Array]) -> Array:
        """What every byte is: which element, and which byte of it; -1 for padding."""
        found = [np.zeros(0, np.int64)]
        for tile in tiles.values():
            values = tile.reshape(-1, 1).astype(np.int64)
            found.append(
                np.where(values == PADDING, -1, values * 16 + np.arange(tile.itemsize)).ravel()
            )
        return np.concatenate(found)


@dataclass
class Machine:
    """Ranks with tiles as bytes; carries out runs, and counts."""

    source: Mapping[tuple[int, str], Array]
    target: Mapping[tuple[int, str], Array]
    tiles: dict[tuple[int, str], Array] = field(default_factory=dict)
    written: dict[tuple[int, str], Array] = field(default_factory=dict)
    received: int = 0
    loads: dict[tuple[int, int], int] = field(default_factory=dict)
    """Bytes that a rank sends and receives in a round."""

    def carry_out(self, plan: Any, ranks: Sequence[int]) -> Moves:
        """All runs of a plan, as its receivers list them; what senders list must be the same."""
        lists = [
            np.concatenate([np.zeros(0, MOVE), *(listed(plan, rank, sends) for rank in ranks)])
            for sends in (False, True)
        ]
        pairs = [("receiver", "sender", "round")] * 2
        got, sent = (
            one[np.lexsort([one[name] for name in names])]
            for one, names in zip(lists, pairs, strict=True)
        )
        assert np.array_equal(got, sent), (
            "senders list other runs than receivers, or in another order"
        )
        sources, targets = self.memories(plan)
        a, b = places_of(got, sources, targets)
        have = np.concatenate(
            [np.zeros(0, np.uint8), *(t.reshape(-1).view(np.uint8) for t in self.source.values())]
        )
        bytes_, times = np.zeros(targets.n_bytes, np.uint8), np.zeros(targets.n_bytes, np.int64)
        bytes_[b] = have[a]
        np.add.at(times, b, 1)
        for key, at in targets.start.items():
            self.tiles[key] = bytes_[at : at + targets.sizes[key]]
            self.written[key] = times[at : at + targets.sizes[key]]
        away = got[got["sender"] != got["receiver"]]
        n_bytes = away["bytes"] * away["count"]
        self.received += int(n_bytes.sum())
        for side in ("sender", "receiver"):
            both = np.stack([away["round"], away[side]], axis=1)
            different, which = np.unique(both, axis=0, return_inverse=True)
            sums = np.bincount(which.reshape(-1), n_bytes, len(different)).astype(np.int64)
            for (number, rank), n in zip(different.tolist(), sums.tolist(), strict=True):
                self.loads[number, rank] = self.loads.get((number, rank), 0) + n
        return got

    def memories(self, plan: Any) -> tuple[Memory, Memory]:
        """Both sides as memory."""
        return Memory(self.source, plan.source.stored), Memory(self.target, plan.target.stored)


def places_of(moves: Moves, source: Memory, target: Memory) -> tuple[Array, Array]:
    """From where and to where every byte goes."""
    a = source.places(
        moves["sender"], moves["there"], moves["there_offset"], moves["there_step"], moves
    )
    b = target.places(moves["receiver"], moves["tensor"], moves["offset"], moves["step"], moves)
    return a, b
