"""``python -m bench gpu onesided --ranks 2``: one-sided access to arrays on GPUs, beside arrays in memory.

The first rank reads what the last one holds, in place by CUDA IPC; and with every rank taken for a node, so
that the owner's thread answers from pinned memory. Each result is compared with the values first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.gpu.contenders import free_pool
from bench.gpu.copies import gpu_machine, need_gpu, plain_copy
from bench.report.figures import met, repeated
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables
from redist import pgas
from redist.measure.job import mpi_name
from redist.measure.timing import Stopwatch, all_agree, meet
from redist.pgas.onesided.epochs import reach
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import current_stream, to_device, to_host

BLOCKS, WIDTH = 32, 1024
"""Far blocks, and elements of f32 in each: 4 KiB."""
RUNS = 20
"""Epochs whose sums must have the same bits."""
MOST_OF_MEMORY, LEAST_OF_COPY = 3.0, 0.6
"""Aims: far blocks in so many times what they take in memory, rows at so much of the rate of a copy."""


def run(ranks: int = 2, row_mib: int = 256, named: int = 10**6, repeat: int = 11) -> Tables:
    """Reads and sums of arrays in memory and on GPUs, each checked and timed in turn.

    row_mib: MiB of a large row; named: indices of a sum, of all ranks together.
    """
    need_gpu()
    asked = {"row_mib": row_mib, "named": named, "repeats": repeat}
    data = found_by(on_ranks(ranks), "bench.gpu.onesided", **asked)
    title = f"One-sided access, {ranks} ranks on {data['about']['machine']['gpu']}"
    wrong = not all(row["right"] for row in data["rows"])
    note = f"aims: far blocks in {MOST_OF_MEMORY:g} times the time, rows at {LEAST_OF_COPY:.0%} of a copy"
    return (
        Table.of(
            "onesided", title, data["rows"], note, keys=2, is_wrong=wrong, about=data["about"]
        ),
    )


@dataclass(frozen=True, slots=True)
class Case:
    """What is done to an array in memory and to one on GPUs, and whether that gives what it should."""

    name: str
    act: Callable[[Any], Any]
    is_right: Callable[[Any, Any], bool]
    pair: tuple[Any, Any]
    copies_bytes: int = 0
    """If it is beside a copy: the bytes of that."""
    has_aim: bool = False


def measure(row_mib: int, named: int, repeats: int) -> dict[str, Any]:
    """All cases, in turn. **Collective over all ranks of the job.**"""
    comm = MPI.COMM_WORLD
    rows: list[Row] = []
    for make in (_blocks, _rows, _sums):
        for case in make(comm, row_mib, named):
            rows.append(_timed(comm, case, repeats))
            say(f"gpu onesided: {rows[-1]}")
        free_pool()
        meet(comm)
    about = {
        "mpi": mpi_name(), "row_mib": row_mib, "named": named, "repeats": repeats,
        "machine": gpu_machine(),
    }  # fmt: skip
    return {"about": about, "rows": rows}


def _timed(comm: MPI.Intracomm, case: Case, repeats: int) -> Row:
    """One case. **Collective over all ranks.**"""

    def work(a: Any) -> None:
        case.act(a)
        if a.memory.on_device:
            current_stream().synchronize()

    right = all(all_agree(comm, case.is_right(case.act(a), a)) for a in case.pair)
    works = [repeated(work, a) for a in case.pair]
    if case.copies_bytes:
        copy_once = plain_copy(case.copies_bytes if comm.rank == 0 else 1)
        works.append(repeated(_to_end, copy_once))
    host, gpu, *copy = (times.median_s for times in Stopwatch.on(comm).in_turn(works, repeats))
    good = copy[0] / gpu >= LEAST_OF_COPY if copy else gpu <= MOST_OF_MEMORY * host
    return {
        "ranks": comm.size, "case": case.name, "right": right, "memory us": 1e6 * host, "GPU us": 1e6 * gpu,
        "times memory's": gpu / host, "of a copy": copy[0] / gpu if copy else None,
        "aim": met(good) if case.has_aim else None,
    }  # fmt: skip


def _to_end(work: Callable[[], object]) -> None:
    work()
    current_stream().synchronize()


def _pair(values: Any, type: str) -> tuple[Any, Any]:
    """The same array in memory and on GPUs."""
    host = pgas.asarray(values, type=type)
    return host, host.to_device("cuda")


def _first(comm: MPI.Intracomm, act: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What the first rank does, and nobody else."""
    return act if comm.rank == 0 else lambda a: None


