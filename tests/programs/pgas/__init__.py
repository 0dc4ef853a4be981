"""Global arrays under mpirun, against NumPy."""
