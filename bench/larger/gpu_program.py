"""``python -m bench larger program``: layers of a gated MLP on a GPU, as users write them, in less memory.

``@pgas.program(limit=, spill="host")`` on one rank, beside the same program with all weights there. What each
part of it is worth: as few weights put away as will do, memory by credits, lanes in order, one at a time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.gpu.copies import need_gpu
from bench.larger.blocks import N_NUMBERS, error_of, fill
from bench.problems.judge import WrongPlanError
from bench.report.figures import in_turn, met, quartiles, timed
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables
from redist import pgas
from redist.pgas.memory import DEVICE
from redist.pgas.programs.compile import limit_in_force
from redist.pgas.programs.limited import fit
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.pgas.programs.limited.report import RunTimeline, named_spans
from redist.pgas.programs.signature import sign
from redist.runtime.cuda.arrays import to_host, wait_for_gpu
from redist.runtime.lanes.vertex_table import LanePolicy
from redist.text.units import format_bytes

ALONE, CHOSEN, FEW = "all there", "programs", "as few put away as will do"
CREDITS, BEFORE = "by credits", "as few put away, by credits"
FIXED, ONE_BY_ONE = "fixed lanes, by credits", "one at a time"
POLICIES: dict[str, LanePolicy | None] = {
    CHOSEN: None,
    CREDITS: LanePolicy(),
    FIXED: LanePolicy("in order"),
    ONE_BY_ONE: LanePolicy("synchronous"),
}
"""Ways to run what was planned; the two others plan as programs did that counted bytes alone."""
SHARES = (0.5, 0.25)
FREE_AIM = 1.15
ERROR = 1e-2


def stack(x: Any, weights: list[dict[str, Any]]) -> Any:
    """Layers of a gated MLP."""
    xp: Any = pgas
    for w in weights:
        gate = x @ w["gate"]
        x = x + (gate / (1 + xp.exp(-gate)) * (x @ w["up"])) @ w["down"]
    return x


def arrays(layers: int, rows: int, width: int, hidden: int) -> tuple[Any, list[dict[str, Any]]]:
    """The input and the weights, in 16 bits on the GPU; the same whenever they are made."""
    numbers = np.random.default_rng(5).standard_normal(N_NUMBERS, dtype=np.float32)
    shapes = {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}

    def made(shape: tuple[int, int], first: int) -> Any:
        values = np.empty(shape, np.float16)
        fill(values, (numbers * np.float32(0.5 * shape[0] ** -0.5)).astype(np.float16), first)
        array: Any = pgas.asarray(values)
        return array.to_device("cuda")

    weights = [
        {name: made(shape, 7919 * (3 * k + n)) for n, (name, shape) in enumerate(shapes.items())}
        for k in range(layers)
    ]
    return made((rows, width), 0), weights


def run(
    layers: int = 8, rows: int = 8192, width: int = 4096, hidden: int = 11008, repeat: int = 9
) -> Tables:
    """Measure on one rank; needs CuPy."""
    need_gpu()
    start = on_ranks(1, one_thread=False)
    sizes = [layers, rows, width, hidden]
    return table(found_by(start, "bench.larger.gpu_program", sizes=sizes, repeat=repeat))


def planned(spill: str, limit: int, given: tuple[Any, Any]) -> tuple[LimitedProgram, list[Any]]:
    """The program within a limit, ready to run, and its arrays."""
    step: Any = pgas.program(limit=limit, spill=spill)(stack)
    signature = sign(given, {})
    within = step.compiler.find(signature, limit_in_force(step.options), runs=True)
    if not isinstance(within, LimitedProgram):
        raise WrongPlanError(f"not planned: {within}")
    return within, list(signature.arrays)


def measure(sizes: list[int], repeat: int, spill: str = "host") -> dict[str, Any]:
    """All ways within half and a quarter, in turn, after one turn whose results are compared."""
    given = arrays(*sizes)
    alone: Any = pgas.program(cache=False)(stack)
    want = to_host(alone(*given).tile)
    peak = pgas.program(limit=2**50, spill=spill)(stack).plan(*given).peak_bytes
    found = []
    for share in SHARES:
        for plan in (CHOSEN, FEW):
            gc.collect()
            others = (
                DEVICE.live_bytes
            )  # the limit counts all arrays: those of ``alone`` come on top
            fresh = arrays(*sizes)
            n_tried = fit.MOST_TRIED if plan == CHOSEN else 1
            with patch.multiple(fit, LEAST_TRIED=min(2, n_tried), MOST_TRIED=n_tried):
                within, own = planned(spill, others + int(share * peak), fresh)
                within.run(own)  # puts arguments away
            ways: dict[str, Callable[[], Any]] = {ALONE: lambda: alone(*given)}
            if plan == CHOSEN:
                ways |= {name: _way(within, own, policy) for name, policy in POLICIES.items()}
            else:
                ways |= {FEW: _way(within, own, None), BEFORE: _way(within, own, LanePolicy())}
            worst = max(error_of(to_host(way().tile), want) for way in ways.values())
            times = in_turn(ways, repeat, lambda way: timed(lambda: _done(way))[0])
            about = _about(within, ways[plan])
            say(f"larger: {share:.0%}: {about}")
            row = {"share": share, "plan": plan, "times": times, "about": about}
            found.append({**row, "wrong": bool(worst > ERROR)})
            del ways, within, own, fresh
    return {"sizes": sizes, "peak_bytes": peak, "rows": found}


def _way(within: LimitedProgram, own: list[Any], policy: LanePolicy | None) -> Callable[[], Any]:
    return lambda: within.run(own, policy=policy)


def _done(way: Callable[[], Any]) -> Any:
    found = way()
    wait_for_gpu()
    return found


def _about(within: LimitedProgram, way: Callable[[], Any]) -> str:
    """What was planned, and what one recorded run lost waiting for memory."""
    fitted = within.fitted
    assert fitted is not None
    run = within.run
    spans: list[Any] = []

    def recorded(*args: Any, **options: Any) -> Any:
        out = run(*args, **{**options, "records": True})
        spans.extend(within.spans)
        return out

    with patch.object(within, "run", recorded):
        way()
    told = RunTimeline((named_spans(fitted.graph, spans),))
    return (
        f"{len(fitted.away)} put away, {format_bytes(fitted.graph.moved_bytes['load'])} loaded, "
        f"limit {format_bytes(fitted.graph.places[0].limit_bytes or 0)}, modelled to lose "
        f"{fitted.clocked.waited_share:.1%} waiting for memory, lost {told.waited_s(0) / told.seconds:.1%} "
        f"in one run; {fitted.certificate}"
    )


def table(data: Mapping[str, Any]) -> Tables:
    """Every way beside all weights there, and how many times as fast as it programs are."""
    lines: list[Row] = []
    notes: list[str] = []
    for share in SHARES:
        ways: dict[str, Any] = {}
        of_alone: dict[str, Any] = {}
        for row in data["rows"]:
            if row["share"] != share:
                continue
            notes.append(f"{share:.0%}, {row['plan']}: {row['about']}")
            times = {name: np.array(one) for name, one in row["times"].items()}
            ways = times | ways  # all there: of the first
            of_alone = {name: one / times[ALONE] for name, one in times.items()} | of_alone
        chosen = float(np.median(of_alone[CHOSEN]))
        for name, one in ways.items():
            low, middle, high = quartiles(list(1e3 * one))
            gain = None if name == CHOSEN else float(np.median(of_alone[name])) / chosen
            aimed = name == FIXED and share == SHARES[0]
            lines.append(
                {
                    "memory": f"{share:.0%}", "way": name, "ms": middle,
                    "quartiles": f"{low:.1f}-{high:.1f}",
                    "of all there": float(np.median(of_alone[name])),
                    "way / programs": gain, "aim": FREE_AIM if aimed else None,
                    "reached": met(gain >= FREE_AIM) if aimed and gain is not None else None,
                }
            )  # fmt: skip
    layers, rows, width, hidden = data["sizes"]
    title = (
        f"{layers} layers of a gated MLP in f16, {rows} rows, {width} x {hidden}, as a program on one GPU; "
        f"{format_bytes(data['peak_bytes'])} without a limit"
    )
    wrong = any(row["wrong"] for row in data["rows"])
    return (Table.of("program", title, lines, *notes, keys=2, is_wrong=wrong),)
