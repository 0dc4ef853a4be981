"""How quick are block-cyclic, fused and run-time sized moves beside what one writes by hand? Needs mpirun."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import redist
from bench.examples.cases import ExamplePair
from bench.examples.race import both_times, measure_pair
from bench.problems.judge import WrongPlanError
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables
from redist import spmd
from redist.measure.job import mpi_name

RANKS, FUSED_RANKS = 4, 16
SIDE, HIDDEN = 4096, 1024
Array = NDArray[Any]
GRID = redist.Mesh(x=2, y=2)
BLOCKS = f"{SIDE}^2 f64, blocks of {{}} to rows"


def run(n: int = 15) -> Tables:
    """Measure matrices in blocks and tokens on 4 ranks, fused weights on 16.

    n: repetitions.
    """
    rows: list[Row] = []
    for ranks in (RANKS, FUSED_RANKS):
        data = found_by(on_ranks(ranks), "bench.examples.segments", repeat=n)
        for row in data["rows"]:
            if row["wrong"]:
                raise WrongPlanError(f"cannot compare {row['name']}: {row['wrong']}")
            about: Row = {"move": row["name"], "ranks": ranks, "beside": row["rival"]}
            rows.append({**about, **both_times(row["times"], "beside ms")})
    title = f"Dims with segments beside programs by hand, {data['mpi']}, {os.cpu_count()} cores"
    note = (
        "medians, both ways in turn, results compared first; from, to: quartiles against each other"
    )
    return (Table.of("moves", title, rows, note, keys=3),)


def measure(repeat: int) -> dict[str, Any]:
    """Measure what this many ranks measure. **Collective over all ranks of the job.**"""
    comm, rows = MPI.COMM_WORLD, []
    for make in FEW if comm.size == RANKS else MANY:
        rows.append(measure_pair(comm, make(comm), repeat))
        say(f"segments: {rows[-1]['name']} beside {rows[-1]['rival']}")
    return {"mpi": mpi_name(), "rows": rows}


# A matrix in blocks that are dealt to a 2 x 2 grid, to rows


def _ends(n: int, nb: int) -> tuple[redist.ArrayType, redist.ArrayType]:
    texts = f"f64[{n}{{x/{nb}}}, {n}{{y/{nb}}}]", f"f64[{n}{{x,y}}, {n}]"
    source, target = (redist.ArrayType.parse(text, GRID) for text in texts)
    return source, target


def _dealt(comm: MPI.Intracomm, n: int, nb: int) -> tuple[Callable[[], Array], Array]:
    source, target = _ends(n, nb)
    spans = redist.spans_of(source, comm.rank)
    assert spans is not None
    rows, columns = (np.concatenate([np.arange(*one) for one in dim]) for dim in spans)
    tile = rows[:, None] * float(n) + columns
    transfer = redist.Transfer(source, target, comm)
    (lo, hi), _ = redist.box_of(target, comm.rank) or ((0, 0), (0, 0))
    out = np.empty((hi - lo, n))
    return (lambda: transfer(tile, out=out)), tile


def copy_floor(nb: int, comm: MPI.Intracomm) -> ExamplePair:
    """Beside one copy of the tile in memory: the least that any move takes."""
    ours, tile = _dealt(comm, SIDE, nb)
    there, result = np.empty_like(tile), ours()

    def theirs() -> Array:
        np.copyto(there, tile)
        return result

    return ExamplePair(BLOCKS.format(nb), "", "a copy of the tile", ours, theirs)


def packed(nb: int, comm: MPI.Intracomm) -> ExamplePair:
    """Beside packing, MPI_Alltoall and unpacking."""
    ours, tile = _dealt(comm, SIDE, nb)
    q = SIDE // (2 * nb)
    per = q // 4
    send, got = np.empty((4, per, nb, q, nb)), np.empty((4, per, nb, q, nb))
    out = np.empty((SIDE // 4, SIDE))
    places = out.reshape(per, 2, nb, q, 2, nb)

    def theirs() -> Array:
        np.copyto(send, tile.reshape(4, per, nb, q, nb))
        comm.Alltoall(send, got)
        for rank in range(4):
            x, y = divmod(rank, 2)
            places[:, x, :, :, y, :] = got[rank]
        return out

    return ExamplePair(BLOCKS.format(nb), "", "pack, Alltoall, unpack", ours, theirs)


def own_buffers(nb: int, comm: MPI.Intracomm) -> ExamplePair:
    """The transfer's own buffers beside any arrays."""
    theirs, tile = _dealt(comm, SIDE, nb)
    transfer = redist.Transfer(*_ends(SIDE, nb), comm)
    transfer.input[...] = tile
    name = f"{BLOCKS.format(nb)}, own buffers"
    return ExamplePair(name, "", "any arrays", transfer, theirs)


