"""redist: move distributed arrays from any layout to any other, planned, proved and fast.

>>> import redist
>>> mesh = redist.Mesh(x=2, y=4)
>>> plan = redist.synthesize("f32[1024{x}, 512{y}]", "f32[1024, 512{y,x}]", mesh=mesh)
>>> [step.op for step in plan.steps]
['all_to_all']
"""

from redist.errors import (
    CheckError,
    ConversionError,
    LayoutError,
    NoPlanError,
    ParseError,
    PlanFormatError,
    RedistError,
    RequestError,
    StepError,
    TopologyError,
)
from redist.layout.array_type import ArrayType
from redist.layout.interop import (
    from_partition_spec,
    from_placements,
    to_partition_spec,
    to_placements,
)
from redist.layout.mesh import Mesh
from redist.layout.tiles import same_layout
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.planner import synthesize

__version__ = "0.1.0"

__all__ = [
    "ArrayType",
    "CheckError",
    "ConversionError",
    "LayoutError",
    "Mesh",
    "NoPlanError",
    "ParseError",
    "Plan",
    "PlanFormatError",
    "RedistError",
    "RequestError",
    "StepError",
    "Topology",
    "TopologyError",
    "__version__",
    "from_partition_spec",
    "from_placements",
    "same_layout",
    "synthesize",
    "to_partition_spec",
    "to_placements",
]
