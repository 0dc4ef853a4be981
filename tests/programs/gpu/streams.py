"""Transfers on several streams at once: nobody waits, sources are overwritten, results used at once.

All of them share pinned memory for the largest. The same with transfers that are started, and waited for when
others have been started and kernels launched in between.
As in ``mpirun -n 4 python -m tests.programs.gpu.streams``; ``--carrier``, ``--pretend``
and ``--real`` as for ``carrying``.
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from tests.fakes import nccl_doubles as doubles
from tests.fakes import pretended_cupy as pretend
from tests.programs.gpu import carrying
from tests.programs.gpu.memory import Counted
from tests.programs.together import all_well, main

CALLS = 6
PAUSE_S = 0.02
TIMEOUT_S = 60.0
SHAPE = (120, 132)
ROWS, COLUMNS = "i64[120{x}, 132]", "i64[120, 132{x}]"


def whole(number: int) -> Any:
    """All values of call ``number``."""
    return (np.arange(SHAPE[0] * SHAPE[1], dtype="i8") * 7 + 10**6 * number).reshape(SHAPE)


def tile(values: Any, dim: int, comm: MPI.Comm) -> Any:
    """What this rank has of them, cut along a dim."""
    n = -(-values.shape[dim] // comm.size)
    part = slice(n * comm.rank, n * (comm.rank + 1))
    return np.ascontiguousarray(values[part] if dim == 0 else values[:, part])


def wrong(comm: MPI.Comm, options: dict[str, Any]) -> str | None:
    """What is wrong on this rank; None if nothing."""
    import cupy

    mesh = redist.Mesh(x=comm.size)
    makes = [(ROWS, COLUMNS, 0), (COLUMNS, ROWS, 1)] * 2
    transfers = [redist.Transfer(a, b, comm, mesh=mesh, **options) for a, b, _ in makes]
    two = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    streams = [two[0], two[0], two[1], two[1]]
    sources = [cupy.asarray(tile(whole(0), dim, comm)) for _, _, dim in makes]
    news = [[cupy.asarray(tile(whole(k), dim, comm)) for k in range(CALLS)] for _, _, dim in makes]
    cupy.cuda.get_current_stream().synchronize()
    used: list[tuple[int, int, Any]] = []
    count = Counted()
    for number, (k, transfer) in itertools.product(range(CALLS), enumerate(transfers)):
        with streams[k], count.watching():
            sources[k][...] = news[k][number]
            out = transfer(sources[k])
            sources[k][...] = -1  # whoever reads it from now on reads this
            copy = cupy.empty(out.shape, out.dtype)
            copy[...] = out  # at once, on the stream of the call
            out[...] = -2
            del out  # its memory is lent again
            used.append((k, number, copy))
    most = max(step.staging_bytes for transfer in transfers for step in transfer.plan.steps)
    if count.pinned > most:
        return f"{count.pinned} pinned bytes, staging {most}"
    for k, number, copy in used:
        with streams[k]:
            have = cupy.asnumpy(copy)
        if not np.array_equal(have, tile(whole(number), 1 - makes[k][2], comm)):
            bad = np.count_nonzero(have != tile(whole(number), 1 - makes[k][2], comm))
            return f"call {number} of transfer {k}: {bad} of {have.size} elements differ"
    return None


def wrong_started(comm: MPI.Comm, options: dict[str, Any]) -> str | None:
    """What is wrong on this rank with moves beside the kernels; None if nothing.

    Memory is lent again all the time, to both streams: of sources, of results, of what moves take.
    """
    import cupy

    mesh = redist.Mesh(x=comm.size)
    makes = [(ROWS, COLUMNS, 0), (COLUMNS, ROWS, 1)] * 2
    transfers = [redist.Transfer(a, b, comm, mesh=mesh, **options) for a, b, _ in makes]
    news = [[cupy.asarray(tile(whole(k), dim, comm)) for k in range(CALLS)] for _, _, dim in makes]
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    used: list[tuple[int, int, Any]] = []

    def use(k: int, number: int, out: Any) -> None:
        copy = cupy.empty(out.shape, out.dtype)
        copy[...] = out
        out[...] = -2
        used.append((k, number, copy))
        if number % 3 == 0:
            stream.synchronize()  # whatever has not waited is late

    def lend_again(array: Any) -> None:
        for _ in range(3):
            other = cupy.empty(array.shape, array.dtype)
            other[...] = -1
            stream.record().done  # noqa: B018 - a pretended GPU goes on when it is asked
            del other

    with stream:
        for number in range(2 * CALLS):
            news_of = [several[number % CALLS] for several in news]
            under_way = []
            for k, transfer in enumerate(transfers):
                source = cupy.empty(news_of[k].shape, news_of[k].dtype)
                source[...] = news_of[k]
                out = None
                if number % 3 == 1:
                    out = cupy.empty(news_of[1 - makes[k][2]].shape, source.dtype)
                    out[...] = -3  # before the move
                under_way.append((k, transfer.start(source, out)))
                del source, out  # whoever is lent its memory now writes to it
                lend_again(news_of[k])
            if number % 4 == 0:
                time.sleep(PAUSE_S)  # hosts have done their part
                for several in news_of:
                    lend_again(several)
            if number % 3 == 2:  # a call behind what was started
                source = cupy.empty(news_of[0].shape, news_of[0].dtype)
                source[...] = news_of[0]
                use(0, number, transfers[0](source))
                del source
                stream.synchronize()
                if not all(move.is_done() for _, move in under_way):
                    return "a call did not wait for moves that were started before it"
            for k, move in under_way if number % 2 else under_way[::-1]:
                out = move.wait()
                if getattr(out.data.mem, "key", (stream.ptr,))[0] != stream.ptr:
                    return "the result is memory that another stream may be lent"
                use(k, number, out)
                del out, move
                lend_again(news_of[1 - makes[k][2]])
            del under_way
        for k, number, copy in used:
            have, want = cupy.asnumpy(copy), tile(whole(number % CALLS), 1 - makes[k][2], comm)
            if not np.array_equal(have, want):
                bad = np.count_nonzero(have != want)
                return f"started {number} of transfer {k}: {bad} of {have.size} elements differ"
    return None


def wrong_places(comm: MPI.Comm, options: dict[str, Any]) -> str | None:
    """What is wrong where ranks without a source learn from others that this call's arrays lie elsewhere."""
    import cupy

    one, all_ = redist.Mesh(x=1), redist.Mesh(x=comm.size)
    spread = redist.Transfer("i64[120, 132]", ROWS, comm, mesh=one, target_mesh=all_, **options)
    for number, on_gpu in enumerate((True, True, False, False, True)):
        given = whole(number) if comm.rank == 0 else None
        if on_gpu and given is not None:
            given = cupy.asarray(given)
        got = spread.start(given).wait()
        if isinstance(got, np.ndarray) == on_gpu:
            return f"call {number}: the result is a {type(got)}"
        have = cupy.asnumpy(got) if on_gpu else got
        if not np.array_equal(have, tile(whole(number), 0, comm)):
            return f"call {number}: differs"
    return None


