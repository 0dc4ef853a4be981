"""Say which MPI library this is."""

from mpi4py import MPI

if __name__ == "__main__":
    print(MPI.Get_library_version().split(",")[0], flush=True)
