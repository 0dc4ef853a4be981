"""What stacks on a GPU took as a table: every way beside all weights there, limited beside every way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench.report.figures import met, quartiles
from bench.report.report import Report, Table, Value
from redist.text.units import format_bytes

ALONE, LIMITED, ONE_BY_ONE, BY_HAND = "all there", "limited", "one at a time", "two buffers"
TORCH, TORCH_PINNED, TORCH_ALONE = "torch .to", "torch .to, pinned", "torch all there"
AIMS = {ALONE: 1.5, BY_HAND: 1.05, TORCH: 1 / 1.3, TORCH_PINNED: 1 / 1.3}
"""What the time of a limited run should be at most, over others'."""


def report_of(rows: Sequence[Mapping[str, Any]], libraries: str) -> Report:
    """A report of stacks, on however many ranks."""
    lines = [line for row in rows for line in _lines(row)]
    about = [
        f"{row['ranks']} ranks, {row['stack']}: {row['layers']} layers, weights of "
        f"{format_bytes(row['weight_bytes'])}, limit {format_bytes(row['limit_bytes'])} of "
        f"{format_bytes(row['peak_bytes'])}, CuPy's pool grew by {format_bytes(row['pool_grew_bytes'])}; "
        f"link {row['link_bytes_per_s'] / 1e9:.1f} GB/s alone, "
        f"{row['link_together_bytes_per_s'] / 1e9:.1f} by all ranks; computing / loading "
        f"{row['compute_over_io']:.1f}"
        for row in rows
    ]
    table = Table(
        f"stacks of layers within a quarter of their memory, {rows[0]['rows']} rows of f32 a rank, "
        f"ranks share one GPU; {libraries}",
        (
            "ranks",
            "stack",
            "way",
            "ms",
            "quartiles",
            "of all there",
            "limited / way",
            "aim",
            "reached",
        ),
        tuple(lines),
        (*about, "results are compared first; ratios are medians of those of every turn"),
        "gpu",
        3,
    )
    return Report("larger", (table,))


def _lines(row: Mapping[str, Any]) -> list[tuple[Value, ...]]:
    times = {name: np.array(one) for name, one in row["times"].items()}
    out: list[tuple[Value, ...]] = []
    for name, one in times.items():
        low, middle, high = quartiles(list(1e3 * one))
        ratio = None if name == LIMITED else float(np.median(times[LIMITED] / one))
        aim = AIMS.get(name)
        out.append(
            (
                row["ranks"], row["stack"], name, middle, f"{low:.1f}-{high:.1f}",
                float(np.median(one / times[ALONE])), ratio, aim,
                None if aim is None or ratio is None else met(ratio <= aim),
            )
        )  # fmt: skip
    return out
