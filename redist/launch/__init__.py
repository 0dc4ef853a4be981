"""Start MPI jobs with the installed mpirun, start child processes outside of them, or join without mpirun.

The package can be called: ``redist.launch(4)`` calls :func:`redist.launch.local.launch`. A function of the
same name would be hidden as soon as anything imports ``redist.launch.launcher``, because Python then binds
the package to the name ``redist.launch``; whether it worked would depend on what was imported before.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redist.launch.local import LocalRanks


class _LaunchPackage(ModuleType):
    """A package that can be called."""

    def __call__(self, n_ranks: int, timeout_s: float = 60.0) -> LocalRanks:
        """Start ranks on this machine; see :func:`redist.launch.local.launch`."""
        from redist.launch.local import launch

        return launch(n_ranks, timeout_s)


sys.modules[__name__].__class__ = _LaunchPackage
