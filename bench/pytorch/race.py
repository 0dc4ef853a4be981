"""How quick and how frugal is redist beside PyTorch's own ways to move DTensors? Needs PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.problems.installed import why_absent
from bench.problems.judge import WrongPlanError
from bench.report.figures import geomean, quantile
from bench.report.jobs import found_by, on_torch_ranks
from bench.report.report import Report, Table, Value

RANKS = 4
MOST_REPEATS = 7
MIB = 2**20
OURS, BY_MESSAGES, THEIRS = "redist", "messages", "PyTorch"


def run(n: int = MOST_REPEATS, seed: int = 0) -> Report:
    """Measure DTensors of 128 MiB and the weights of a model on 4 ranks: times first, then memory."""
    if why_absent("torch") is not None:
        line = "torch: skipped, PyTorch is not installed; pip install -e '.[torch]'"
        return Report("torch", (Table(line, (), ()),))
    job = "compare with PyTorch", "bench.pytorch.job", "--repeat"
    times = found_by(on_torch_ranks(RANKS), *job, min(n, MOST_REPEATS))
    memory = found_by(on_torch_ranks(RANKS, {"MIMALLOC_PURGE_DELAY": "0"}), *job, 0)
    return report(times, memory)


def report(times: dict[str, Any], memory: dict[str, Any]) -> Report:
    """Tables from what the two jobs found."""
    for row in (*times["moves"], *memory["moves"], *times["refit"]):
        if row["wrong"]:
            raise WrongPlanError(f"cannot compare with PyTorch, results differ: {row}")
    what = f"PyTorch {times['torch']}, gloo, {times['ranks']} ranks, {times['bytes'] // MIB} MiB of f32"
    tables = []
    if times["moves"]:
        rows = [_move(a, b) for a, b in zip(times["moves"], memory["moves"], strict=True)]
        tables += [_summary(what, rows), _moves(what, rows, times["repeat"])]
    if times["refit"]:
        tables.append(_refit(times, memory))
    return Report("torch", tuple(tables))


def _move(times: dict[str, Any], memory: dict[str, Any]) -> dict[str, Any]:
    """The figures of one case."""
    seconds, peak = times["seconds"], memory["peak"]
    source = memory["source"]
    middle = {name: _at(own, 0.5) for name, own in seconds.items()}
    low, high = _quartiles(seconds[THEIRS]), _quartiles(seconds[OURS])
    return {
        "about": (times["mesh"], times["before"], times["after"]),
        "ms": {name: 1e3 * own for name, own in middle.items()},
        "speed": middle[THEIRS] / middle[OURS],
        "from": low[0] / high[1],
        "to": low[1] / high[0],
        "by messages": middle[THEIRS] / middle[BY_MESSAGES],
        "MiB": {name: (own + source) / MIB for name, own in peak.items()},
        "memory": (peak[OURS] + source) / (peak[THEIRS] + source),
        "certified": memory["certified"][OURS] / MIB,
        "over": max(
            (peak[name] + source - memory["certified"][name]) / MIB for name in (OURS, BY_MESSAGES)
        ),
        "moves": times["received"] > 0,
    }


def _at(values: Sequence[float], share: float) -> float:
    found = quantile(values, share)
    assert found is not None, "nothing was measured"
    return found


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    return _at(values, 0.25), _at(values, 0.75)


def _summary(what: str, rows: Sequence[dict[str, Any]]) -> Table:
    def line(name: str, chosen: Sequence[dict[str, Any]]) -> tuple[Value, ...]:
        return (
            name,
            len(chosen),
            geomean([row["speed"] for row in chosen]),
            min(row["speed"] for row in chosen),
            geomean([row["by messages"] for row in chosen]),
            geomean([row["memory"] for row in chosen]),
            max(row["memory"] for row in chosen),
            max(row["over"] for row in chosen),
        )

    return Table(
        f"redist.torch beside DTensor.redistribute: {what}",
        (
            "cases", "number", "times as fast", "least", "by messages", "memory", "most memory",
            "MiB over certified",
        ),
        (
            line("all", rows),
            line("that move data", [row for row in rows if row["moves"]]),
        ),
        (
            "geometric means, and the worst; times as fast: through shared memory, or by messages alone; "
            "memory: peak of the fullest rank over DTensor's, source included; over certified: what "
            "allocator, large pages and gloo add to the certified peak, at most",
        ),
        "summary",
    )  # fmt: skip


def _moves(what: str, rows: Sequence[dict[str, Any]], repeat: int) -> Table:
    return Table(
        f"DTensor.redistribute and redist.torch, case by case: {what}",
        (
            "mesh", "before", "after", "DTensor ms", "redist ms", "times as fast", "from", "to",
            "messages ms", "DTensor MiB", "redist MiB", "certified MiB",
        ),
        tuple(
            (
                *row["about"],
                row["ms"][THEIRS],
                row["ms"][OURS],
                row["speed"],
                row["from"],
                row["to"],
                row["ms"][BY_MESSAGES],
                row["MiB"][THEIRS],
                row["MiB"][OURS],
                row["certified"],
            )
            for row in rows
        ),
        (
            f"medians of {repeat}, in turn, results compared first; from, to: quartiles against each other; "
            "S0: cut along dim 0, R: replicated, P: pending sum; MiB: peak of the fullest rank, source "
            "included",
        ),
        "moves",
        keys=3,
    )  # fmt: skip


def _refit(times: dict[str, Any], memory: dict[str, Any]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for taken, held in zip(times["refit"], memory["refit"], strict=True):
        ours = _at(taken["seconds"][OURS], 0.5)
        for name, seconds in taken["seconds"].items():
            middle = _at(seconds, 0.5)
            rows.append(
                (
                    f"to {taken['ranks']} ranks",
                    name,
                    1e3 * middle,
                    1e3 * _at(seconds, 0.25),
                    1e3 * _at(seconds, 0.75),
                    middle / ours,
                    taken["received"][name] / MIB,
                    held["peak"][name] / MIB,
                )
            )
        rows.append(
            (
                f"to {taken['ranks']} ranks",
                "redist, first call",
                1e3 * taken["first_s"],
                *[None] * 5,
            )
        )
    first = times["refit"][0]
    size = f"{first['weights']} weights, {first['bytes'] / MIB:.0f} MiB of bf16, {times['layers']} layers"
    return Table(
        f"Weights from FSDP x tensor parallelism on 4 ranks to other meshes: {size}, "
        f"PyTorch {times['torch']}, gloo",
        ("mesh", "way", "ms", "low", "high", "times as long", "moved MiB", "peak MiB"),
        tuple(rows),
        (
            f"medians of {times['repeat']} and quartiles, in turn, results compared first; moved: received "
            "by all ranks, of DCP (in memory, /dev/shm) written and read; peak: what the fullest rank "
            "allocates, its new weights included; DTensor.redistribute between meshes: " + first["own"],
        ),
        "refit",
        keys=2,
    )  # fmt: skip