def _blocks(comm: MPI.Intracomm, row_mib: int, named: int) -> list[Case]:
    """Blocks of 4 KiB of the last rank: in one ``get``, and in one each; and single elements."""
    n = 4 * BLOCKS
    values = np.random.default_rng(0).normal(size=(n * comm.size, WIDTH)).astype("f4")
    numbers = np.random.default_rng(1).permutation(n)[:BLOCKS] + n * (comm.size - 1)
    want, one = values[numbers], (int(numbers[0]), 7)

    def is_right(got: Any, a: Any) -> bool:
        return got is None or (
            is_device(got) == a.memory.on_device and np.array_equal(to_host(got), want)
        )

    def together(a: Any) -> Any:
        return a.get(numbers)

    def each(a: Any) -> Any:
        for k, number in enumerate(numbers.tolist()):
            row = a.get(number)
            if k == 0:
                first = row
        return first

    cases = []
    for where, node_size in (("", None), (", ranks as nodes", 1)):
        pair = _pair(values, "{x}, {}")
        for a in pair:
            reach(a, node_size=node_size)
        blocks = f"{BLOCKS} blocks of 4 KiB"
        cases += [
            Case(
                f"{blocks} in one get{where}", _first(comm, together), is_right, pair, has_aim=True
            ),
            Case(
                f"{BLOCKS} gets of 4 KiB{where}",
                _first(comm, each),
                lambda got, a: got is None or np.array_equal(to_host(got), want[0]),
                pair,
            ),
            Case(
                f"one element, looked at{where}",
                _first(comm, lambda a: float(a.get(one))),
                lambda got, a: got is None or got == values[one],
                pair,
            ),
        ]
    return cases


def _rows(comm: MPI.Intracomm, row_mib: int, named: int) -> list[Case]:
    """A large row of the last rank, and every second element of it, beside a copy of as many bytes."""
    width = row_mib * 2**18
    whole = pgas.arange(comm.size * width, dtype="i4", type="{x}")
    pair = whole, whole.to_device("cuda")
    for a in pair:
        a.fence()
    start = (comm.size - 1) * width
    want = np.arange(start, start + width, dtype="i4")

    def case(name: str, step: int) -> Case:
        return Case(
            name,
            _first(comm, lambda a: a.get(slice(start, None, step))),
            lambda got, a: got is None or np.array_equal(to_host(got), want[::step]),
            pair,
            4 * width // step,
            has_aim=step == 1,
        )

    return [case(f"{row_mib} MiB", 1), case(f"every second element of {row_mib} MiB", 2)]


def _sums(comm: MPI.Intracomm, row_mib: int, named: int) -> list[Case]:
    """Sums at indices that repeat: an epoch of all ranks. The bits are those of memory in every run."""
    mine = named // comm.size
    rng = np.random.default_rng(comm.rank)
    at, values = rng.integers(0, 1000, mine), rng.normal(size=mine).astype("f4")
    there = to_device(values)

    def epoch(a: Any) -> Any:
        with a.epoch():
            a.accumulate(at, there if a.memory.on_device else values)

    def is_right(_: Any, a: Any) -> bool:
        found = []
        for device in ("cpu", *["cuda" if a.memory.on_device else "cpu"] * RUNS):
            sums = pgas.zeros(1000, dtype="f4", type="{x}", device=device)
            epoch(sums)
            found.append(to_host(sums.get(...)).tobytes())
            sums.fence()  # nobody goes on before all have read
        return len(set(found)) == 1

    return [
        Case(f"{named} sums of 1000 elements", epoch, is_right, _pair(np.zeros(1000, "f4"), "{x}"))
    ]
