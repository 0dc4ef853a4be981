"""Rows and numbers over ranks: what a rank has, sums and draws of all, rows passed on, visits to tiles."""
