"""Other libraries, an adapter for each: contenders of ``redist bench``, and runners of whole programs.

``redist bench -n 8 --peers bench.peers``, or ``mpirun -n 8 python -m bench run --peers bench.peers``; those
that are not installed say so. ``pip install -e '.[peers]'`` brings all of them.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """``CONTENDERS``, once they are asked for: adapters of programs need no MPI."""
    if name != "CONTENDERS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bench.peers.heat import HeatResplit
    from bench.peers.jax import JaxJit, JaxPut
    from bench.peers.mpi4py_fft import Mpi4pyFft
    from bench.peers.torch import DTensorGloo

    ways = {"mpi4py-fft": Mpi4pyFft, "heat": HeatResplit, "dtensor": DTensorGloo}
    return {key: (way,) for key, way in {**ways, "jax-jit": JaxJit, "jax-put": JaxPut}.items()}
