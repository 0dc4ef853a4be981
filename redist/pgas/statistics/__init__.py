"""Averages, covariances, quantiles and counts of global arrays, by NumPy's names."""

from redist.pgas.statistics.averages import average, corrcoef, cov, ptp
from redist.pgas.statistics.counts import bincount, histogram
from redist.pgas.statistics.quantiles import median, percentile, quantile
from redist.pgas.statistics.without_nan import (
    nanmax,
    nanmean,
    nanmedian,
    nanmin,
    nanpercentile,
    nanprod,
    nanquantile,
    nanstd,
    nansum,
    nanvar,
)

__all__ = [
    "average", "bincount", "corrcoef", "cov", "histogram", "median", "nanmax", "nanmean",
    "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar",
    "percentile", "ptp", "quantile",
]  # fmt: skip
