"""Random problems between GPU arrays, compared with the simulator, bit for bit. Needs a GPU.

As in ``mpirun -n 4 python -m tests.programs.gpu.fuzz --n 300``; ranks may share one GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.runtime.copies.reduce import combines_on_gpu
from redist.runtime.simulator import simulate
from tests.problems.problems import Problem
from tests.programs.mpi.cases import problems_for, random_values, segment_problems
from tests.programs.mpi.fuzz import arguments
from tests.programs.mpi.ways import bits
from tests.programs.together import all_well, main, meet

WAYS = ("call", "out", "redistribute", "donate", "limit", "stream")
CHECKS = WAYS
CALLS = 3
TIMEOUT_S = 60.0


def problems(size: int, seed: int, segments: bool) -> Iterator[Problem]:
    """Those whose elements CuPy has, and whose reductions a GPU can do."""
    for problem in (segment_problems if segments else problems_for)(size, seed):
        dtype, op = problem.source.dtype, problem.source.pending_op
        if dtype.to_numpy().kind in "biufc" and (op is None or combines_on_gpu(op, dtype)):
            yield problem


def on_gpu(values: Any, rng: Random) -> Any:
    """An array of any layout with these values."""
    import cupy

    layout = rng.choice(("plain", "plain", "fortran", "slice", "odd"))
    if layout == "fortran" and values.ndim:
        return cupy.asfortranarray(cupy.asarray(values))
    if layout == "slice" and values.ndim:
        wide = cupy.zeros((*values.shape[:-1], 2 * values.shape[-1] + 1), values.dtype)
        out = wide[..., 1::2]
    elif layout == "odd":
        out = cupy.zeros(values.size + 1, values.dtype)[1:].reshape(values.shape)
    else:
        out = cupy.empty(values.shape, values.dtype)
    out[...] = cupy.asarray(values)
    return out


def wrong(comm: MPI.Comm, problem: Problem, way: str, seed: int, options: dict[str, Any]) -> Any:
    """What is wrong with a problem on this rank; None if nothing."""
    import cupy

    rng = Random(1000 * seed + comm.rank)
    ends = problem.source, problem.target
    if way == "limit":
        least = redist.synthesize(*ends).peak_bytes
        options = {**options, "limit_bytes": least}
    transfer = redist.Transfer(*ends, comm, donate=way == "donate", **options)
    both = None
    if comm.rank == 0:
        tiles = random_values(problem.source, seed)
        with np.errstate(all="ignore"):
            done = simulate(transfer.plan, tiles, transfer.topology).tiles
        both = [(tiles.get(rank), done.get(rank)) for rank in range(comm.size)]
    meet(comm)
    before, after = comm.scatter(both)
    said = None
    for number in range(CALLS):
        stream = cupy.cuda.Stream(non_blocking=True) if way == "stream" else cupy.cuda.Stream.null
        with stream:
            local = None if before is None else on_gpu(before, rng)
            out = None
            if way == "out" and after is not None:
                out = on_gpu(np.zeros_like(after), rng)
            if way == "redistribute":
                got = redist.redistribute(local, *ends, comm, timeout_s=TIMEOUT_S)
            else:
                got = transfer(local, out)
            kept = None
            if local is not None and way != "donate":
                kept = cupy.asnumpy(local)
                local[...] = 0  # after the transfer, on the same stream: nobody may read this
            found = changed(before, kept) or differs(got, out, after)
            said = said or (found and f"call {number}: {found}")
    transfer.close()
    return said


def changed(before: Any, kept: Any) -> str | None:
    """What is wrong with a source after the transfer."""
    if kept is None or bits(kept) == bits(before):
        return None
    return "the source was modified"


def differs(got: Any, out: Any, wanted: Any) -> str | None:
    """What is wrong with a result."""
    import cupy

    if (got is None) != (wanted is None):
        return f"got {got}, want {wanted}"
    if got is None:
        return None
    if not isinstance(got, cupy.ndarray) or (out is not None and got is not out):
        return "the result is not where it should be"
    have = cupy.asnumpy(got)
    if have.shape == wanted.shape and bits(have) == bits(wanted):
        return None
    rows = [np.frombuffer(bits(x), np.uint8).reshape(wanted.size, -1) for x in (have, wanted)]
    bad = np.flatnonzero(np.any(rows[0] != rows[1], axis=1))
    first = f"first {bad[0]}: {have.flat[bad[0]]} for {wanted.flat[bad[0]]}"
    return f"{len(bad)} of {wanted.size} elements differ, {first}"


def program() -> int:
    """0 if all ranks agree with the simulator on every problem."""
    args, options = arguments(60, TIMEOUT_S)
    comm = MPI.COMM_WORLD
    bad = 0
    found = itertools.islice(problems(comm.size, args.seed, args.segments), args.n)
    for number, problem in enumerate(found):
        way = WAYS[number % len(WAYS)]
        said = wrong(comm, problem, way, number, options)
        bad += not all_well(comm, way, said, f"{problem} (number {number})")
    if comm.rank == 0:
        print(f"{args.n - bad} of {args.n} GPU cases agree ({comm.size} ranks)", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    main(program)
