"""Reductions over dims, pending if a dim is cut; running sums, and places of extremes."""

# ruff: noqa: I001  (names stand side by side)
from redist.pgas.reductions.named import (
    all, allclose, any, argmax, argmin, count_nonzero, cumulative_prod, cumulative_sum, max, mean, min,
    prod, std, sum, var,
)  # fmt: skip

__all__ = [
    "all", "allclose", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum", "max",
    "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip
