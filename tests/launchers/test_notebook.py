"""Cells of IPython on ranks of a notebook, and Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from redist.launch.launcher import environment
from tests.programs.launch import one_worker

pytestmark = one_worker
CELLS = """
from IPython.core.interactiveshell import InteractiveShell
import redist

shell = InteractiveShell.instance()
ranks = redist.launch(2)
assert shell.run_cell("%%ranks\\nx = comm.rank + 5\\nx").success
sums = "from redist import pgas\\nint(pgas.sum(pgas.arange(10, type='{x}')))"
assert shell.run_cell("%%ranks\\n" + sums).success
done = shell.run_cell("%%ranks\\nassert comm.rank == 0")
assert isinstance(done.error_in_exec, redist.PeerError), done
ranks.close()
"""
INTERRUPTED = """
import redist

ranks = redist.launch(2)
try:
    ranks.run("import time; print('running', flush=True); time.sleep(60)")
except KeyboardInterrupt:
    print("interrupted", flush=True)
ranks.run("print('alive', comm.allreduce(1))")
ranks.close()
"""


def test_a_cell_with_the_magic_runs_on_all_ranks(tmp_path: Path) -> None:
    program = tmp_path / "cells.py"
    program.write_text(CELLS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for line in ("[0] 5", "[1] 6", "[0] 45", "[1] 45"):
        assert line in done.stdout.splitlines(), done.stdout


def test_an_interrupt_reaches_the_ranks_and_they_go_on(tmp_path: Path) -> None:
    program = tmp_path / "interrupted.py"
    program.write_text(INTERRUPTED, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, program], env=environment(), stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        assert {started.stdout.readline() for _ in range(2)} == {"[0] running\n", "[1] running\n"}
        started.send_signal(signal.SIGINT)
        said = started.stdout.read()
        assert started.wait(60) == 0
    assert said.splitlines()[0] == "interrupted"
    assert sorted(said.splitlines()[1:]) == ["[0] alive 2", "[1] alive 2"]
