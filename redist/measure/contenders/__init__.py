"""Ways to do the work of a benchmark case: redist's own, by hand, and naive."""
