"""``redist calibrate``: start an MPI job that measures this machine and writes a topology file."""

from __future__ import annotations

import argparse
from pathlib import Path

from redist.cli.files import shown
from redist.cli.status import UsageError
from redist.launch.launcher import find_launcher, launch, ranks_of


def run_calibrate(args: argparse.Namespace) -> int:
    """What can be wrong is found out before the job is started."""
    n_ranks = ranks_of(args.ranks, least=2)
    output = Path(args.output)
    if not output.absolute().parent.is_dir():
        raise UsageError(f"--output: cannot write {shown(args.output)}: there is no such folder")
    program = ["-m", "redist.measure.calibrate", "--output", args.output]
    if args.node_size is not None:
        size = ranks_of(args.node_size)
        if n_ranks % size:
            raise UsageError(f"--node-size: {n_ranks} ranks do not make whole nodes of {size}")
        program += ["--node-size", str(size)]
    return launch(find_launcher(args.mpi), n_ranks, program)
