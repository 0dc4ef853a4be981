"""How quick is a refit beside whole tensors and files? 4 ranks that train, 4 that serve, PyTorch's gloo."""

from __future__ import annotations

from typing import Any

from bench.problems.judge import WrongPlanError
from bench.report.figures import met, quartiles
from bench.report.jobs import found_by, on_torch_ranks
from bench.report.report import Row, Table, Tables
from redist.text.units import format_bytes, parse_bytes

TRAINERS, ENGINES = 4, 4
OURS, BY_MESSAGES, IN_PLACE, FULL, FILES = (
    "redist", "redist, messages", "redist, in place", "full tensors", "DCP",
)  # fmt: skip
AIM = 5.0
"""How many times as long each rival shall take."""


def run(size: str = "2GiB", n: int = 3, limit: str = "256MiB", disk: str = "") -> Tables:
    """Hand the weights of a decoder over, from rows of FSDP to fused tensors under tensor parallelism.

    size: of all weights, bf16; n: repetitions; limit: what a rank sends and receives in a round; disk: a
    folder for the files of DCP, which are in memory (/dev/shm) otherwise.
    """
    asked = {"n_bytes": parse_bytes(size), "repeat": n, "limit": limit, "disk": disk}
    return tables(found_by(on_torch_ranks(TRAINERS + ENGINES), "bench.refits.torch_job", **asked))


def tables(found: dict[str, Any]) -> Tables:
    """What the job found; wrong results are refused."""
    if found["wrong"]:
        raise WrongPlanError(
            f"cannot compare refits: {', '.join(found['wrong'])} handed over wrong values"
        )
    ours = quartiles(found["seconds"][OURS])[1]
    rows: list[Row] = []
    for way, seconds in found["seconds"].items():
        low, middle, high = quartiles(seconds)
        rows.append(
            {
                "way": way, "s": middle, "low": low, "high": high, "times as long": middle / ours,
                "moved GiB": found["received"][way] / 2**30, "bind s": found["bind_s"].get(way),
            }
        )  # fmt: skip
    rivals = {way: quartiles(found["seconds"][way])[1] / ours for way in (FULL, FILES)}
    said = ", ".join(f"{way} {ratio:.1f} x ({met(ratio >= AIM)})" for way, ratio in rivals.items())
    where = "on disk" if found["on_disk"] else "in memory, /dev/shm"
    title = (
        f"A refit of {format_bytes(found['bytes'])} of bf16, {found['tensors']} tensors: {TRAINERS} ranks "
        f"that train, {ENGINES} that serve, PyTorch {found['torch']}, gloo, one machine"
    )
    notes = (
        f"medians of {found['repeat']} and quartiles, in turn, values compared with the trained ones first; "
        f"moved: received by all ranks, of DCP ({where}) written and read",
        "full tensors: DTensor.full_tensor() on all trainers, broadcast to the engines, each keeps its part",
        "redist: shared memory, old weights kept until all have arrived; messages: by gloo alone; in place: "
        "nothing kept",
        f"aim: {AIM:g} x as fast as both: {said}",
    )  # fmt: skip
    return (Table.of("handed-over", title, rows, *notes),)
