"""Many figures as one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np


def geomean(values: Iterable[float]) -> float | None:
    """The geometric mean; None of nothing.

    >>> geomean([1.0, 4.0]), geomean([])
    (2.0, None)
    """
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def most(values: Iterable[float]) -> float | None:
    """The largest; None of nothing."""
    return max(values, default=None)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that this share of all does not exceed; None of nothing.

    >>> quantile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    return float(np.quantile(values, share)) if values else None


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Quartiles and the median between them.

    >>> quartiles([3.0, 1.0, 2.0])
    (1.5, 2.0, 2.5)
    """
    low, middle, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
    return low, middle, high


def met(good: bool) -> str:
    """How an aim is reported.

    >>> met(True), met(False)
    ('met', 'MISSED')
    """
    return "met" if good else "MISSED"
