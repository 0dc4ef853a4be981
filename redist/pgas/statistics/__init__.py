"""Averages, covariances, quantiles and counts of global arrays, by NumPy's names."""

from redist.pgas.statistics.averages import average, corrcoef, cov, ptp
from redist.pgas.statistics.counts import bincount, histogram
from redist.pgas.statistics.quantiles import median, percentile, quantile

__all__ = [
    "average", "bincount", "corrcoef", "cov", "histogram", "median", "percentile", "ptp", "quantile",
]  # fmt: skip
