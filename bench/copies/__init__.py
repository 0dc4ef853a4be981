"""Copies within the memory of a machine: the compiled kernels beside NumPy and OpenBLAS."""
