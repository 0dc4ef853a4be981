"""Other libraries as contenders: the same work in the same run, where each can express it.

``redist bench -n 8 --peers bench.peers``, or ``mpirun -n 8 python -m bench run --peers bench.peers``; those
that are not installed say so. ``pip install -e '.[peers]'`` brings all of them.
"""

from __future__ import annotations

from bench.peers.dtensor import DTensorGloo
from bench.peers.heat import HeatResplit
from bench.peers.jax import JaxJit, JaxPut
from bench.peers.mpi4py_fft import Mpi4pyFft
from redist.measure.contenders.registry import Ways

CONTENDERS: dict[str, Ways] = {
    "mpi4py-fft": (Mpi4pyFft,),
    "heat": (HeatResplit,),
    "dtensor": (DTensorGloo,),
    "jax-jit": (JaxJit,),
    "jax-put": (JaxPut,),
}
