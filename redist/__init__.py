"""redist: move distributed arrays from any layout to any other, planned, proved and fast.

>>> import redist
>>> mesh = redist.Mesh(x=2, y=4)
>>> plan = redist.synthesize("f32[1024{x}, 512{y}]", "f32[1024, 512{y,x}]", mesh=mesh)
>>> [step.op for step in plan.steps]
['all_to_all']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redist.errors import (
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    CheckError,
    ConversionError,
    DimError,
    GatherWarning,
    GradientError,
    IndexKeyError,
    LaunchError,
    LayoutError,
    MatrixError,
    MemoryLimitError,
    MissingNameError,
    NoPlanError,
    ParseError,
    PeerError,
    PlanFormatError,
    ReadError,
    RedistError,
    RequestError,
    ShapeError,
    SpillError,
    StepError,
    TopologyError,
    TransferError,
    WholeArrayError,
    WriteError,
)
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.scalapack import from_scalapack, to_scalapack
from redist.layout.specs_and_placements import (
    from_partition_spec,
    from_placements,
    to_partition_spec,
    to_placements,
)
from redist.layout.tiles import box_of, check_blocks, same_layout, spans_of
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.planner import adjoint, synthesize
from redist.version import __version__

if TYPE_CHECKING:
    from redist import jax, pgas, torch
    from redist.check.runs import check_runs
    from redist.doctor.diagnosis import diagnose
    from redist.graph.nodes import ProgramGraph
    from redist.judge.proof import prove
    from redist.judge.simulation import simulate
    from redist.launch.local import launch
    from redist.measure.calibrate import calibrate
    from redist.pgas.programs.explain import explain
    from redist.pgas.spill.memory_limit import memory_limit
    from redist.pgas.watch.trace import trace
    from redist.refits.plan import RefitPlan, refit
    from redist.refits.weights import Weights
    from redist.runtime.datatypes.pack import pack, unpack
    from redist.runtime.ranks.joining import join
    from redist.runtime.redistribute import prepare, redistribute
    from redist.runtime.transfer import Transfer
    from redist.store.chunks.rechunk import plan_rechunk, rechunk
    from redist.store.load import load
    from redist.store.save import save
    from redist.store.saver import Saver
    from redist.store.stored import stored

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "ArrayType",
    "CaptureError",
    "CheckError",
    "ConversionError",
    "DimError",
    "GatherWarning",
    "GradientError",
    "IndexKeyError",
    "LaunchError",
    "LayoutError",
    "MatrixError",
    "MemoryLimitError",
    "Mesh",
    "MissingNameError",
    "NoPlanError",
    "ParseError",
    "PeerError",
    "Plan",
    "PlanFormatError",
    "ProgramGraph",
    "ReadError",
    "RedistError",
    "RefitPlan",
    "RequestError",
    "Saver",
    "ShapeError",
    "SpillError",
    "StepError",
    "Topology",
    "TopologyError",
    "Transfer",
    "TransferError",
    "Weights",
    "WholeArrayError",
    "WriteError",
    "__version__",
    "adjoint",
    "box_of",
    "calibrate",
    "check_blocks",
    "check_runs",
    "diagnose",
    "explain",
    "from_partition_spec",
    "from_placements",
    "from_scalapack",
    "jax",
    "join",
    "launch",
    "load",
    "memory_limit",
    "pack",
    "pgas",
    "plan_rechunk",
    "prepare",
    "prove",
    "rechunk",
    "redistribute",
    "refit",
    "same_layout",
    "save",
    "simulate",
    "spans_of",
    "stored",
    "synthesize",
    "to_partition_spec",
    "to_placements",
    "to_scalapack",
    "torch",
    "trace",
    "unpack",
]


_LAZY = {
    "ProgramGraph": "redist.graph.nodes",
    "RefitPlan": "redist.refits.plan",
    "Saver": "redist.store.saver",
    "Transfer": "redist.runtime.transfer",
    "Weights": "redist.refits.weights",
    "calibrate": "redist.measure.calibrate",
    "check_runs": "redist.check.runs",
    "diagnose": "redist.doctor.diagnosis",
    "explain": "redist.pgas.programs.explain",
    "join": "redist.runtime.ranks.joining",
    "load": "redist.store.load",
    "memory_limit": "redist.pgas.spill.memory_limit",
    "pack": "redist.runtime.datatypes.pack",
    "prove": "redist.judge.proof",
    "plan_rechunk": "redist.store.chunks.rechunk",
    "prepare": "redist.runtime.redistribute",
    "rechunk": "redist.store.chunks.rechunk",
    "redistribute": "redist.runtime.redistribute",
    "refit": "redist.refits.plan",
    "save": "redist.store.save",
    "simulate": "redist.judge.simulation",
    "stored": "redist.store.stored",
    "trace": "redist.pgas.watch.trace",
    "unpack": "redist.runtime.datatypes.pack",
}

_NEED_MPI = (
    "Saver",
    "Transfer",
    "explain",
    "load",
    "memory_limit",
    "pack",
    "pgas",
    "plan_rechunk",
    "prepare",
    "rechunk",
    "redistribute",
    "save",
    "trace",
    "unpack",
)
"""Without an MPI library these say so first, in one line."""


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import what needs MPI, Z3 or another framework when it is first used."""
    if name in _NEED_MPI:
        try:
            import_module("redist.runtime.mpi_library")
        except LaunchError as problem:
            if name != "redistribute":
                raise
            raise LaunchError(
                f"{problem}; for DTensors use redist.torch.redistribute, for arrays of JAX "
                "redist.jax.redistribute: neither needs MPI"
            ) from None
    if name in ("jax", "launch", "pgas", "torch"):
        return import_module(f"redist.{name}")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'redist' has no attribute {name!r}")
