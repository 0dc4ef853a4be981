"""Programs of clustering that run under mpirun."""
