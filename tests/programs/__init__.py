"""Programs that tests start under mpirun, and how they are started."""
