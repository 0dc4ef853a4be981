"""Start a program of this folder on several ranks of ``torch.distributed``: plain processes, a time limit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.programs.torch import spawn

LIMIT_S = float(os.environ.get("REDIST_TEST_LIMIT_S", "100"))
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs PyTorch: make frameworks installs it and runs this"
)
needs_cuda = pytest.mark.skipif(
    not Path("/dev/nvidiactl").exists(), reason="needs a GPU that PyTorch can use"
)
one_worker = pytest.mark.xdist_group("torch")


def run(
    name: str, ranks: int, *args: str, limit_s: float = LIMIT_S, variables: Mapping[str, str] = {}
) -> spawn.Ended:
    """Run ``tests.programs.torch.<name>`` on so many ranks to its end, or to the limit."""
    limits = {"REDIST_TEST_LIMIT_S": str(0.9 * limit_s), **variables}
    return spawn.run(["-m", f"tests.programs.torch.{name}", *args], ranks, limit_s, limits)


def must_pass(
    name: str, ranks: int, *args: str, limit_s: float = LIMIT_S, variables: Mapping[str, str] = {}
) -> str:
    """What a program printed, whose ranks all ended well."""
    done = run(name, ranks, *args, limit_s=limit_s, variables=variables)
    assert set(done.statuses) == {0}, f"{done.statuses}\n{done.output}"
    return done.output
