"""The hooks of .pre-commit-config.yaml: nothing in the repository trips them, and faults do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFIG = ".pre-commit-config.yaml"
FAULTS = {
    "lint.py": "import os\n",
    "format.py": "x = [1,2]\n",
    "format.c": "int  f(void){return 1 ;}\n",
    "words.md": "This is teh word.\n",  # codespell:ignore teh
    "end.md": "no newline",
    "spaces.md": "a line with spaces at its end  \n",
}

pytest.importorskip("pre_commit")
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def run_git(folder: Path, *words: str) -> str:
    """Run git in a folder; return what it prints."""
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def run_hooks(folder: Path) -> subprocess.CompletedProcess[str]:
    """Make a folder a repository and run the hooks on all its files."""
    run_git(folder, "init", "--quiet")
    run_git(folder, "add", "--all")
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PRE_COMMIT_HOME": str(folder / ".git" / "hooks-home"),
    }
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--verbose"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.slow("make lint has checked format and lint")
def test_repository_passes_every_hook(tmp_path):
    try:
        files = run_git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except subprocess.CalledProcessError:
        pytest.skip("this is not a checkout")
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    done = run_hooks(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr + run_git(tmp_path, "diff")


def test_every_hook_finds_its_fault(tmp_path):
    for name in (CONFIG, "pyproject.toml", ".clang-format"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in FAULTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = run_hooks(tmp_path)
    hooks = (ROOT / CONFIG).read_text(encoding="utf-8").count("- id: ")
    assert done.stdout.count("...Failed") == hooks == len(FAULTS), done.stdout
