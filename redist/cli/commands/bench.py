"""``redist bench``: start an MPI job that measures, and hand on its exit status."""

from __future__ import annotations

import argparse
from importlib.machinery import PathFinder
from pathlib import Path

from redist.cli.files import shown
from redist.cli.status import UsageError
from redist.launch.launcher import find_launcher, launch, package_folder, ranks_of
from redist.measure.options import PEERS, BenchOptions


def run_bench(args: argparse.Namespace) -> int:
    """What can be wrong is found out before the job is started."""
    n_ranks = ranks_of(args.ranks, least=2)
    options = BenchOptions.read(args)
    for option, name in (("--json", options.json), ("--plot", options.plot)):
        if name is not None and not Path(name).absolute().parent.is_dir():
            raise UsageError(f"{option}: cannot write {shown(name)}: there is no such folder")
    package = PEERS.partition(".")[0]
    if (
        options.with_peers
        and PathFinder.find_spec(package, [str(Path.cwd()), package_folder()]) is None
    ):
        raise UsageError(
            f"--peers: there is no package {package!r} here; run in redist's repository"
        )
    launcher = find_launcher(args.mpi)
    program = ["-m", "redist.measure", "--ranks", str(n_ranks), *options.arguments()]
    return launch(launcher, n_ranks, program)
