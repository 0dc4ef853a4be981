"""``mpirun -n 8 python -m redist.measure``: the benchmark inside an MPI job."""

from __future__ import annotations

import sys

from redist.measure.job import main

if __name__ == "__main__":
    sys.exit(main())
