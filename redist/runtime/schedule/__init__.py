"""What one rank copies, sends and receives, worked out before anything moves. No MPI."""
