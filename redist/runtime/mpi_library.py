"""Whether MPI can be loaded: whoever needs it imports this first, and says so in one line if not."""

import os

from redist.errors import LaunchError

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    reason = str(error).strip().partition("\n")[0]
    raise LaunchError(
        f"cannot use MPI: {reason}; install an MPI library, as with python -m pip install mpi4py mpich"
    ) from None

__all__ = ["MPI", "why_alone"]


def why_alone() -> str:
    """**Local.** What to add to an error about too few ranks, if a launcher meant more than MPI knows of."""
    told = (os.environ.get(name, "") for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"))
    if MPI.COMM_WORLD.size > 1 or not any(n.isdecimal() and int(n) > 1 for n in told):
        return ""
    return "; this mpirun belongs to another MPI than mpi4py: see redist doctor"
