"""A cluster on one machine: hosts as network namespaces, links of a given rate, MPI over them."""
