"""How quick and how frugal is redist beside PyTorch's own ways to move DTensors? Needs PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.problems.judge import WrongPlanError
from bench.report.figures import geomean, quartiles
from bench.report.jobs import found_by, on_torch_ranks
from bench.report.report import Row, Table, Tables

RANKS = 4
MIB = 2**20
OURS, BY_MESSAGES, THEIRS = "redist", "messages", "PyTorch"


def run(n: int = 7, mib: int = 128, layers: int = 48, width: int = 480, only: str = "") -> Tables:
    """Measure DTensors and the weights of a model on 4 ranks: times first, then memory.

    n: repetitions, 7 at most; mib: of a DTensor; layers and width: of the model; only: moves or refit.
    """
    asked = {"n_bytes": mib * MIB, "layers": layers, "width": width, "only": only}
    job = "bench.pytorch.job"
    times = found_by(on_torch_ranks(RANKS), job, **asked, repeat=min(n, 7))
    at_once = {"MIMALLOC_PURGE_DELAY": "0"}
    return tables(times, found_by(on_torch_ranks(RANKS, at_once), job, **asked, repeat=0))


def tables(times: dict[str, Any], memory: dict[str, Any]) -> Tables:
    """What the two jobs found; wrong results are refused."""
    for row in (*times["moves"], *memory["moves"], *times["refit"]):
        if row["wrong"]:
            raise WrongPlanError(f"cannot compare with PyTorch, results differ: {row}")
    what = f"PyTorch {times['torch']}, gloo, {times['ranks']} ranks, {times['bytes'] // MIB} MiB of f32"
    found = []
    if times["moves"]:
        rows = [_move(a, b) for a, b in zip(times["moves"], memory["moves"], strict=True)]
        found += [_summary(what, rows), _moves(what, rows, times["repeat"])]
    if times["refit"]:
        found.append(_refit(times, memory))
    return tuple(found)


def _move(times: dict[str, Any], memory: dict[str, Any]) -> dict[str, Any]:
    """The figures of one case."""
    spread = {name: quartiles(own) for name, own in times["seconds"].items()}
    held = {name: own + memory["source"] for name, own in memory["peak"].items()}
    theirs, ours, certified = spread[THEIRS], spread[OURS], memory["certified"]
    return {
        "about": {"mesh": times["mesh"], "before": times["before"], "after": times["after"]},
        "ms": {name: 1e3 * own[1] for name, own in spread.items()},
        "speed": theirs[1] / ours[1],
        "from": theirs[0] / ours[2],
        "to": theirs[2] / ours[0],
        "by messages": theirs[1] / spread[BY_MESSAGES][1],
        "MiB": {name: own / MIB for name, own in held.items()},
        "memory": held[OURS] / held[THEIRS],
        "certified": certified[OURS] / MIB,
        "over": max((held[name] - certified[name]) / MIB for name in (OURS, BY_MESSAGES)),
        "moves": times["received"] > 0,
    }


def _summary(what: str, rows: Sequence[dict[str, Any]]) -> Table:
    some = {"all": rows, "that move data": [row for row in rows if row["moves"]]}
    lines: list[Row] = [
        {
            "cases": name, "number": len(chosen), "times as fast": geomean(r["speed"] for r in chosen),
            "least": min(row["speed"] for row in chosen),
            "by messages": geomean(row["by messages"] for row in chosen),
            "memory": geomean(row["memory"] for row in chosen),
            "most memory": max(row["memory"] for row in chosen),
            "MiB over certified": max(row["over"] for row in chosen),
        }
        for name, chosen in some.items()
    ]  # fmt: skip
    note = (
        "geometric means, and the worst; times as fast: through shared memory, or by messages alone; "
        "memory: peak of the fullest rank over DTensor's, source included; over certified: what "
        "allocator, large pages and gloo add to the certified peak, at most"
    )
    return Table.of("summary", f"redist.torch beside DTensor.redistribute: {what}", lines, note)


def _moves(what: str, rows: Sequence[dict[str, Any]], repeat: int) -> Table:
    lines: list[Row] = [
        {
            **row["about"], "DTensor ms": row["ms"][THEIRS], "redist ms": row["ms"][OURS],
            "times as fast": row["speed"], "from": row["from"], "to": row["to"],
            "messages ms": row["ms"][BY_MESSAGES], "DTensor MiB": row["MiB"][THEIRS],
            "redist MiB": row["MiB"][OURS], "certified MiB": row["certified"],
        }
        for row in rows
    ]  # fmt: skip
    note = (
        f"medians of {repeat}, in turn, results compared first; from, to: quartiles against each other; "
        "S0: cut along dim 0, R: replicated, P: pending sum; MiB: peak of the fullest rank, source "
        "included"
    )
    title = f"DTensor.redistribute and redist.torch, case by case: {what}"
    return Table.of("moves", title, lines, note, keys=3)


def _refit(times: dict[str, Any], memory: dict[str, Any]) -> Table:
    columns = ("mesh", "way", "ms", "low", "high", "times as long", "moved MiB", "peak MiB")
    rows: list[Row] = []
    for taken, held in zip(times["refit"], memory["refit"], strict=True):
        where, ours = f"to {taken['ranks']} ranks", quartiles(taken["seconds"][OURS])[1]
        for name, seconds in taken["seconds"].items():
            low, middle, high = (1e3 * one for one in quartiles(seconds))
            moved = (taken["received"][name] / MIB, held["peak"][name] / MIB)
            cells = (where, name, middle, low, high, middle / ours / 1e3, *moved)
            rows.append(dict(zip(columns, cells, strict=True)))
        first = {"mesh": where, "way": "redist, first call", "ms": 1e3 * taken["first_s"]}
        rows.append({**dict.fromkeys(columns), **first})
    one = times["refit"][0]
    size = (
        f"{one['weights']} weights, {one['bytes'] / MIB:.0f} MiB of bf16, {times['layers']} layers"
    )
    title = "Weights from FSDP x tensor parallelism on 4 ranks to other meshes: "
    title += f"{size}, PyTorch {times['torch']}, gloo"
    note = (
        f"medians of {times['repeat']} and quartiles, in turn, results compared first; moved: received "
        "by all ranks, of DCP (in memory, /dev/shm) written and read; peak: what the fullest rank "
        "allocates, its new weights included; DTensor.redistribute between meshes: " + one["own"]
    )
    return Table.of("refit", title, rows, note, keys=2)
