"""A plan as collectives of other systems: JAX, PyTorch, plain mpi4py."""
