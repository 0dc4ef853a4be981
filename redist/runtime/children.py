"""Processes that this one starts: they find this redist and take themselves for no part of its job."""

from __future__ import annotations

import os
from pathlib import Path

# An MPI job inside of another, or of a process that has used MPI, must not take itself for a part.
INNER = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "HYDI_")


def environment_outside() -> dict[str, str]:
    """**Local.** This process's environment for a process that starts MPI anew."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(INNER)}
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [env.get("PYTHONPATH")])]
    return {**env, "PYTHONPATH": os.pathsep.join(paths)}
