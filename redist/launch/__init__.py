"""Start MPI jobs with the mpirun that is installed, and child processes outside of them."""
