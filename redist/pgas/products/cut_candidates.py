"""List the ways to cut the labels of a product: which parts of the mesh's axes go to which label."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from redist.layout.axes import SubAxis
from redist.layout.tiles import Ints

Cut = tuple[SubAxis, ...]
Cuts = Mapping[Hashable, Cut]

MOST_CANDIDATES = 1500
"""Of more ways only those are listed in which few labels take turns along an axis."""
MOST_CELLS = 2**21
"""Fewer still on many devices: ways times devices."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Ways to cut labels: ``ids`` has a row for each way, with the number of every label's cut."""

    labels: tuple[Hashable, ...]
    cuts: tuple[tuple[Cut, ...], ...]
    ids: Ints

    def __getitem__(self, row: int) -> dict[Hashable, Cut]:
        """One way, without the labels that are not cut."""
        named = zip(self.labels, self.cuts, self.ids[row].tolist(), strict=True)
        return {label: cuts[number] for label, cuts, number in named if cuts[number]}


def list_candidates(
    labels: Sequence[Hashable], parts: Sequence[SubAxis], n_devices: int, first: Iterable[Cuts]
) -> Candidates:
    """Some ways that come first, and all ways to put parts of axes on labels or nowhere.

    >>> x, y = SubAxis("x", 1, 2), SubAxis("x", 2, 2)
    >>> found = list_candidates("ij", [x, y], 4, [])
    >>> len(found.ids), found[1]
    (9, {'i': (SubAxis(name='x', pre=1, size=2),), 'j': (SubAxis(name='x', pre=2, size=2),)})
    """
    places = _places(parts, len(labels), max(1, min(MOST_CANDIDATES, MOST_CELLS // n_devices)))
    first = list(first)
    cuts, columns = [], []
    for number, label in enumerate(labels):
        masks = (places == number) @ (1 << np.arange(len(parts), dtype=np.int64))
        kinds, ids = np.unique(masks, return_inverse=True)
        known: dict[Cut, int] = {}
        for mask in kinds.tolist():
            known[tuple(part for i, part in enumerate(parts) if mask >> i & 1)] = len(known)
        begin = [known.setdefault(way.get(label, ()), len(known)) for way in first]
        cuts.append(tuple(known))
        columns.append(np.concatenate([np.array(begin, dtype=np.int64), ids.reshape(-1)]))
    shape = (len(first) + len(places), 0)
    ids = np.stack(columns, axis=1) if columns else np.zeros(shape, dtype=np.int64)
    return Candidates(tuple(labels), tuple(cuts), ids)


def _places(parts: Sequence[SubAxis], n_labels: int, most: int) -> Ints:
    """A row for each way: for every part the number of its label, or ``n_labels`` for none.

    If there are too many, the parts of an axis go to few labels, each taking a run of them.
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
