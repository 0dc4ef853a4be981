"""What do other libraries receive and take for the same programs? Needs JAX, PyTorch, Heat or Dask."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.problems.installed import why_absent
from bench.report.report import Report, Table, Value
from redist.launch.launcher import find_launcher, launch
from redist.launch.outside import environment
from tests.programs.torch.spawn import run as launch_torch

DEVICES = 4
MOST_REPEATS = 7
LIMIT_S = 900.0
KIB = 1024
ROOT = Path(__file__).parents[2]
Start = Callable[[list[str]], object]


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
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / f"{name}.json"
        start(["-m", module, *options, "--json", str(stored)])
        if not stored.exists():
            raise RuntimeError(f"cannot measure {name}: its program ended without figures")
        found: list[dict[str, Any]] = json.loads(stored.read_text(encoding="utf-8"))
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


def _in_one_process(words: list[str]) -> None:
    subprocess.run([sys.executable, *words], cwd=ROOT, env=environment(), timeout=LIMIT_S)


def _on_torch_ranks(words: list[str]) -> None:
    done = launch_torch(words, DEVICES, LIMIT_S)
    if any(done.statuses):
        raise RuntimeError(f"cannot measure DTensor: {done.statuses}\n{done.output}")


def _on_mpi_ranks(words: list[str]) -> None:
    launch(find_launcher(), DEVICES, words)


RIVALS: dict[str, tuple[tuple[str, ...], str, Start]] = {
    "jax": (("jax",), "bench.layouts.with_jax", _in_one_process),
    "dtensor": (("torch",), "bench.layouts.with_torch", _on_torch_ranks),
    "heat": (("heat",), "bench.layouts.with_heat", _on_mpi_ranks),
    "dask": (("dask", "distributed"), "bench.layouts.with_dask", _in_one_process),
}
"""By name: modules that it needs, its program, and how that is started."""
