"""Whether MPI can be loaded: whoever needs it imports this first, and says so in one line if not."""

from redist.errors import LaunchError

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    reason = str(error).strip().partition("\n")[0]
    raise LaunchError(
        f"cannot use MPI: {reason}; install an MPI library, as with python -m pip install mpi4py mpich"
    ) from None

__all__ = ["MPI"]
