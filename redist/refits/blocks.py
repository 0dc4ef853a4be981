"""Weights with a scale for each block: every rank must have the scales of exactly its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from redist.errors import ArgumentError, LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.tiles import check_blocks
from redist.names.patterns import NamePattern, Patterns
from redist.refits.recorded import Recorded, RecordedBox, Shape
from redist.refits.weights import Weights
from redist.text.units import ceil_div

Paired = Mapping[str, tuple[str, Sequence[int]]]
"""The name of scales, and the sizes of blocks, for the name of a weight; both names may be patterns."""


def check_pairs(weights: Weights, pair: Paired, side: str = "weights") -> None:
    """**Local.** Raise unless every rank has the scales of exactly the blocks that it has, for all pairs.

    >>> w = Weights({"a.weight": "f8e4m3fn[212{tp}*128, 512]", "a.scale": "f32[212{tp}, 4]"}, "tp=4")
    >>> check_pairs(w, {"*.weight": ("*.scale", (128, 128))})
    >>> w = Weights({"a.weight": "f8e4m3fn[3072{tp}, 512]", "a.scale": "f32[24{tp}, 4]"}, "tp=16")
    >>> check_pairs(w, {"*.weight": ("*.scale", (128, 128))})
    Traceback (most recent call last):
    ...
    redist.errors.LayoutError: cannot pair a.weight with a.scale: rank 0 has indices 0 to 192 of dim 0, which
    cut a block of 128; write the dim as blocks, as in 24{...}*128

    Tensors without scales of that name, such as norms, are left alone.
    """
    for text, (scales, sizes) in pair.items():
        names = _Pairs(text, scales)
        found = [
            (name, other) for name, other in names.of(weights.stored) if other in weights.types
        ]
        if not found:
            raise ArgumentError(
                f"cannot pair {text!r} with {scales!r}: no two of the {len(weights.stored)} stored tensors "
                f"of the {side} have such names"
            )
        if weights.recorded_by_rank is not None:
            for rank, one in weights.recorded_by_rank.items():
                _check_recorded(rank, one, found, names, tuple(sizes))
            continue
        seen: set[tuple[ArrayType, ArrayType]] = set()
        for name, other in found:
            types = weights.types[name], weights.types[other]
            if types not in seen:
                seen.add(types)
                _check(name, other, *types, sizes)


def _check(
    name: str, other: str, weight: ArrayType, scales: ArrayType, sizes: Sequence[int]
) -> None:
    try:
        check_blocks(weight, scales, sizes)
    except LayoutError as problem:
        why = str(problem).partition(f"with scales {scales}: ")[2]
        raise LayoutError(f"cannot pair {name} with {other}: {why}") from None


class _Pairs:
    """The names of scales for those of weights."""

    def __init__(self, weights: str, scales: str) -> None:
        left = NamePattern.of(weights)
        left = NamePattern(left.pieces, left.letters)
        right = NamePattern.of(scales, left.shared)
        if right.n_stars != left.n_stars or right.indices:
            raise ArgumentError(
                f"cannot pair {weights!r} with {scales!r}: both need the same * and the same letters "
                "in braces"
            )
        self._found, self._scales = Patterns([left]), right.with_indices({})

    def of(self, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Every name of a weight, with that of its scales."""
        for name in names:
            for _, stars, _ in self._found.find(name):
                yield name, self._scales.format(*stars)


def _check_recorded(
    rank: int, one: Recorded, found: Sequence[tuple[str, str]], names: _Pairs, sizes: Shape
) -> None:
    """What one rank recorded: boxes of scales are those of weights, counted in blocks."""
    of_stored: dict[str, list[RecordedBox]] = {}
    for box in one.boxes:
        of_stored.setdefault(box.stored, []).append(box)
    for name, other in found:
        if name not in of_stored:
            continue

        def refuse(reason: str, name: str = name, other: str = other) -> LayoutError:
            return LayoutError(f"cannot pair {name} with {other}: rank {rank} has {reason}")

        wanted = set()
        for box in of_stored[name]:
            at = _places(box, one, name)
            if at is None or len(box.lo) != len(sizes):
                raise refuse(f"{box.tensor} in another order of dims, or of another number of dims")
            full, of = one.tensors[box.tensor], dict(names.of([box.tensor]))
            for d, (lo, n, b) in enumerate(zip(box.lo, box.shape, sizes, strict=True)):
                if lo % b or at[d] % b or ((lo + n) % b and lo + n != full[d]):
                    raise refuse(
                        f"indices {lo} to {lo + n} of dim {d} of {box.tensor} from index {at[d]} of its "
                        f"tile, which cut a block of {b}; cut the dim by whole blocks"
                    )
            counts = tuple(ceil_div(n, b) for n, b in zip(box.shape, sizes, strict=True))
            begins = (tuple(k // b for k, b in zip(ks, sizes, strict=True)) for ks in (box.lo, at))
            wanted.add((of.get(box.tensor), counts, *begins))
        have = {
            (box.tensor, box.shape, box.lo, tuple(_places(box, one, other) or ()))
            for box in of_stored.get(other, [])
        }
        if wanted != have:
            raise refuse("scales of other blocks than those that it has; load both alike")


def _places(box: RecordedBox, one: Recorded, name: str) -> list[int] | None:
    """Where a box begins along the dims of the tile that are its own; None if they are in another order."""
    shape, dtype = one.stored[name]
    first = [int(k) for k in np.unravel_index(box.offset // dtype.itemsize, shape)]
    front = len(shape) - len(box.lo)
    steps = [dtype.itemsize * int(np.prod(shape[d + 1 :])) for d in range(front, len(shape))]
    alike = all(n == 1 or s == t for n, s, t in zip(box.shape, box.strides, steps, strict=False))
    return first[front:] if alike and front >= 0 else None
