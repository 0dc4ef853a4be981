"""``redist doctor``: start a process, or an MPI job, that says what it finds to move arrays with.

As in ``redist doctor -n 4``. The process is another one because an MPI that is broken ends it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from redist.cli.status import FAILED, UsageError
from redist.launch.launcher import Launcher, environment, find_launcher, launch, ranks_of

MODULE = "redist.doctor.report"


def run_doctor(args: argparse.Namespace) -> int:
    """0 where arrays can be moved; 1 where MPI does not even start."""
    if args.ranks is None:
        if args.node_size is not None:
            raise UsageError("--node-size: cannot make nodes of one process; give -n too")
        return _alone(_told(args.mpi))
    n_ranks = ranks_of(args.ranks)
    launcher = find_launcher(args.mpi)
    program = ["-m", MODULE, "--launcher", _words(launcher)]
    if args.node_size is not None:
        program += ["--node-size", str(ranks_of(args.node_size))]
    return launch(launcher, n_ranks, program)


def _alone(launcher: str) -> int:
    command = [sys.executable, "-m", MODULE, "--launcher", launcher]
    sys.stdout.flush()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          env=environment(), text=True, errors="replace")  # fmt: skip
    print(done.stdout, end="")
    if done.returncode not in (0, FAILED):
        print(f"MPI   no   a process that starts it ends with status {done.returncode}")
    return FAILED if done.returncode else 0


def _told(given: str | None) -> str:
    """The launcher in words, or why there is none."""
    try:
        return _words(find_launcher(given))
    except UsageError as error:
        if given is not None:
            raise
        return f"no: {error}"


def _words(launcher: Launcher) -> str:
    return f"{launcher.kind}: {launcher.path}"
