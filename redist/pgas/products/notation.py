"""Labels of dims as text: ``ij,jk->ik``; which operand has which, and what the result keeps."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from redist.errors import ArgumentError
from redist.pgas.shapes.diagonals import diagonal
from redist.pgas.tiles.tiled import T

NamedLabels = tuple[Any, ...]
"""Letters, and negative numbers for the dims of ``...``, from the end."""


@lru_cache(maxsize=256)
def read_labels(
    what: str, subscripts: str, ndims: tuple[int, ...]
) -> tuple[tuple[NamedLabels, ...], NamedLabels]:
    """Read the labels of the operands and of the result; ``what`` begins an error, after "cannot".

    >>> read_labels("sum", "...k,kj->...j", (3, 2))
    (((-2, -1, 'k'), ('k', 'j')), (-2, -1, 'j'))
    """
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ArgumentError(f"cannot {what}: {len(terms)} terms but {len(ndims)} operands")
    inputs = []
    for term, ndim in zip(terms, ndims, strict=True):
        named = len(term.replace("...", ""))
        if named > ndim or (named < ndim and "..." not in term):
            raise ArgumentError(f"cannot {what}: {term!r} for an array of {ndim} dims")
        inputs.append(_labels(what, term, ndim - named))
    spread = max((len([1 for label in one if isinstance(label, int)]) for one in inputs), default=0)
    if arrow:
        output = _labels(what, right, spread)
    else:
        counts = Counter(label for one in inputs for label in one if isinstance(label, str))
        once = tuple(sorted(label for label, n in counts.items() if n == 1))
        output = (*range(-spread, 0), *once)
    known = {label for one in inputs for label in one}
    if len(set(output)) < len(output) or not set(output) <= known:
        raise ArgumentError(f"cannot {what}: the result's labels must be the operands', once")
    return tuple(inputs), output


def _labels(what: str, term: str, spread: int) -> NamedLabels:
    head, dots, tail = term.partition("...")
    if not set(head + tail) <= set(string.ascii_letters):
        raise ArgumentError(f"cannot {what}: {term!r} must be letters and one '...'")
    return (*head, *(range(-spread, 0) if dots else ()), *tail)


def check_sizes(
    what: str, shapes: Sequence[Sequence[int]], inputs: Sequence[NamedLabels]
) -> dict[Any, int]:
    """The size of every label; an error if operands do not agree. A size of 1 stretches."""
    sizes: dict[Any, int] = {}
    for shape, labels in zip(shapes, inputs, strict=True):
        own: dict[Any, int] = {}
        for label, n in zip(labels, shape, strict=True):
            known = sizes.get(label, 1)
            if own.setdefault(label, n) != n or (n != known and 1 not in (n, known)):
                other = known if own[label] == n else own[label]
                raise ArgumentError(f"cannot {what}: sizes {other} and {n} of {label!r} differ")
            sizes[label] = n if known == 1 else known
    return sizes


def label_operands(
    operands: Sequence[T], inputs: Sequence[NamedLabels]
) -> list[tuple[T, NamedLabels]]:
    """**Collective** if diagonals must move. The operands with their labels, none of which is repeated."""
    return [_take_diagonals(x, labels) for x, labels in zip(operands, inputs, strict=True)]


def _take_diagonals(x: T, labels: NamedLabels) -> tuple[T, NamedLabels]:
    """Take the diagonals of dims with the same label, so that no label is repeated."""
    while len(set(labels)) < len(labels):
        label = next(label for label in labels if labels.count(label) > 1)
        i = labels.index(label)
        j = labels.index(label, i + 1)
        x = diagonal(x, i, j)
        labels = (*(one for k, one in enumerate(labels) if k not in (i, j)), label)
    return x, labels
