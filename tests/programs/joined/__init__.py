"""Programs that join a job, as processes that mpirun did not start."""
