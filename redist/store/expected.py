"""What loading a checkpoint would read, move and hold on each rank, for a mesh that need not exist."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.tiles import spans_of
from redist.store.load import LoadPlan, Wanted, load_plan
from redist.store.save import RulesLike, rows_type
from redist.store.stored import Stored
from redist.text.columns import table
from redist.text.units import format_bytes

Figures = tuple[int, int, int]
"""Bytes that a rank reads, receives and holds."""


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    """The figures of every rank, the types of all arrays, and how each is read."""

    plan: LoadPlan
    ranks: tuple[int, ...]
    figures: tuple[Figures, ...]

    def lines(self) -> list[str]:
        """As two tables: arrays, and ranks; alike ones together."""
        rows = [("load", "as", "arrays", "read")]
        kinds = Counter((_pattern(w.name), str(w.type), w.read) for w in self.plan.wanted)
        rows += [(name, text, str(count), way) for (name, text, way), count in kinds.items()]
        lines = table(rows, left=(0, 1, 3), indent="  ")
        total = sum(read for read, _, _ in self.figures)
        moved = sum(received for _, received, _ in self.figures)
        named = {part.name for wanted in self.plan.wanted for part in wanted.parts}
        stored = sum(self.plan.stored[name].nbytes for name in named)
        lines.append("")
        figures: list[tuple[str, ...]] = [("ranks", "reads", "receives", "holds")]
        for numbers, row in _alike(self.ranks, self.figures):
            figures.append((numbers, *map(format_bytes, row)))
        figures.append(
            ("all", *(format_bytes(sum(one)) for one in zip(*self.figures, strict=True)))
        )
        lines += table(figures, left=(0,), indent="  ")
        times = (
            f" = {total / stored:.2f} x the {format_bytes(stored)} in the files" if stored else ""
        )
        lines += ["", f"reads      {format_bytes(total)}{times}"]
        if moved:
            lines.append("receives   at least: what a rank holds and has not read itself")
        return lines


def expected_load(found: Stored, types: Any, mesh: Mesh, names: RulesLike = None) -> ExpectedLoad:
    """**Local.** The figures of a load into these types; as :func:`redist.load` would choose to read."""
    plan = load_plan(found, types, mesh, names=names)
    ranks = tuple(
        sorted({rank for one in plan.wanted for rank in one.type.mesh.ranks} or mesh.ranks)
    )
    alike: dict[object, tuple[Wanted, int]] = {}
    for one in plan.wanted:  # arrays that differ in their names alone have the same figures
        parts = tuple(
            (p.shape, p.digits, p.dims, p.steps, p.starts, found[p.name].dtype) for p in one.parts
        )
        key = (one.type, one.read, parts)
        alike[key] = (one, alike.get(key, (one, 0))[1] + 1)
    totals = {rank: [0, 0, 0] for rank in ranks}
    for one, count in alike.values():
        single = LoadPlan(plan.path, (one,), found)
        for rank in one.type.mesh.ranks:
            own = single.read_bytes(rank), _received(one, rank), single.held_bytes(rank)
            totals[rank] = [a + count * b for a, b in zip(totals[rank], own, strict=True)]
    return ExpectedLoad(plan, ranks, tuple((a, b, c) for a, b, c in totals.values()))


def _received(one: Wanted, rank: int) -> int:
    """The bytes of a tile that its rank does not read itself."""
    if one.read == "slices":
        return 0
    return _lacking(one.type, rows_type(one.type), rank) * one.type.dtype.itemsize


def _lacking(need: ArrayType, have: ArrayType, rank: int) -> int:
    """Elements of a tile that a tile of another type does not have."""
    wanted, held = spans_of(need, rank), spans_of(have, rank)
    if wanted is None:
        return 0
    size = math.prod(sum(hi - lo for lo, hi in dim) for dim in wanted)
    if held is None:
        return size
    return size - math.prod(_common(a, b) for a, b in zip(wanted, held, strict=True))


def _common(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> int:
    """Indices that two lists of ranges share.

    >>> _common([(0, 4), (8, 12)], [(2, 10)])
    4
    """
    return sum(max(0, min(h, k) - max(lo, at)) for (lo, h), (at, k) in itertools.product(a, b))


def _pattern(name: str) -> str:
    """A name with its numbers as stars: arrays of all layers are one line.

    >>> _pattern("layers.12.w1.weight")
    'layers.*.w1.weight'
    """
    return ".".join("*" if piece.isdecimal() else piece for piece in name.split("."))


def _alike(ranks: Sequence[int], figures: Sequence[Figures]) -> list[tuple[str, Figures]]:
    """Neighbours with the same figures, as ranges."""
    found: list[tuple[str, Figures]] = []
    pairs = zip(ranks, figures, strict=True)
    for row, group in itertools.groupby(pairs, key=lambda pair: pair[1]):
        numbers = [rank for rank, _ in group]
        some = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        found.append((some, row))
    return found
