"""Datatypes of MPI: what they describe as strided copies, packed and unpacked by the kernels."""
