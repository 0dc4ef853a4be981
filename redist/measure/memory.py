"""How much memory a rank needs, measured on all ranks together; shared pages count by shares."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from redist.measure import pages
from redist.measure.timing import all_agree, meet


def can_measure(comm: MPI.Intracomm) -> bool:
    """Whether every rank's system tells. **Collective over `comm`.**"""
    return all_agree(comm, pages.can_measure())


def held_bytes(comm: MPI.Intracomm) -> int:
    """What this rank holds now. **Collective over `comm`.**"""
    pages.give_back()
    meet(comm)
    held = pages.held_bytes()
    meet(comm)
    return held


def peak_bytes(comm: MPI.Intracomm, call: Callable[[], None]) -> int:
    """What this rank holds at most during a call that has run before. **Collective over `comm`.**"""
    pages.give_back()
    meet(comm)
    pages.reset_peak()
    call()
    private = pages.private_peak_bytes()
    meet(comm)
    shared = pages.shared_bytes()
    meet(comm)
    return private + shared
