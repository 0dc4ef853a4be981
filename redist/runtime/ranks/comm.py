"""Communicators, for the layers that pass them on and never call MPI themselves."""

from __future__ import annotations

from mpi4py import MPI

Comm = MPI.Comm


def comm_or_world(comm: Comm | None) -> Comm:
    """The communicator given, or the one of all ranks."""
    return MPI.COMM_WORLD if comm is None else comm
