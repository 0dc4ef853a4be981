"""Ranks that joined without mpirun, beside those of mpirun."""
