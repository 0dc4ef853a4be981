"""How long does planning a refit of a whole model take, and what would other schedules take?"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import redist
from bench.refits.files import read_sides
from bench.refits.models import MODELS, served, trained
from bench.report.figures import met, timed
from bench.report.jobs import SkippedError
from bench.report.report import Row, Table, Tables
from redist.refits.table import schedules
from redist.text.progress import track

TP = {"Qwen3-235B": 8, "DeepSeek-V3": 16, "Kimi-K2": 16}
PLAN_S, RUNS_S, BALANCE = 5.0, 0.2, 1.05
RANKS_LOOKED_AT = 5
MODEL_FILE = ".model.json"


def run(limit: str = "2GiB", models: str = ",".join(MODELS), configs: str = "") -> Tables:
    """Plan three models from 256 training to 128 inference ranks; and files as nccl_m2n has them.

    limit: what a rank sends and receives in a round; models: some of these; configs: a folder with
    ``*.model.json`` and system files, anywhere in it, whose names begin with the model's.
    """
    files = _files_in(Path(configs)) if configs else []
    chosen = [name for name in MODELS if name in models.split(",")]
    asked = [(name, by, fsdp) for name in chosen for by in (False, True) for fsdp in (False, True)]
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
        "direct %: the share of the bytes that the judge found to come from a rank that has them, straight "
        "into their place",
        f"GiB a round: the most that a rank sends and receives in one, limit {limit}; in step: synchronised "
        "rounds over the busiest rank",
        "stage by stage, whole tensors: bytes in step over this plan's; whole tensors are taken to arrive "
        "at all ranks at once, without rounds, whoever sends them",
        f"aims: planned in {PLAN_S:g} s, runs in {RUNS_S:g} s, received = bound, all of it direct, busiest "
        f"sender {BALANCE} x the least, limit kept",
    )
    tables = [Table.of("planning", "Refits of whole models", rows, *notes, keys=1)]
    if files:
        note = "columns and aims are those of whole models; ranks and cuts are those of the system file"
        rows = []
        for model, system in files:
            row = dict(_row(system.stem, *read_sides(model, system), limit))
            name = model.name.removesuffix(MODEL_FILE)
            rows.append({"refit": row.pop("refit"), "model": name, **row})
        title = "Refits of nccl_m2n's model and system files"
        tables.append(Table.of("files", title, rows, note, keys=1))
    return tuple(tables)


def _files_in(folder: Path) -> list[tuple[Path, Path]]:
    """Model files with the system files whose names begin alike."""
    found = []
    for model in sorted(folder.rglob(f"*{MODEL_FILE}")):
        systems = sorted(folder.rglob(f"{model.name.partition('-')[0]}-*.json"))
        found += [(model, one) for one in systems if not one.name.endswith(MODEL_FILE)]
    if not found:
        raise SkippedError(f"there are no model and system files in {folder.name!r}")
    return found


def _row(label: str, source: redist.Weights, target: redist.Weights, limit: str) -> Row:
    seconds, plan = timed(
        lambda: redist.refit(source, target, limit_bytes=limit), time.process_time
    )
    certify_s, certificate = timed(lambda: plan.certificate, time.process_time)
    runs_s = max(
        timed(partial(plan.runs, rank, sends=sends), time.process_time)[0]
        for side, sends in ((target, False), (source, True))
        for rank in side.ranks[:: max(1, len(side.ranks) // RANKS_LOOKED_AT)]
    )
    _, staged, whole = schedules(plan)
    step = int(plan.turns.busiest.sum())
    balance = max(plan.sent_bytes.values()) / max(1, plan.least_sent_bytes)
    is_right = certificate.verdict == "proved"
    direct = certificate.received_bytes / plan.received_bytes if is_right else 0.0
    kept = plan.limit_bytes is None or certificate.staging_bytes <= plan.limit_bytes
    good = (
        seconds <= PLAN_S and runs_s <= RUNS_S and balance <= BALANCE and kept and direct == 1.0
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
        "direct %": 100 * direct,
        "sender over least": balance,
        "rounds": plan.rounds,
        "GiB a round": certificate.staging_bytes / 2**30,
        "in step": plan.in_step,
        "stage by stage": staged[2] / step,
        "whole tensors": whole[2] / step,
        "aims": met(good),
    }
