"""Sums of tables of costs: the least, exactly or with a bound, also within a memory limit."""
