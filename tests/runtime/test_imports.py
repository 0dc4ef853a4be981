"""What a call on a machine without a GPU loads."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import numpy as np
import redist

mesh = redist.Mesh(x=1)
moved = redist.redistribute(np.arange(4.0), "f64[4{x}]", "f64[4]", mesh=mesh)
assert moved.tolist() == [0, 1, 2, 3]
with redist.Transfer("f64[4{x}]", "f64[4]", mesh=mesh) as transfer:
    transfer.start(np.arange(4.0))
    assert transfer.wait().tolist() == [0, 1, 2, 3]
print(*(name for name in sys.modules if name.startswith("redist.runtime.cuda") or name == "cupy"))
"""


def test_arrays_in_memory_load_nothing_for_gpus() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == []
