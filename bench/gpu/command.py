"""``python -m bench gpu kernels`` and ``mpirun -n 4 python -m bench gpu ranks``: times on GPUs.

Every run adds its rows to one JSON file; ``python -m bench gpu table`` prints the stored figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.gpu.results import add_run, is_right
from bench.tables import command as tables
from bench.tables.stored import RESULTS as STORED
from redist.text.units import parse_bytes

RESULTS = STORED / "gpu.json"


def main(arguments: Sequence[str]) -> int:
    """0 if every result was right, 1 if one was wrong, 2 if there is no GPU or no such thing."""
    args = _parser().parse_args(arguments)
    if args.what == "table":
        return tables.main(["gpu-packs", "gpu-more-packs", "gpu-moves", "gpu-move-ranges"])
    problem = no_gpu()
    if problem is not None:
        print(f"bench gpu: cannot measure: {problem}", file=sys.stderr)
        return 2
    return _kernels(args) if args.what == "kernels" else _ranks(args)


def no_gpu() -> str | None:
    """Why nothing can be measured here; None if it can."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
        cupy.zeros(1)
    except ImportError:
        return "CuPy is not installed"
    except Exception as error:
        return f"no GPU answers ({error})"
    return None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _kernels(args: argparse.Namespace) -> int:
    from bench.gpu.cases import CopyCase, FaceCase, copy_cases, more_cases
    from bench.gpu.kernels import measure

    size = parse_bytes(args.size or "1GiB")
    runs: dict[str, Any] = {}
    lists: dict[str, Sequence[CopyCase | FaceCase]] = {
        "kernels": copy_cases(size),
        "more kernels": more_cases(size),
    }
    for name, cases in lists.items():
        runs[name] = measure(size, args.repeat, _say, cases)
        add_run(args.json, name + (f", {args.name}" if args.name else ""), runs[name])
        for peer, why in {**runs[name]["absent"], "NCCL": runs[name]["nccl"]}.items():
            _say(f"{peer}: {why}")
    return 0 if all(map(is_right, runs.values())) else 1


def _ranks(args: argparse.Namespace) -> int:
    from mpi4py import MPI

    from bench.gpu.job import measure

    comm = MPI.COMM_WORLD
    say = _say if comm.rank == 0 else lambda text: None
    size = parse_bytes(args.size or "4GiB")
    found: dict[str, Any] = measure(
        comm, size, args.repeat, args.cases.split(","), args.movers.split(","), say
    )
    if comm.rank == 0:
        name = f"{comm.size} ranks" + (f", {args.name}" if args.name else "")
        add_run(args.json, name, found)
    return 0 if is_right(found) else 1


def _parser() -> argparse.ArgumentParser:
    from bench.gpu.contenders import CASES, MOVERS

    parser = argparse.ArgumentParser(prog="python -m bench gpu", description=__doc__)
    parser.add_argument("what", choices=("kernels", "ranks", "table"))
    parser.add_argument("--size", help="of all ranks together (4GiB), of a kernel's array (1GiB)")
    parser.add_argument("--repeat", type=int, default=11, help="repetitions (%(default)s)")
    parser.add_argument("--cases", default=",".join(CASES), help="what to move (%(default)s)")
    parser.add_argument("--movers", default="raw,ipc,cupy", help=f"of {', '.join(MOVERS)}")
    parser.add_argument("--name", default="", help="of this run in the JSON, after the ranks")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where to add the figures")
    return parser
