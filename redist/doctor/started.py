"""Tell whether the mpirun that started this process belongs to the MPI library that it uses."""

from __future__ import annotations

import os
from pathlib import Path

from redist.doctor.process import NO, Fact, mpi_library
from redist.launch.launcher import MPICH, OPEN_MPI

KINDS = (MPICH, OPEN_MPI)

NUMBERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
"""Where launchers tell a process its rank and how many there are: Open MPI, MPICH, Slurm."""


def started_as() -> tuple[int, int]:
    """**Local.** Rank and number of ranks that the launcher meant; (0, 1) without a launcher."""
    for rank, size in NUMBERS:
        numbers = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(text.isdecimal() for text in numbers):
            return int(numbers[0]), int(numbers[1])
    return 0, 1


def launcher_fact(launcher: str, n_alone: int) -> list[Fact]:
    """**Local.** What is to be said of ``KIND: PATH``, the launcher, nothing if there is none.

    ``n_alone`` is how many processes it has started that do not know of each other.
    """
    from mpi4py import MPI

    kind, _, path = launcher.partition(": ")
    vendor, _ = MPI.get_vendor()
    path = path or "the launcher"
    if n_alone > 1:
        problem = f"{path} started {n_alone} processes, but each of them is rank 0 of 1"
    elif kind in KINDS and (kind == OPEN_MPI) != (vendor == OPEN_MPI):
        problem = f"{path} is {kind}'s, so ranks would not start, or each be rank 0 of 1"
    else:
        return [Fact("launcher", kind, path)] if launcher else []
    library = mpi_library()
    own = Path(library).parent.parent / "bin" / "mpirun"
    right = str(own) if library and own.exists() else f"an mpirun of {vendor}"
    return [Fact("launcher", NO, f"{problem}: mpi4py uses {vendor} ({library}); use {right}")]
