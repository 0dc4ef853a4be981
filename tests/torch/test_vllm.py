"""The plug-in for vLLM beside a fake of it: values, a trainer that dies, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from tests.programs.torch.launch import needs_torch, one_worker, run

CHECKS = ("ranks_know_their_own", "refused", "values", "killed")
pytestmark = [needs_torch, one_worker]
ROOT = Path(__file__).resolve().parents[2]


def test_two_trainers_and_two_workers() -> None:
    """Values, refusals, and a trainer that is killed: its workers keep the version that they had."""
    done = run("serving", 4, limit_s=200)
    assert done.statuses == (0, -9, 0, 0), f"{done.statuses}\n{done.output}"
    assert done.output.count("well ") == len(CHECKS), done.output


def test_the_module_is_there_without_vllm() -> None:
    program = "import redist.torch.vllm as v; print(v.RedistInit.__mro__[1].__name__, v.BACKEND)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["WeightTransferInitInfo", "redist"], done.stderr
    program = "import redist.torch.vllm as v; v.register()"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert "No module named 'vllm'" in done.stderr


def test_vllm_finds_the_plug_in() -> None:
    found = [one for one in entry_points(group="vllm.general_plugins") if one.name == "redist"]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'redist = "redist.torch.vllm:register"' in text.partition('"vllm.general_plugins"]')[2]
    assert all(one.value == "redist.torch.vllm:register" for one in found)
