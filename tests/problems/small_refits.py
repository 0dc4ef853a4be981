"""Small refits whose plans are made element by element, by a way of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.layout.array_type import ArrayType
from redist.layout.casts import cast
from redist.layout.dtype import DType
from redist.layout.mesh import Mesh
from redist.layout.tiles import boxes_of
from redist.refits.runs import RUN

Labels = NDArray[np.int64]
"""The number of every element among all that are handed over."""
Tiles = dict[str, Any]
F32, BF16 = DType.parse("f32"), DType.parse("bf16")


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored tensor: its type, and the labels of its elements."""

    type: ArrayType
    labels: Labels

    def tiles(self) -> dict[int, Labels]:
        """The labels that each rank holds."""
        return {
            rank: np.ascontiguousarray(self.labels[tuple(slice(*ends) for ends in box)])
            for rank, box in boxes_of(self.type).items()
        }


@dataclass(frozen=True, slots=True)
class _Piece:
    """Elements together at both ends: where they lie, in elements, and how many."""

    peer: int
    there: int
    at: int
    there_at: int
    n: int


@dataclass
class SmallRefit:
    """A plan as runs say it: of ``n_ranks`` ranks, from stored tensors to stored tensors."""

    source_tensors: Mapping[str, Stored]
    target_tensors: Mapping[str, Stored]
    n_ranks: int
    rounds: int = 3
    limit_bytes: int = 2**30
    source: Any = field(init=False)
    target: Any = field(init=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        self.source, self.target = (
            SimpleNamespace(types={name: one.type for name, one in side.items()})
            for side in (self.source_tensors, self.target_tensors)
        )
        self._all = sorted(self._list(), key=lambda row: row[0])
        self.digest = hashlib.sha256(repr(self._all).encode()).hexdigest()

    def _list(self) -> Iterator[tuple[int, ...]]:
        """Round, sender, tensor, offset, step, receiver, tensor, offset, step, bytes, count."""
        names = sorted(self.source_tensors), sorted(self.target_tensors)
        holders: dict[int, dict[int, tuple[int, int]]] = {}
        for number, name in enumerate(names[0]):
            for rank, labels in self.source_tensors[name].tiles().items():
                for at, label in enumerate(labels.ravel().tolist()):
                    holders.setdefault(label, {})[rank] = number, at
        found = 0
        for number, name in enumerate(names[1]):
            target = self.target_tensors[name]
            for rank, labels in sorted(target.tiles().items()):
                for piece, count, there_step, step in _runs(_pieces(labels, holders, rank)):
                    source = self.source_tensors[names[0][piece.there]].type.dtype.itemsize
                    wanted = target.type.dtype.itemsize
                    wire = min(source, wanted)
                    yield (
                        found % self.rounds, piece.peer, piece.there, piece.there_at * source,
                        there_step * source, rank, number, piece.at * wanted, step * wanted,
                        piece.n * wire, count,
                    )  # fmt: skip
                    found += 1

    def runs(self, rank: int, *, sends: bool = False) -> Any:
        """Records of what a rank receives, or sends."""
        rows = []
        for number, sender, tensor, offset, step, receiver, to, at, apart, n_bytes, n in self._all:
            if sends and sender == rank:
                rows.append((number, receiver, tensor, to, offset, at, n_bytes, n, step, apart))
            if not sends and receiver == rank:
                rows.append((number, sender, to, tensor, at, offset, n_bytes, n, apart, step))
        return np.array(sorted(rows, key=lambda row: row[:2]), RUN)

    def sending(self, rank: int, version: int) -> Tiles:
        """The source tiles of a rank, with the values of a version."""
        return {
            name: _values(labels[rank], version, one.type.dtype)
            for name, one in self.source_tensors.items()
            if rank in (labels := one.tiles())
        }

    def receiving(self, rank: int) -> Tiles:
        """Target tiles of a rank, of no version."""
        return {
            name: np.full(labels[rank].shape, 0x5A, one.type.dtype.to_numpy())
            for name, one in self.target_tensors.items()
            if rank in (labels := one.tiles())
        }

    def wanted(
        self, rank: int, version: int, changed: Sequence[str] | None = None, before: int = 0
    ) -> Tiles:
        """What a rank must have after a version; of tensors that have not changed, that of one before."""
        new: set[int] | None = None
        if changed is not None:
            new = {
                label
                for name in changed
                for label in self.source_tensors[name].labels.ravel().tolist()
            }
        dtypes = {
            label: one.type.dtype
            for one in self.source_tensors.values()
            for label in one.labels.ravel().tolist()
        }
        found = {}
        for name, one in self.target_tensors.items():
            labels = one.tiles().get(rank)
            if labels is None:
                continue
            out = np.zeros(labels.shape, one.type.dtype.to_numpy())
            for at, label in np.ndenumerate(labels):
                which = version if new is None or int(label) in new else before
                value = _values(np.array([label]), which, dtypes[int(label)])
                out[at] = cast(value, dtypes[int(label)], one.type.dtype)[0]
            found[name] = out
        return found


def _values(labels: Labels, version: int, dtype: DType) -> Any:
    """A value for every element, other ones in every version."""
    mixed = (labels * 2654435761 + version * 40503) % 2**31
    if dtype.name in ("f32", "bf16"):
        return cast((mixed / 7).astype(np.float32), F32, dtype)
    return mixed.astype(dtype.to_numpy())


def _pieces(
    labels: Labels, holders: Mapping[int, Mapping[int, tuple[int, int]]], rank: int
) -> Iterator[_Piece]:
    """Elements of a tile by who gives them, joined where they lie together at both ends."""
    last: _Piece | None = None
    for at, label in enumerate(labels.ravel().tolist()):
        held = holders[label]
        peer = rank if rank in held else sorted(held)[rank % len(held)]
        there, there_at = held[peer]
        joins = last is not None and (last.peer, last.there) == (peer, there)
        if last is not None and joins and there_at == last.there_at + last.n:
            last = _Piece(peer, there, last.at, last.there_at, last.n + 1)
            continue
        if last is not None:
            yield last
        last = _Piece(peer, there, at, there_at, 1)
    if last is not None:
        yield last


def _runs(pieces: Iterator[_Piece]) -> Iterator[tuple[_Piece, int, int, int]]:
    """Pieces as runs: the first, how many are alike, and their steps there and here."""
    for _, group in groupby(pieces, key=lambda one: (one.peer, one.there, one.n)):
        alike = list(group)
        while alike:
            steps = [(b.there_at - a.there_at, b.at - a.at) for a, b in pairwise(alike)]
            n = 1
            while n <= len(steps) and steps[n - 1] == steps[0]:
                n += 1
            there_step, step = steps[0] if n > 1 else (alike[0].n, alike[0].n)
            yield alike[0], n, there_step, step
            alike = alike[n:]


def small_refit(
    n_sources: int = 2,
    n_targets: int = 2,
    *,
    together: bool = False,
    source: str = "f32",
    target: str = "bf16",
    rounds: int = 3,
) -> SmallRefit:
    """Rows of a training job to tensor parallelism: a fused tensor, a transposed cut, one that is whole.

    With ``together`` ranks train and serve.
    """
    train = Mesh(x=n_sources)
    serve = Mesh({"tp": n_targets}, ranks=range(n_targets) if together else
                 range(n_sources, n_sources + n_targets))  # fmt: skip
    start, labels = 0, {}
    for name, shape in (("a", (6, 4)), ("b", (6, 4)), ("norm", (5,)), ("o", (4, 8))):
        n = int(np.prod(shape))
        labels[name] = np.arange(start, start + n).reshape(shape)
        start += n
    given = {
        "a": f"{source}[6{{x}}, 4]", "b": f"{source}[6{{x}}, 4]", "norm": "i32[5{x}]",
        "o": f"{source}[4{{x}}, 8]",
    }  # fmt: skip
    fused = np.concatenate([labels["a"], labels["b"]])
    wanted = {
        "ab": (f"{target}[12{{tp}}, 4]", fused), "norm": ("i32[5]", labels["norm"]),
        "o": (f"{target}[4, 8{{tp}}]", labels["o"]),
    }  # fmt: skip
    return SmallRefit(
        {name: Stored(ArrayType.parse(text, train), labels[name]) for name, text in given.items()},
        {name: Stored(ArrayType.parse(text, serve), of) for name, (text, of) in wanted.items()},
        n_targets if together and n_targets > n_sources else (
            n_sources if together else n_sources + n_targets
        ),
        rounds=rounds,
    )  # fmt: skip


def random_refit(rng: Random, n_ranks: int, rounds: int | None = None) -> SmallRefit:
    """Any tensors on any ranks of both sides, cut anyhow; some of the target are made of several."""
    pairs = [("f32", "f32"), ("bf16", "bf16"), ("f32", "bf16"), ("bf16", "f32"), ("i32", "i32")]
    source, target = rng.choice(pairs)
    start = 0
    sources: dict[str, Stored] = {}
    targets: dict[str, Stored] = {}
    for number in range(rng.randrange(1, 4)):
        shape = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 4))]
        parts = rng.choice([1, 1, 2])
        labels = []
        for part in range(parts):
            n = int(np.prod(shape))
            labels.append(np.arange(start, start + n).reshape(shape))
            start += n
            name = f"w{number}.{part}"
            sources[name] = Stored(_random_type(rng, source, shape, n_ranks), labels[-1])
        whole = np.concatenate(labels)
        targets[f"t{number}"] = Stored(_random_type(rng, target, whole.shape, n_ranks), whole)
    return SmallRefit(sources, targets, n_ranks, rounds or rng.randrange(1, 4))


def _random_type(rng: Random, dtype: str, shape: Sequence[int], n_ranks: int) -> ArrayType:
    """A type on some of the ranks: cut along some dims, copies along others."""
    n = rng.randrange(1, n_ranks + 1)
    sizes = rng.choice([(a, n // a) for a in range(1, n + 1) if n % a == 0])
    mesh = Mesh({"x": sizes[0], "y": sizes[1]}, ranks=sorted(rng.sample(range(n_ranks), n)))
    cuts: list[list[str]] = [[] for _ in shape]
    for axis in ("x", "y"):
        if rng.random() < 0.75:
            cuts[rng.randrange(len(shape))].append(axis)
    dims = (
        f"{size}{{{','.join(cut)}}}" if cut else f"{size}"
        for size, cut in zip(shape, cuts, strict=True)
    )
    return ArrayType.parse(f"{dtype}[{', '.join(dims)}]", mesh)
