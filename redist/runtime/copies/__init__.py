"""Strided copies and reductions between arrays of one process, compiled or by NumPy. No MPI."""
