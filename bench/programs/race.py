"""What do programs gain over the functions that they are made of? Needs mpirun; between hosts also root."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from bench.layouts.workload import arrays_in
from bench.problems.judge import WrongPlanError
from bench.programs.inspected import measure_reads
from bench.programs.measured import (
    measure_hosts,
    measure_products,
    measure_together,
    seconds_of_pairs,
)
from bench.report.figures import met, quartiles, repeated, timed
from bench.report.job import say
from bench.report.jobs import found_by, on_hosts, on_ranks
from bench.report.report import Row, Table, Tables
from examples import fft3d, hand_over, heat, kmeans, least_squares, power_iteration
from redist import Mesh, pgas
from redist.measure.job import mpi_name
from redist.runtime.ranks import world as ranks_world
from tests.cluster.hosts import why_no_cluster


@dataclass(frozen=True, slots=True)
class ProgramCase:
    """A function, its arguments, and the ratio that it should not exceed as a program; None: none."""

    name: str
    what: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    aim: float | None


def chain(x: Any, y: Any) -> Any:
    """40 element-wise operations."""
    for _ in range(20):
        x = x * y
        x = x + 1.0
    return x


def sums(*arrays: Any) -> Any:
    """Reductions that nothing stands between."""
    return [array.to("{}") for array in arrays]


def norm(x: Any) -> Any:
    """Rows of length one."""
    return x / pgas.sqrt(pgas.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def block(x: Any, w: dict[str, Any]) -> Any:
    """Attention and an MLP, forward."""
    h = norm(x)
    q, k, v = (pgas.einsum("bsd,dhe->bshe", h, w[name]) for name in "qkv")
    s = pgas.einsum("bshe,bthe->bhst", q, k)
    e = pgas.exp(s - pgas.max(s, axis=-1, keepdims=True))
    o = pgas.einsum("bhst,bthe->bshe", e / pgas.sum(e, axis=-1, keepdims=True), v)
    x = x + pgas.einsum("bshe,hed->bsd", o, w["o"])
    u = pgas.einsum("bsd,df->bsf", norm(x), w["1"])
    return x + pgas.einsum("bsf,fd->bsd", u / (1 + pgas.exp(-u)), w["2"])


def distances(x: Any, c: Any) -> Any:
    """Squared distances; the array between join and sum is the largest by far."""
    return pgas.sum((x[:, None] - c[None]) ** 2, axis=-1)


def heat_step(u: Any) -> Any:
    """One step of the heat equation, with halos."""
    share = heat.SHARE

    def kernel(t: Any) -> Any:
        inner = t[1:-1]
        out = inner.copy()
        out[:, 1:-1] = share * (t[:-2, 1:-1] + t[2:, 1:-1] + inner[:, :-2] + inner[:, 2:])
        out[:, 1:-1] += (1 - 4 * share) * inner[:, 1:-1]
        return out

    return pgas.map_tiles(kernel, u, halo={0: 1})


def power_step(a: Any, v: Any) -> Any:
    """The example without its number: a better vector."""
    w = (a @ v).to("{}")
    return w / pgas.linalg.vector_norm(w)


def cases(ranks: int) -> list[ProgramCase]:
    """Everything that is compared, on so many ranks. **Collective over all of them.**"""
    rng = pgas.random.generator(1)
    mesh = Mesh(x=2, y=ranks // 2) if ranks % 2 == 0 else Mesh(x=ranks)
    pending = [pgas.sum(rng.normal((ranks, 512), type="{x}, {}"), axis=0) for _ in range(8)]
    weights = {name: rng.normal((128, 4, 32), mesh=mesh) for name in "qkv"}
    weights |= {
        "o": rng.normal((4, 32, 128), mesh=mesh),
        "1": rng.normal((128, 512), mesh=mesh),
        "2": rng.normal((512, 128), mesh=mesh),
    }
    points = kmeans.make(2**14, 8, 8)
    many = kmeans.make(2**18, 8, 8)
    tall, _, right = least_squares.make(2**16, 32)
    matrix = power_iteration.make(2048)
    whole = pgas.ones((2048,), type="{}")
    cube = pgas.astype(
        rng.uniform((128, 128, 64), type="{}, {x}, {y}", mesh=fft3d.square_mesh(ranks)), complex
    )
    train, serve = hand_over.meshes(ranks)
    model, types = hand_over.make(128, 8, train), hand_over.types(128, 8, serve)
    small = rng.normal((1000,)), rng.normal((1000,))
    far = rng.normal((2**14, 16), type="{x}, {}"), rng.normal((64, 16), type="{}, {}")
    tokens = rng.normal((2, 64, 128), mesh=mesh)
    few = points, points[:8].to("{}, {}")

    def hand(w: Any) -> Any:
        return pgas.move_together(w, types)

    case, example = ProgramCase, 1.03
    return [
        case("chain", "40 operations on 1,000 elements", chain, small, 0.3),
        case("sums", "8 pending sums of 4 KiB", sums, tuple(pending), None),
        case("kmeans", "2^14 points of 8", kmeans.step, few, 0.9),
        case("block", "attention and MLP, 2 x 64 x 128", block, (tokens, weights), 0.9),
        case("distances", "2^14 points, 64 centres of 16", distances, far, None),
        case("example fft3d", "128 x 128 x 64 c128", pgas.fft.fftn, (cube,), example),
        case("example hand_over", f"{len(model)} arrays", hand, (model,), example),
        case("example heat", "1024^2, map_tiles", heat_step, (heat.plate(1024),), example),
        case("example kmeans", "2^18 points of 8", kmeans.step, (many, few[1]), example),
        case(
            "example least_squares",
            "2^16 x 32",
            least_squares.fit,
            (tall, right.to("{x}")),
            example,
        ),
        case("example power_iteration", "2048^2, no limit", power_step, (matrix, whole), example),
    ]


RANKS, HOSTS = 4, 2
RATE_MBIT = 1000.0
JOB = "bench.programs.race"
HIDDEN_AIM, READS_AIM = 0.7, 3.0
MOVE_AIM, MESSAGES_AIM = 1.3, 5
CUBE_AIM, TOGETHER_AIM = 1.45, 0.35
PAIRS = 31


def run(only: str = "") -> Tables:
    """Measure on 4 ranks here, and on 2 emulated hosts where that can be; nothing is random.

    only: cases whose name has this; ``lists``: reads at indices alone.
    """
    lists = [
        by_lists(found_by(on_ranks(RANKS), JOB, what="lists", apart=apart), apart)
        for apart in (False, True)
    ]
    if only == "lists":
        return tuple(lists)
    tables = [here(found_by(on_ranks(RANKS), JOB, only=only)), *lists]
    tables.append(counted([found_by(on_ranks(n), JOB, what="counted") for n in (2, 4, 8)]))
    if not why_no_cluster():
        data = found_by(on_hosts(HOSTS, 1, RATE_MBIT), JOB, what="hosts")
        tables += [overlap(data), far_reads(data)]
    return tuple(tables)


def here(data: dict[str, Any]) -> Table:
    """Times on one machine, both ways in pairs."""
    rows: list[Row] = []
    for row in data["rows"]:
        if row["wrong"]:
            raise WrongPlanError(f"cannot compare {row['name']}: a program has other bits")
        low, middle, high = row["ratio"]
        aim, figures = row["aim"], row["figures"]
        good = "-" if aim is None else met(middle <= aim or low <= aim)
        rows.append(
            {
                "case": row["name"], "size": row["what"], "eager ms": 1e3 * row["eager_s"],
                "program ms": 1e3 * row["program_s"], "ratio": middle, "quartiles": f"{low:.2f}-{high:.2f}",
                "moves": f"{figures['moves']} of {figures['captured moves']}", "aim": aim, "reached": good,
            }
        )  # fmt: skip
    captured, cores = data["captured"], os.cpu_count()
    notes = (
        "31 pairs, one right after the other; results have the same bits; a ratio above its aim counts "
        "as reached where the lower quartile is not",
        f"1,000 calls are captured, judged, prepared and run for the first time in {captured:.2f} s "
        f"(aim below 1: {met(captured < 1)})",
    )
    title = f"Programs beside their functions, {data['ranks']} ranks, {data['mpi']}, {cores} cores"
    return Table.of("here", title, rows, *notes, keys=2)


def counted(several: Sequence[dict[str, Any]]) -> Table:
    """Without any program: what a product receives in a run, and small sums that move together."""
    rows: list[Row] = []
    for data in several:
        low, middle, high = data["together"]
        rows.append(
            {
                "ranks": data["ranks"], "cube": data["cube"], "aim 1.45": met(data["cube"] <= CUBE_AIM),
                "8 sums": middle, "quartiles": f"{low:.2f}-{high:.2f}",
                "aim 0.35": met(middle <= TOGETHER_AIM), "8 sums, new": data["together, new"][1],
            }
        )  # fmt: skip
    notes = (
        "cube: bytes that a product of two matrices of 1024 x 1024 in the default layout receives, its "
        "sum included, counted by the transport, over the memory-independent bound",
        "8 sums: time of pending sums of 4 KiB by one redistribute, over one for each; 31 pairs; into "
        "arrays that are there, or new ones",
    )
    title = f"Products and batches without programs, {os.cpu_count()} cores"
    return Table.of("counted", title, rows, *notes)


def by_lists(data: dict[str, Any], apart: bool) -> Table:
    """Reads at indices that programs inspect once; where ranks are ``apart`` nothing is shared."""
    rows: list[Row] = []
    for row in data["rows"]:
        if row["wrong"]:
            raise WrongPlanError(f"cannot compare {row['case']}: a read has other bits")
        low, middle, high = row["ratio"]
        sent, by_rows, at_once = row["messages"]
        few = row["most"] < data["ranks"] and by_rows >= MESSAGES_AIM * sent
        rows.append(
            {
                "case": row["case"], "size": row["what"], "KiB": row["received"] / 1024,
                "first ms": 1e3 * row["first_s"], "read ms": 1e3 * row["read_s"],
                "move ms": 1e3 * row["move_s"], "take ms": 1e3 * row["take_s"],
                "read / move": middle, "quartiles": f"{low:.2f}-{high:.2f}",
                "aim 1.3": met(middle <= MOVE_AIM or low <= MOVE_AIM),
                "epoch ms": 1e3 * row["at once_s"], "by rows ms": 1e3 * row["by rows_s"],
                "messages": sent, "of an epoch": at_once, "by rows": by_rows,
                "aims": met(few) if apart else "-",
            }
        )  # fmt: skip
    notes = (
        "read: a call of a program after the first, which inspects; move: a planned move of which ranks "
        "receive as many bytes; take: what NumPy takes to pick as many elements of an array that is there, "
        "which is part of every read; epoch: all elements of a rank by one one-sided read, or row by row (a "
        "sixteenth of the rows, times 16); medians of 41, all ways in turn; results have the same bits",
        "aims: at most one message from a rank to another in a call; row by row at least 5 times as many",
    )
    where = "nothing shared, as between hosts" if apart else "one node"
    title = f"Sparse rows gathered, {data['ranks']} ranks, {where}, {data['mpi']}, {os.cpu_count()} cores"
    return Table.of("apart" if apart else "lists", title, rows, *notes, keys=2)


def overlap(data: dict[str, Any]) -> Table:
    """A move beside products that do not need it."""
    rows = [
        {
            "products": row["products"], "move ms": 1e3 * row["move"], "compute ms": 1e3 * row["compute"],
            "in turn ms": 1e3 * row["in turn"], "early ms": 1e3 * row["early"],
            "hidden %": 100 * row["hidden"], "aim 70 %": met(row["hidden"] >= HIDDEN_AIM),
        }
        for row in data["overlap"]
    ]  # fmt: skip
    note = (
        "hidden: what is saved, of the shorter of move and compute; both ranks compute on all cores "
        "that there are, so the processor time of the network is taken from them"
    )
    title = f"Moves begun early, {HOSTS} hosts of 1 rank, links of {RATE_MBIT:g} Mbit/s"
    return Table.of("overlap", title, rows, note)


def far_reads(data: dict[str, Any]) -> Table:
    """Blocks of 4 KiB, each read 4 times in each of 10 intervals."""
    times = data["reads"]
    rows = [
        {"what is kept": name, "ms": 1e3 * seconds, "times as fast": times["neither"] / seconds}
        for name, seconds in times.items()
    ]
    gain = met(times["neither"] / times["both"] >= READS_AIM)
    title = f"One-sided reads of 32 far blocks of 4 KiB, {HOSTS} hosts of 1 rank"
    return Table.of(
        "reads", title, rows, f"both: kept and fetched ahead; aim 3 times as fast: {gain}"
    )


def measure(what: str = "cases", only: str = "", apart: bool = False) -> dict[str, Any]:
    """Cases whose name has a word; what is ``counted``; reads by ``lists``; what passes between ``hosts``.

    **Collective over all ranks of the job.**
    """
    comm = MPI.COMM_WORLD
    data: dict[str, Any] = {"mpi": mpi_name(), "ranks": comm.size}
    if what == "hosts":
        return {**data, **measure_hosts(comm)}
    if what == "lists":
        if apart:
            ranks_world.can_share = lambda: False  # type: ignore[attr-defined]
        return {**data, "rows": measure_reads(comm)}
    if what == "counted":
        data["cube"] = measure_products(comm)
        data["together"] = measure_together(comm, PAIRS, has_outs=True)
        data["together, new"] = measure_together(comm, PAIRS, has_outs=False)
        say(f"programs: {data}")
        return data
    rows = [measure_case(comm, case) for case in cases(comm.size) if only in case.name]
    return {**data, "rows": rows, "captured": measure_capture(1000)}


def measure_case(comm: MPI.Intracomm, case: ProgramCase) -> dict[str, Any]:
    """Time both ways in pairs, one right after the other. **Collective over `comm`.**"""
    step = pgas.program(layouts="as written")(case.function)  # planned, sums may be added otherwise
    want, got = case.function(*case.args), step(*case.args)
    got = step(*case.args)
    same = all(_bits(a) == _bits(b) for a, b in zip(_arrays(want), _arrays(got), strict=True))
    wrong = not all(comm.allgather(same))
    works = [repeated(function, *case.args) for function in (case.function, step)]
    times = seconds_of_pairs(comm, works, PAIRS)
    eager_s, program_s = np.median(times, axis=0).tolist()
    row = {
        "name": case.name, "what": case.what, "aim": case.aim, "wrong": wrong, "eager_s": eager_s,
        "program_s": program_s, "ratio": quartiles(times[:, 1] / times[:, 0]),
        "figures": dict(step.graph(*case.args).figures),
    }  # fmt: skip
    say(f"programs: {row}")
    return row


def measure_capture(nodes: int) -> float:
    """Seconds from the first call of a program of so many nodes to its result. **Collective.**"""
    rng = pgas.random.generator(2)
    x, y = rng.normal((1000,)), rng.normal((1000,))

    def long(x: Any, y: Any) -> Any:
        for _ in range(nodes // 40):
            x = chain(x, y)
        return x

    return timed(partial(pgas.program(long), x, y))[0]


def _arrays(result: Any) -> list[Any]:
    return arrays_in(list(result.values()) if isinstance(result, dict) else result)


def _bits(array: Any) -> bytes:
    return b"" if array.tile is None else bytes(array.tile.tobytes())
