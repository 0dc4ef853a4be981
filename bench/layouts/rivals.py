"""What do other libraries receive and take for the same programs? Needs JAX, PyTorch, Heat or Dask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.problems.installed import why_absent
from bench.report.jobs import Start, found_by, in_one_process, on_ranks, on_torch_ranks
from bench.report.report import Report, Table, Value

DEVICES = 4
MOST_REPEATS = 7
KIB = 1024


def run(n: int = MOST_REPEATS, seed: int = 0) -> Report:
    """Measure with every library that is installed, one after another; nothing is random."""
    here = [name for name in RIVALS if why_absent(*RIVALS[name][0]) is None]
    if not here:
        line = "rivals: skipped, no other library is installed; pip install -e '.[peers]'"
        return Report("rivals", (Table(line, (), ()),))
    options = ["--devices", str(DEVICES), "--repeat", str(min(n, MOST_REPEATS))]
    return report([row for name in here for row in rows_of(name, options)])


def rows_of(name: str, options: Sequence[str]) -> list[dict[str, Any]]:
    """What a library's own program wrote."""
    _, module, start = RIVALS[name]
    found: list[dict[str, Any]] = found_by(start, f"measure {name}", module, *options)
    return found


def report(rows: Sequence[dict[str, Any]]) -> Report:
    """A table from what all of them wrote."""
    lines: list[tuple[Value, ...]] = []
    for row in rows:
        n_bytes = row["received_bytes"]
        times = [None] * 3 if row["seconds"] is None else [1e3 * s for s in row["seconds"]]
        low, middle, high = times
        received = None if n_bytes is None else n_bytes / KIB
        lines.append(
            (
                row["workload"], row["library"].partition(" ")[0], row["library"], received,
                row["transfers"], middle, low, high, row["cannot"],
            )
        )  # fmt: skip
    return Report(
        "rivals",
        (
            Table(
                f"The same programs by other libraries, {DEVICES} devices or processes",
                ("workload", "by", "version", "KiB", "transfers", "ms", "low", "high", "cannot"),
                tuple(lines),
                (
                    "arguments cut as redist's are, results as the library likes, compared with NumPy first; "
                    "medians and quartiles, one library after another",
                    "KiB received by all: JAX by the collectives of the compiled program, DTensor by those "
                    "that it issues, both as rings do them (all-gather g - 1 times what a device puts in, "
                    "reduce-scatter and all-to-all (g - 1) / g times, all-reduce twice that); Dask by what "
                    "its workers note; Heat does not tell",
                ),
                "programs",
                2,
            ),
        ),
    )


RIVALS: dict[str, tuple[tuple[str, ...], str, Start]] = {
    "jax": (("jax",), "bench.layouts.with_jax", in_one_process()),
    "dtensor": (("torch",), "bench.layouts.with_torch", on_torch_ranks(DEVICES)),
    "heat": (("heat",), "bench.layouts.with_heat", on_ranks(DEVICES, one_thread=False)),
    "dask": (("dask", "distributed"), "bench.layouts.with_dask", in_one_process()),
}
"""By name: modules that it needs, its program, and how that is started."""
