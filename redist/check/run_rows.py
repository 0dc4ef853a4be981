"""Runs as rows of an array: from where to where how many bytes go, and in which round."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from redist.check.boxes import Rows
from redist.errors import ArgumentError

FIELDS = (
    "round", "source", "source_offset", "target", "target_offset", "bytes",
    "count", "source_step", "target_step",
)  # fmt: skip
RUN = np.dtype([(name, "<i4" if name in ("round", "source") else "<i8") for name in FIELDS])
"""A run: block i of ``count`` goes from ``source_offset + i * source_step`` of buffer number ``source`` to
``target_offset + i * target_step`` of buffer number ``target``. The last three may be absent: one block."""


def as_runs(runs: Any) -> Rows:
    """Runs as an array with the fields of :data:`RUN`.

    >>> as_runs([(0, 0, 8, 1, 16, 4)])["target_offset"]
    array([16])
    """
    if isinstance(runs, np.ndarray) and runs.dtype.names is not None:
        names = runs.dtype.names
        numbers = all(runs.dtype[name].kind in "iu" for name in names if name in FIELDS)
        if runs.ndim != 1 or not numbers or not (set(FIELDS[:6]) <= set(names)):
            raise ArgumentError(
                f"cannot use an array with the fields {', '.join(names)} as runs: need whole numbers "
                f"{', '.join(FIELDS[:6])}, and {', '.join(FIELDS[6:])} where blocks repeat"
            )
        for name in names:
            if runs.dtype[name] == np.uint64 and (runs[name] >= 2**63).any():
                raise ArgumentError(f"cannot use runs: {name} is beyond 63 bits")
        return runs
    try:
        given = [tuple(row) for row in runs]
        wrong = next((n for n, row in enumerate(given) if len(row) not in (6, 9)), None)
        if wrong is not None:
            raise ArgumentError(f"cannot use run {wrong}, {given[wrong]}: need 6 or 9 numbers")
        table = np.array([(*row, 1, 0, 0)[:9] for row in given]).reshape(-1, 9)
    except (TypeError, ValueError) as problem:
        raise ArgumentError(f"cannot use runs: {problem}; give rows of whole numbers") from None
    if len(table) and (table.dtype.kind != "i" or np.abs(table[:, :2]).max() >= 2**31):
        raise ArgumentError(
            "cannot use runs: give rows of whole numbers within 64 bits, of rounds within 32"
        )
    out = np.empty(len(table), dtype=RUN)
    for name, column in zip(FIELDS, table.T, strict=True):
        out[name] = column
    return out


Copied = tuple[int, int, int, int, int, int]
"""Of runs between two buffers: source offset, target offset, bytes, count, source step, target step."""


def copied(
    shape: Sequence[int],
    itemsize: int,
    source: tuple[int, Sequence[int]],
    target: tuple[int, Sequence[int]],
) -> Iterator[Copied]:
    """The runs of a copy between places that begin at an offset and have strides, all in bytes.

    >>> list(copied((4, 3), 2, (0, (6, 2)), (10, (12, 2))))
    [(0, 10, 6, 4, 6, 12)]
    """
    (begin, steps), (there, there_steps) = source, target
    dims = [d for d in zip(shape, steps, there_steps, strict=True) if d[0] != 1]
    if any(size == 0 for size, _, _ in dims):
        return
    n_bytes = itemsize
    while dims and dims[-1][1] == dims[-1][2] == n_bytes:
        n_bytes *= dims.pop()[0]
    count, step, there_step = dims.pop() if dims else (1, 0, 0)
    for place in itertools.product(*(range(size) for size, _, _ in dims)):
        at = begin + sum(k * one for k, (_, one, _) in zip(place, dims, strict=True))
        to = there + sum(k * one for k, (_, _, one) in zip(place, dims, strict=True))
        yield at, to, n_bytes, count, step, there_step
