"""Transfers under mpirun, against the simulator."""
