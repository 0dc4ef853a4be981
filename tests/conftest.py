"""What ``make test`` leaves to ``make test-all``, and that it says so; no test is held against a clock."""

from __future__ import annotations

import gc
import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

from tests.tiers import FULL, THOROUGH

settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")

os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
"""MPICH: a rank that waits sleeps. Ranks outnumber cores here, and other tests run beside them."""

LEFT = "left to make test-all: "


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse to run if workers would not keep what belongs together: every job would run twice."""
    if getattr(config.option, "loadgroup", False):
        apart = [i for i in items if i.get_closest_marker("xdist_group") and "@" not in i.nodeid]
        if apart:
            raise pytest.UsageError("this pytest and pytest-xdist do not keep groups together")


def pytest_collection_finish() -> None:
    """Let 8,600 tests and all modules out of the collector's sight: walking them took a fifth of the time."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked ``slow("why")``, unless everything is asked for.

    With ``full=True`` make test-all shows it by another of its commands: only FULL runs it.
    """
    mark = item.get_closest_marker("slow")
    if mark is not None:
        (why,) = mark.args
        if not (FULL if mark.kwargs.get("full") else THOROUGH):
            pytest.skip(f"{LEFT}{why}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left out, by reason."""
    left: Counter[tuple[str, str]] = Counter()
    for report in terminalreporter.getreports("skipped"):
        if isinstance(report.longrepr, tuple):
            _, _, said = report.longrepr
            _, found, why = said.partition(LEFT)
            if found:
                left[report.nodeid.partition("::")[0], why] += 1
    if left:
        terminalreporter.section("left to make test-all")
        for (file, why), n in sorted(left.items()):
            terminalreporter.write_line(f"{n:4d} of {file}: {why}")
