"""Memory that processes of one node share or read from each other. No MPI."""
