"""How long does planning a refit of a whole model take, and what would other schedules take?"""

from __future__ import annotations

import time
from pathlib import Path

import redist
from bench.refits.files import read_sides
from bench.refits.models import MODELS, served, trained
from bench.report.figures import met, timed
from bench.report.report import Row, Table, Tables
from redist.refits.others import schedules
from redist.text.progress import track

TP = {"Qwen3-235B": 8, "DeepSeek-V3": 16, "Kimi-K2": 16}
PLAN_S, RUNS_S, BALANCE = 5.0, 0.2, 1.05
TARGETS_LOOKED_AT = 5


def run(limit: str = "2GiB", configs: str = "") -> Tables:
    """Plan three models from 256 training to 128 inference ranks; and files as nccl_m2n has them.

    ``configs`` is a folder with ``*.model.json`` and system files, whose names begin with the model's.
    """
    asked = [(name, by, fsdp) for name in MODELS for by in (False, True) for fsdp in (False, True)]
    rows = []
    for name, by_experts, fsdp in track(asked, len(asked), "refits"):
        source = trained(MODELS[name], fsdp=fsdp)
        target = served(MODELS[name], tp=TP[name], by_experts=by_experts)
        label = f"{name}, {'EP 128' if by_experts else f'TP {TP[name]} x {128 // TP[name]}'}"
        rows.append(_row(label + (", FSDP" if fsdp else ""), source, target, limit))
    notes = (
        "256 training ranks (8 stages, TP 8, experts over the ranks of a stage, else 4 copies or FSDP's "
        "rows) to 128 ranks behind them; bf16",
        "seconds of one core: plan, certificate, and runs of the slowest of some ranks",
        f"in step: synchronised rounds over the busiest rank; limit {limit} a rank and round",
        "stage by stage, whole tensors: bytes in step over this plan's, by the same model",
        f"aims: planned in {PLAN_S:g} s, runs in {RUNS_S:g} s, received = bound, busiest sender "
        f"{BALANCE} x the least",
    )
    tables = [Table.of("planning", "Refits of whole models", rows, *notes, keys=1)]
    if configs:
        tables.append(_of_files(Path(configs), limit))
    return tuple(tables)


def _of_files(folder: Path, limit: str) -> Table:
    rows = []
    for model in sorted(folder.glob("*.model.json")):
        family = model.name.split("-")[0]
        for system in sorted(folder.glob(f"{family}*.json")):
            if ".model." not in system.name:
                source, target = read_sides(model, system)
                rows.append(_row(system.stem, source, target, limit))
    return Table.of("files", "Refits of model and system files", rows, keys=1)


def _row(label: str, source: redist.Weights, target: redist.Weights, limit: str) -> Row:
    seconds, plan = timed(
        lambda: redist.refit(source, target, limit_bytes=limit), time.process_time
    )
    certify_s, certificate = timed(lambda: plan.certificate, time.process_time)
    every = (*target.ranks[:: max(1, len(target.ranks) // TARGETS_LOOKED_AT)],)
    senders = (*source.ranks[:: max(1, len(source.ranks) // TARGETS_LOOKED_AT)],)
    runs_s = max(
        *(timed(lambda r=r: plan.runs(r), time.process_time)[0] for r in every),  # type: ignore[misc]
        *(timed(lambda r=r: plan.runs(r, sends=True), time.process_time)[0] for r in senders),  # type: ignore[misc]
    )
    _, staged, whole = schedules(plan)
    step = int(plan.turns.busiest.sum())
    balance = max(plan.sent_bytes.values()) / max(1, plan.least_sent_bytes)
    good = (
        seconds <= PLAN_S and runs_s <= RUNS_S and balance <= BALANCE and certificate.verdict == "proved"
        and plan.received_bytes == plan.lower_bound_bytes
    )  # fmt: skip
    return {
        "refit": label,
        "tensors": len(plan.names),
        "plan in s": seconds,
        "certificate in s": certify_s,
        "runs in ms": runs_s * 1e3,
        "GB": plan.received_bytes / 1e9,
        "over bound": plan.received_bytes / plan.lower_bound_bytes,
        "sender over least": balance,
        "rounds": plan.rounds,
        "in step": plan.in_step,
        "stage by stage": staged[2] / step,
        "whole tensors": whole[2] / step,
        "aims": met(good),
    }
