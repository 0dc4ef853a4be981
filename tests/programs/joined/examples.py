"""Run the examples one after another, as they are, and say what they print.

Under mpirun it is a program: ``mpirun -n 2 python -m tests.programs.joined.examples``. In ranks that were
started another way ``python -m redist.cli join -m tests.programs.joined.examples`` runs it, or a Ray actor or
a Dask worker calls :func:`run_all`.
"""

from __future__ import annotations

import gc
import json
import runpy
import sys
from contextlib import redirect_stdout
from io import StringIO

from mpi4py import MPI

from tests.test_examples import ROOT, SMALL


def run_all() -> dict[str, str]:
    """The result that each example prints on this rank; tables of times are left out."""
    found = {}
    before = sys.argv
    for name, (options, said) in SMALL.items():
        printed = StringIO()
        sys.argv = [f"{name}.py", *options]
        with redirect_stdout(printed):
            runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        gc.collect()
        text = printed.getvalue()
        head = f"{said.partition(':')[0]}:"
        found[name] = "\n".join(line for line in text.splitlines() if line.startswith(head))
        assert found[name] or MPI.COMM_WORLD.rank > 0, text
    sys.argv = before
    return found


if __name__ == "__main__":
    told = MPI.COMM_WORLD.gather(run_all())
    if told is not None:
        print("PRINTED", json.dumps(told), flush=True)
