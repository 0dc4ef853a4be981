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


def random_refit(seed: int, n_weights: int = 50) -> Refit:
    """About this many named tensors, each side's in random forms, layouts and meshes."""
    rng = random.Random(f"refit {seed}")
    n_ranks = rng.choice((1, 2, 3, 4, 6, 8))
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
        forms = rng.choice(UNITS)(rng, f"l{number}", new)
        number += 1
        for side, where in ((source, meshes[0]), (target, meshes[1])):
            for name, (rule, whole) in rng.choice(forms).items():
                _lay(rng, side, where, name, whole)
                if rule:
                    side.rules.append(rule)
    lacking = _lacking(source, target)
    limit = None if rng.random() < 0.3 else rng.choice((8, 64, 1000, 4000))
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


def _lay(rng: random.Random, side: Side, meshes: Sequence[Any], name: str, whole: Array) -> None:
    """Cut an array into tiles of a random layout."""
    axes, ranks = rng.choice(meshes)
    kind = rng.choice(("plain", "plain", "plain", *KINDS))
    where = ",".join(f"{a}={n}" for a, n in axes.items()) + "@" + ";".join(map(str, ranks))
    if len(ranks) == 1:
        where = f"x=1@{ranks[0]}"
    dtype = SHORT[whole.itemsize]
    if whole.ndim == 0:
        side.types[name] = (f"{dtype}[]", where)
        side.tiles |= {(rank, name): whole.copy() for rank in ranks}
        return
    layout = random_layout(rng, whole.shape, axes, kind, False)
    side.types[name] = (layout.text(dtype), where)
    sizes = list(axes.values())
    for device, rank in enumerate(ranks):
        at = dict(zip(axes, (int(c) for c in np.unravel_index(device, sizes)), strict=True))
        index = [
            [i for i in range(n) if holds(dim, i, at, axes)]
            for dim, n in zip(layout.dims, whole.shape, strict=True)
        ]
        side.tiles[rank, name] = np.ascontiguousarray(whole[np.ix_(*index)])


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

    def carry_out(self, plan: Any, ranks: Sequence[int]) -> None:
        """All runs of a plan, as its receivers list them; what senders list must be the same."""
        for place, tile in self.target.items():
            self.tiles[place] = np.zeros(tile.nbytes, np.uint8)
            self.written[place] = np.zeros(tile.nbytes, np.int64)
        sources = {key: tile.reshape(-1).view(np.uint8) for key, tile in self.source.items()}
        sent: dict[tuple[int, int, int], list[Any]] = {}
        for rank in ranks:
            for run in plan.runs(rank, sends=True).tolist():
                sent.setdefault((rank, run[1], run[0]), []).append(run)
        for rank in ranks:
            mine: dict[tuple[int, int, int], list[Any]] = {}
            for run in plan.runs(rank).tolist():
                mine.setdefault((run[1], rank, run[0]), []).append(run)
            for key, runs in mine.items():
                theirs = sent.pop(key)
                assert [(r[3], r[2], r[5], r[4], r[6], r[7], r[9], r[8]) for r in runs] == [
                    tuple(r[2:]) for r in theirs
                ]
                for run in runs:
                    self._copy(plan, key[0], rank, run, sources)
        assert not sent, "sent, but nobody receives it"

    def _copy(
        self, plan: Any, sender: int, rank: int, run: Any, sources: Mapping[Any, Array]
    ) -> None:
        number, _, tensor, there, offset, there_offset, n_bytes, count, step, there_step = run
        to = (rank, plan.target.stored[tensor])
        source = sources[sender, plan.source.stored[there]]
        for i in range(count):
            a, b = there_offset + i * there_step, offset + i * step
            assert 0 <= a <= a + n_bytes <= len(source)
            self.tiles[to][b : b + n_bytes] = source[a : a + n_bytes]
            self.written[to][b : b + n_bytes] += 1
        if sender != rank:
            self.received += n_bytes * count
            for one in (sender, rank):
                self.loads[number, one] = self.loads.get((number, one), 0) + n_bytes * count
