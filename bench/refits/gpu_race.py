"""How quick is a refit between processes that share a GPU, beside whole tensors handed over by CUDA IPC?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.problems.judge import WrongPlanError
from bench.report.figures import met, quartiles
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables

TRAINERS = 4
OURS, KEPT, RAW, WHOLE = "redist, in place", "redist, old weights kept", "raw copy", "whole tensors"
OF_COPY, TIMES = 0.7, 3.0
"""Aims: the share of the rate of a contiguous copy, and how many times as long whole tensors take."""


def run(
    models: str = "14B,30B", engines: tuple[int, ...] = (2, 4), n: int = 11, device: str = "cuda"
) -> Tables:
    """Trainers (4 processes) and engines on one GPU; weights of bf16 at the shapes of real models.

    models: of 14B (dense), 30B (experts; no room to keep old weights) and tiny; engines: processes under
    tensor parallelism; n: repetitions; device: cuda, or cpu to try it.
    """
    if device == "cuda":
        from bench.gpu.copies import need_gpu

        need_gpu()
    found = [
        found_by(on_ranks(TRAINERS + k, one_thread=False), "bench.refits.gpu_job",
                 model=model, engines=k, repeat=n, device=device)
        for model in models.split(",")
        for k in engines
    ]  # fmt: skip
    return tables(found)


def tables(found: Sequence[dict[str, Any]]) -> Tables:
    """What the jobs found; wrong results are refused."""
    rows: list[Row] = []
    said = []
    for job in found:
        wrong = [way for way, row in job["rows"].items() if not row["right"]]
        where = f"{job['model']}, {job['engines']} engines"
        if wrong:
            raise WrongPlanError(f"cannot compare refits of {where}: {', '.join(wrong)} differ")
        medians = {way: quartiles(row["seconds"])[1] for way, row in job["rows"].items()}
        for way, row in job["rows"].items():
            low, middle, high = (1e3 * one for one in quartiles(row["seconds"]))
            rate = 2 * job["bytes"] / medians[way]
            rows.append(
                {
                    "refit": where, "way": way, "ms": middle, "low": low, "high": high,
                    "TB/s": rate / 1e12, "of copy": rate / job["copy_bytes_per_s"],
                    "times as long": medians[way] / medians[OURS], "more GiB": row["more_bytes"] / 2**30,
                    "bind s": row["prepare_s"], "first ms": 1e3 * row["first_s"],
                }
            )  # fmt: skip
        share = 2 * job["bytes"] / medians[OURS] / job["copy_bytes_per_s"]
        said.append(f"{where}: {share:.0%} of the copy ({met(share >= OF_COPY)})")
        if WHOLE in medians:
            times = medians[WHOLE] / medians[OURS]
            said.append(f"whole tensors {times:.1f} x ({met(times >= TIMES)})")
    one = found[0]
    title = f"Refits between processes that share a GPU: {one['gpu']}, PyTorch {one['torch']}"
    title += ", under MPS" if one["mps"] else ", without MPS"
    notes = (
        f"medians of {one['repeat']} and quartiles, from a barrier behind the trainers' last write to one "
        "before the engines' first use; values compared bit for bit; rates count bytes read and written",
        "of copy: of the driver's contiguous copy by one process; raw copy: as many bytes by all engines",
        "whole tensors: gathered by CUDA IPC, 1 GB at a time, then narrow and copy for each parameter",
        "more: memory of the GPU beside both sides; first: the first refit, which makes tables",
        f"aims: {OF_COPY:.0%} of the copy, {TIMES:g} x as fast as whole tensors: {'; '.join(said)}",
    )
    return (Table.of("gpu", title, rows, *notes, keys=2),)
