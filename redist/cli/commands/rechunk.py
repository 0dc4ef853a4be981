"""``redist rechunk``: rewrite the arrays of a store in chunks of another shape."""

from __future__ import annotations

import argparse

from redist.cli.command import NO_PLAN, OK, WRONG_REQUEST, Commands, add_command
from redist.cli.request import add_mpirun, read_bytes, read_ranks
from redist.errors import NoPlanError, RedistError
from redist.launch.launcher import find_launcher, launch

EPILOG = """\
examples:
  redist rechunk in.zarr out.zarr --chunks time=8760,lat=72,lon=144 --memory 4GiB --plan
  redist rechunk in.zarr out.zarr --chunks 100,100 --shards 1000,1000 -n 4
  redist rechunk in.h5 out.zarr --chunks time=all --codec zstd:3 --verify
  redist rechunk in.zarr out.npy

'mpirun -n 64 redist rechunk ...' does the same inside a job that you start yourself, over several machines
too. To continue an interrupted run, give the same command again.
"""


def add_parser(commands: Commands) -> argparse.ArgumentParser:
    """Add the command with its arguments."""
    text = "rewrite the arrays of a Zarr store, HDF5 or NumPy file in chunks of another shape"
    parser = add_command(commands, "rechunk", text, EPILOG)
    parser.add_argument("source", metavar="IN", help="a Zarr store (2 or 3), an HDF5 or .npy file")
    parser.add_argument("target", metavar="OUT", help="a Zarr 3 store, or an .npy file")
    parser.add_argument(
        "--chunks", metavar="SIZES", help="by name, time=8760,lat=72, or for all dims in order"
    )
    parser.add_argument("--shards", metavar="SIZES", help="files that have several chunks each")
    parser.add_argument(
        "--memory", metavar="BYTES", default="2GiB", help="memory for each rank (default 2GiB)"
    )
    parser.add_argument("--plan", action="store_true", help="print the plan, and stop")
    parser.add_argument("-n", dest="ranks", metavar="RANKS", help="start this many local ranks")
    parser.add_argument("--threads", metavar="N", help="threads of a rank (default: cores / ranks)")
    parser.add_argument(
        "--codec", metavar="NAME", help="zstd:3, gzip, blosc, none (default: as it is)"
    )
    parser.add_argument(
        "--leave-out", metavar="NAME", action="append", default=[], help="an array not to write"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")
    parser.add_argument("--verify", action="store_true", help="read both again, compare checksums")
    add_mpirun(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the plan; unless that is all, run it, on ranks of its own if ``-n`` says how many."""
    n_ranks = None if args.ranks is None else read_ranks(args.ranks)
    read_bytes(args.memory, "--memory")
    if n_ranks is not None and not args.plan:
        return launch(find_launcher(args.mpi), n_ranks, ["-m", "redist.cli", *_again(args)])
    from redist.runtime.ranks.world import comm_or_world
    from redist.store.chunks.rechunk import plan_rechunk, rechunk
    from redist.store.chunks.request import read_sizes

    comm = comm_or_world(None)
    chunks, shards = (
        None if text is None else read_sizes(text) for text in (args.chunks, args.shards)
    )
    threads = None if args.threads is None else read_ranks(args.threads)
    try:
        plan = plan_rechunk(
            args.source, args.target, chunks, shards, args.memory, codec=args.codec, threads=threads,
            leave_out=args.leave_out, ranks=n_ranks,
        )  # fmt: skip
        if comm.rank == 0:
            print(plan, flush=True)
        if args.plan:
            return OK
        done = rechunk(
            args.source, args.target, chunks, shards, args.memory, codec=args.codec, threads=threads,
            leave_out=args.leave_out, overwrite=args.overwrite, verify=args.verify,
        )  # fmt: skip
    except RedistError as error:
        if comm.rank:  # rank 0 says it
            return NO_PLAN if isinstance(error, NoPlanError) else WRONG_REQUEST
        raise
    if comm.rank == 0:
        print(f"done       {done}")
    return OK


def _again(args: argparse.Namespace) -> list[str]:
    """The command line for ranks that this process starts."""
    words = ["rechunk", args.source, args.target, "--memory", args.memory]
    for name in ("chunks", "shards", "codec", "threads"):
        if getattr(args, name) is not None:
            words += [f"--{name}", getattr(args, name)]
    for name in args.leave_out:
        words += ["--leave-out", name]
    return [*words, *(f"--{name}" for name in ("overwrite", "verify") if getattr(args, name))]