CHECKS = (
    "with the least limit",
    "without a limit",
    "started with the least limit",
    "started",
    "places",
)


def program() -> int:
    """0 if every result was right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--carrier", choices=carrying.CARRIERS)
    parser.add_argument("--pretend", action="store_true")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--node-size", type=int)
    parser.add_argument("--round-bytes", type=int)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    if args.round_bytes is not None:
        carrying.in_small_rounds(args.round_bytes)
    if args.carrier is not None:
        carrying.install(args.carrier, args.pretend, args.real)
    elif args.pretend:
        pretend.install(f"gpu {comm.rank}", doubles.Nccl(doubles.put_off))
    options = {
        "transport": args.transport,
        "node_size": args.node_size,
        "timeout_s": TIMEOUT_S,
    }
    least = redist.synthesize(ROWS, COLUMNS, mesh=redist.Mesh(x=comm.size)).peak_bytes
    well = True
    runs = [(find, limit) for find in (wrong, wrong_started) for limit in (least, None)]
    for check, (find, limit) in zip(CHECKS[:-1], runs, strict=True):
        well = all_well(comm, check, find(comm, {**options, "limit_bytes": limit})) and well
    well = all_well(comm, CHECKS[-1], wrong_places(comm, options)) and well
    if well and comm.rank == 0:
        print(f"two streams at once agree ({comm.size} ranks)", flush=True)
    return 0 if well else 1


if __name__ == "__main__":
    main(program)
