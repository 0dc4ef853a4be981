"""Programs beside their functions, inside an MPI job: ``python -m bench.programs.job``.

Started by ``python -m bench programs``; rank 0 writes what was measured as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.programs.cases import ProgramCase, cases, chain
from bench.programs.counted import measure_products, measure_together
from bench.programs.far import measure_hosts
from bench.report.figures import quartiles
from redist import pgas
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch

PAIRS = 31


def main() -> int:
    """Measure and write. **Collective over all ranks of the job.**"""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", action="store_true", help="moves and reads between hosts")
    parser.add_argument("--counted", action="store_true", help="bytes of products, moves together")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--device", default="cpu", help="where arrays lie: cpu or cuda")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    comm = MPI.COMM_WORLD
    data: dict[str, Any] = {"mpi": mpi_name(), "ranks": comm.size}
    if args.hosts:
        data.update(measure_hosts(comm))
    elif args.counted:
        data["cube"] = measure_products(comm)
        data["together"] = measure_together(comm, PAIRS, has_outs=True)
        data["together, new"] = measure_together(comm, PAIRS, has_outs=False)
        if comm.rank == 0:
            print(f"bench programs: {data}", file=sys.stderr, flush=True)
    else:
        chosen = [case for case in cases(comm.size) if args.only in case.name]
        chosen = [replace(case, args=_on(args.device, case.args)) for case in chosen]
        data["rows"] = [measure_case(comm, case) for case in chosen]
        data["captured"] = measure_capture(1000)
    if comm.rank == 0 and args.json is not None:
        args.json.write_text(json.dumps(data), encoding="utf-8")
    return int(any(row["wrong"] for row in data.get("rows", ())))


def measure_case(comm: MPI.Intracomm, case: ProgramCase) -> dict[str, Any]:
    """Time both ways in pairs, one right after the other. **Collective over `comm`.**"""
    step = pgas.program(layouts="as written")(case.function)  # planned, sums may be added otherwise
    want, got = case.function(*case.args), step(*case.args)
    got = step(*case.args)
    same = all(_bits(a) == _bits(b) for a, b in zip(_arrays(want), _arrays(got), strict=True))
    wrong = not all(comm.allgather(same))
    watch = Stopwatch.on(comm)

    def works(function: Any) -> Any:
        def work(times: int) -> None:
            for _ in range(times):
                function(*case.args)
            wait_for_gpu()

        return work

    ratios, times = [], ([], [])  # type: ignore[var-annotated]
    for _ in range(PAIRS):
        pair = watch.in_turn([works(case.function), works(step)], 1)
        for kept, one in zip(times, pair, strict=True):
            kept.append(one.median_s)
        ratios.append(pair[1].median_s / pair[0].median_s)
    low, middle, high = quartiles(ratios)
    row = {
        "name": case.name,
        "what": case.what,
        "aim": case.aim,
        "wrong": wrong,
        "eager_s": float(np.median(times[0])),
        "program_s": float(np.median(times[1])),
        "ratio": [low, middle, high],
        "figures": dict(step.graph(*case.args).figures),
    }
    if comm.rank == 0:
        print(f"bench programs: {row}", file=sys.stderr, flush=True)
    return row


def _on(device: str, thing: Any) -> Any:
    """The same arguments with all arrays on a device."""
    if isinstance(thing, pgas.Array):
        return thing.to_device(device)
    if isinstance(thing, tuple):
        return tuple(_on(device, one) for one in thing)
    if isinstance(thing, dict):
        return {key: _on(device, one) for key, one in thing.items()}
    return thing


def measure_capture(nodes: int) -> float:
    """Seconds from the first call of a program of so many nodes to its result. **Collective.**"""
    rng = pgas.random.generator(2)
    x, y = rng.normal((1000,)), rng.normal((1000,))

    def long(x: Any, y: Any) -> Any:
        for _ in range(nodes // 40):
            x = chain(x, y)
        return x

    step = pgas.program(long)
    started = time.perf_counter()
    step(x, y)
    return time.perf_counter() - started


def wait_for_gpu() -> None:
    """Wait for what the current stream has to do, if CuPy is in use."""
    if "cupy" in sys.modules:
        sys.modules["cupy"].cuda.get_current_stream().synchronize()


def _arrays(result: Any) -> list[Any]:
    if isinstance(result, dict):
        result = list(result.values())
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _bits(array: Any) -> bytes:
    return b"" if array.tile is None else bytes(array.tile.tobytes())


if __name__ == "__main__":
    sys.exit(main())