def uneven(comm: MPI.Intracomm) -> ExamplePair:
    """Blocks that do not come out even, beside blocks that do."""
    ours, _ = _dealt(comm, 4093, 48)
    even, _ = _dealt(comm, SIDE, 64)
    result = ours()

    def theirs() -> Array:
        even()
        return result

    return ExamplePair("4093^2 f64, blocks of 48 to rows", "", "4096^2, blocks of 64", ours, theirs)


# Tokens to experts, sizes known at run time


def tokens(comm: MPI.Intracomm) -> ExamplePair:
    """8,192 tokens to 8 experts, beside one packed Alltoallv; both tell each other how many go where."""
    n = 8192 // comm.size
    rng = np.random.default_rng(comm.rank)
    x = rng.random((n, HIDDEN), dtype=np.float32)
    ranks = rng.choice(8, size=n, p=[0.3, *[0.1] * 7]) * comm.size // 8

    def ours() -> Array:
        return spmd.Passing.with_values(comm, x, ranks)[1]

    def theirs() -> Array:
        order = np.argsort(ranks, kind="stable")
        given = np.bincount(ranks, minlength=comm.size).astype(np.int64)
        got = np.empty_like(given)
        comm.Alltoall(given, got)
        out = np.empty((int(got.sum()), HIDDEN), np.float32)
        there, here = given * HIDDEN, got * HIDDEN
        comm.Alltoallv(
            [x[order], (there, np.cumsum(there) - there), MPI.FLOAT],
            [out, (here, np.cumsum(here) - here), MPI.FLOAT],
        )
        return out

    name = f"8192 tokens of {HIDDEN} f32 to 8 experts"
    return ExamplePair(name, "", "sizes, then a packed Alltoallv", ours, theirs)


# Fused weights from 4 ranks to 16


def fused(comm: MPI.Intracomm) -> ExamplePair:
    """48 grouped-query weights, 64 query and 8 KV heads, beside plain weights of the same bytes."""
    few, many = redist.Mesh(tp=4), redist.Mesh(tp=16)
    text = "bf16[{q}{{tp}}+2*{kv}{{tp{part}}}, 256]"
    sizes = {"q": 64 * 16, "kv": 8 * 16}
    source = redist.ArrayType.parse(text.format(part="", **sizes), few)
    target = redist.ArrayType.parse(text.format(part=":(1)8", **sizes), many)
    moved = redist.synthesize(source, target).received_bytes
    plain = [
        redist.ArrayType.parse(f"bf16[{source.shape[0]}{{tp}}, 256]", mesh) for mesh in (few, many)
    ]
    row = redist.synthesize(plain[0], plain[1]).received_bytes / source.shape[0]
    rows = round(moved / row / 16) * 16
    plain = [redist.ArrayType.parse(f"bf16[{rows}{{tp}}, 256]", mesh) for mesh in (few, many)]
    ours, theirs = (_batch(comm, *ends) for ends in ((source, target), (plain[0], plain[1])))
    same = np.zeros(1)
    name = f"48 fused q|k|v weights, TP 4 to TP 16, {48 * moved / 2**20:.0f} MiB"
    works = (lambda: (ours(), same)[1]), (lambda: (theirs(), same)[1])
    return ExamplePair(name, "", "plain rows, the same bytes", *works)


def _batch(
    comm: MPI.Intracomm, source: redist.ArrayType, target: redist.ArrayType
) -> Callable[[], Any]:
    names = [f"w{k}" for k in range(48)]
    transfer = redist.Transfer(dict.fromkeys(names, source), dict.fromkeys(names, target), comm)
    shapes = redist.spans_of(source, comm.rank)
    tiles: dict[str, Any] = dict.fromkeys(names)
    if shapes is not None:
        shape = tuple(sum(hi - lo for lo, hi in dim) for dim in shapes)
        tiles = {name: np.ones(shape, np.uint16) for name in names}
    return lambda: transfer(tiles)


FEW: tuple[Callable[[MPI.Intracomm], ExamplePair], ...] = (
    *(partial(way, nb) for way in (copy_floor, packed, own_buffers) for nb in (32, 64, 256)),
    uneven,
    tokens,
)
MANY = (fused,)
