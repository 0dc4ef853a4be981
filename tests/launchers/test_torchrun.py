"""Ranks that torchrun starts: the examples as they are, and a mistake."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from redist.launch.launcher import environment
from tests.launch.plain import ROOT
from tests.launchers.expected import COUNTS, JOIN, THREADS, must_equal_mpirun, python, results_of
from tests.programs.launch import one_worker

pytestmark = one_worker
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node")
BESIDE_TORCH = """
import redist, torch, torch.distributed as dist
dist.init_process_group("gloo")
comm = redist.join()
mine = torch.ones(3) * comm.rank
dist.all_reduce(mine)
assert mine.tolist() == [comm.allreduce(comm.rank)] * 3
assert dist.get_rank() == comm.rank
print(f"rank {comm.rank} well", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("size", COUNTS)
def test_examples_print_what_they_print_under_mpirun(size: int) -> None:
    must_equal_mpirun(results_of(python(*TORCHRUN, str(size), "-m", "--", *JOIN)), size)


def test_ranks_are_those_of_torch(tmp_path: Path) -> None:
    program = tmp_path / "beside_torch.py"
    program.write_text(BESIDE_TORCH, encoding="utf-8")
    done = subprocess.run(
        python(*TORCHRUN, "2", str(program)),
        cwd=ROOT,
        env={**environment(), **THREADS},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert all(f"rank {rank} well" in done.stdout for rank in range(2)), done
