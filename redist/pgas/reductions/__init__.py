"""Sums, extrema and running sums along dims."""
