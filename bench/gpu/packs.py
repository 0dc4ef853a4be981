"""``python -m bench gpu packs``: what datatypes describe, packed on a GPU and on the way to the host.

On the GPU beside CuPy's own strided copies, one call of ``cupy.copyto`` for each strided block. To the host
in the three ways of ``redist.pack``, beside what users do by hand: copy all to the host, and ``MPI_Pack``. A
last table has the constants of the model that chooses among the ways, as this machine has them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from bench.copies.packs import TypeCase, type_cases
from bench.gpu.copies import GenericMoves, copy_rate, gpu_machine, need_gpu, numbered, times_of
from bench.gpu.kernels import POISON, found_row
from bench.report.job import say
from bench.report.report import Row, Table, Tables
from redist.measure.job import mpi_name
from redist.plan import rates
from redist.runtime.datatypes.across import PACKS, Load, choose_way, time_fs
from redist.runtime.datatypes.type_copies import copies_of
from redist.text.units import parse_bytes

HANDED = "by hand: copied whole, MPI_Pack"
SIZES = tuple(2**k for k in range(10, 29, 3))
"""Packed bytes on their way to the host; half of what lies between the first and the last."""


def run(size: str = "256MiB", repeat: int = 11) -> Tables:
    """Every case on the GPU and to the host, checked first; then ways by size, and the model's constants.

    size: packed bytes of a case, or bytes of the box whose face it is; repeat: turns.
    """
    need_gpu()
    n_bytes = parse_bytes(size)
    top = copy_rate(n_bytes)
    rows: list[Row] = []
    for case in type_cases(n_bytes):
        found = _rows(case, repeat)
        rows += found
        said = (f"{row['contender']} {row['median_s'] or 'WRONG'}" for row in found)
        say(f"gpu packs: {case.name}: {', '.join(said)}")
    about = {
        "packed_bytes": n_bytes, "repeats": repeat, "copy_bytes_per_s": top, "mpi": mpi_name(),
        "copy_bytes_per_s_after": copy_rate(n_bytes), "machine": gpu_machine(),
    }  # fmt: skip
    wrong = not all(row["right"] for row in rows)
    ways, good = _ways(repeat)
    return (
        Table.of("runs", f"Packs of {size}", rows, keys=3, is_wrong=wrong, about=about),
        Table.of(
            "ways", "To pinned memory of the host, ms", ways, keys=1, is_wrong=not good, about=about
        ),
        Table.of("constants", "Constants of the model", _constants(repeat), keys=1, about=about),
    )


def _rows(case: TypeCase, repeat: int) -> list[Row]:
    """One case: results checked, then times of every contender."""
    import cupy
    import cupyx

    datatype = case.make()
    copies = copies_of(datatype, case.count)
    n, span = copies.n_bytes, max(copies.span[1], case.count * datatype.extent)
    memory = numbered(span)
    there, pinned = cupy.empty(n, cupy.uint8), cupyx.empty_pinned(n, np.uint8)
    whole = np.empty(span, np.uint8)
    want = np.zeros(n, np.uint8)
    memory.get(out=whole)
    datatype.Pack(whole[: case.count * datatype.extent], want, 0, MPI.COMM_SELF)
    generic = GenericMoves(copies.blocks)
    bases = np.array([there.data.ptr, memory.data.ptr], np.uintp)

    def by_hand() -> None:
        memory.get(out=whole)
        datatype.Pack(whole[: case.count * datatype.extent], pinned, 0, MPI.COMM_SELF)

    works: dict[str, tuple[Callable[[], Any], Any]] = {
        "redist": (lambda: redist.pack(memory, datatype, case.count, there), there),
        "CuPy": (lambda: generic.run(bases), there),
        "redist, to pinned memory": (
            lambda: redist.pack(memory, datatype, case.count, pinned), pinned,
        ),
        HANDED: (by_hand, pinned),
    }  # fmt: skip
    if len(copies.blocks) > 10_000:
        del works["CuPy"]  # minutes of single calls
    wait, rows = cupy.cuda.get_current_stream().synchronize, list[Row]()
    for name, (work, out) in works.items():
        out.fill(POISON)
        work()
        wait()
        got = cupy.asnumpy(out) if out is there else out
        right = bool(np.array_equal(got, want))
        about: Row = {"run": "packs", "case": case.name, "contender": name}
        timed = partial(times_of, work, wait, repeat, row=10 if out is there else 1)
        rows.append(found_row(about, right, n, timed))
    datatype.Free()
    return rows


def _ways(repeat: int) -> tuple[list[Row], bool]:
    """Milliseconds of each way by size, what the model says, and which one it takes."""
    import cupy
    import cupyx

    rows, good = list[Row](), True
    for n in SIZES:
        datatype = MPI.BYTE.Create_hvector(n // 64, 64, 128).Commit()
        memory, pinned = numbered(2 * n), cupyx.empty_pinned(n, np.uint8)
        want = memory.reshape(-1, 128)[:, :64].copy().reshape(-1).get()
        load = Load(n, 2 * n - 64, True)
        row: dict[str, Any] = {"bytes": n}
        found = {}
        for way in PACKS:
            redist.pack(memory, datatype, out=pinned, way=way)
            good = good and bool(np.array_equal(pinned, want))
            work = partial(redist.pack, memory, datatype, out=pinned, way=way)
            found[way] = times_of(work, cupy.cuda.Device().synchronize, repeat, row=1).median_s
            row |= {f"{way}": 1e3 * found[way], f"{way}, model": 1e3 * time_fs(way, load) / 1e15}
        row |= {"chosen": choose_way(load, None), "quickest": min(found, key=found.__getitem__)}
        rows.append(row)
        datatype.Free()
    return rows, good


def _constants(repeat: int) -> list[Row]:
    """What :mod:`redist.plan.rates` says, and what this machine has."""
    import cupy
    import cupyx

    few, many = 4096, 2**28
    stream = cupy.cuda.get_current_stream()
    small, large = (MPI.BYTE.Create_hvector(n // 64, 64, 128).Commit() for n in (few, many))
    memory = numbered(2 * many)
    there, pinned = cupy.empty(many, cupy.uint8), cupyx.empty_pinned(many, np.uint8)
    pageable = np.zeros(many, np.uint8)
    large_half = MPI.BYTE.Create_hvector(many // 256, 64, 128).Commit()

    def seconds(work: Callable[[], object]) -> float:
        return times_of(work, stream.synchronize, repeat, row=1).median_s

    def copied(n: int, to: Any) -> Callable[[], None]:
        return lambda: there[:n].get(out=to[:n])

    launch = seconds(lambda: redist.pack(memory, small, out=there[:few]))
    start = seconds(copied(few, pinned))
    words = seconds(lambda: redist.pack(memory, large, out=pinned, way="one-shot")) - launch
    over, slow = seconds(copied(many, pinned)) - start, seconds(copied(many, pageable)) - start
    host = seconds(lambda: redist.pack(pinned[: many // 2], large_half, out=pageable[: many // 4]))
    for one in (small, large, large_half):
        one.Free()
    measured = {
        "LAUNCH_PS": launch * 1e12, "START_PS": start * 1e12, "PINNED_WORD_FS": words / many * 1e15,
        "HOST_BYTE_FS": over / many * 1e15, "PAGEABLE_BYTE_FS": slow / many * 1e15,
        "NEAR_BYTE_FS": host / (many // 4) * 1e15,
    }  # fmt: skip
    return [
        {"constant": name, "in rates.py": getattr(rates, name), "measured here": round(found)}
        for name, found in measured.items()
    ]
