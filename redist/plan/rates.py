"""All built-in rates: the costs of a byte, a message, a step and an element if nothing was measured.

Times are whole picoseconds; those of a byte or an element are femtoseconds. All other modules take costs from
here, from a file of ``redist calibrate``, or from what ranks measure (:mod:`redist.runtime.ranks.links`).
The figures are round on purpose: plans compare them with each other, and should not change with each machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from redist.plan.topology import Level, Topology

KINDS = ("product", "map", "reduce", "copy")
"""Classes of operations: contractions, element by element, aggregations, elements put elsewhere."""


@dataclass(frozen=True, slots=True)
class OperationCost:
    """The cost of a multiply-add of a product, or of an element of another operation, in a dtype."""

    kind: str
    dtype: str
    elem_fs: int


@dataclass(frozen=True, slots=True)
class DeviceCosts:
    """The costs of computing on a device, in femtoseconds: an element of a join, and a byte of memory.

    ``operations`` has the cost of an element by kind of operation and dtype; all others cost ``elem_fs``.

    >>> costs = DeviceCosts(1000, 100, (OperationCost("product", "f32", 50),))
    >>> costs.of("product", "f32"), costs.of("product", "f64"), costs.of("map", "f32")
    (50, 1000, 1000)
    """

    elem_fs: int = 1000
    byte_fs: int = 100
    operations: tuple[OperationCost, ...] = ()

    def of(self, kind: str, dtype: str) -> int:
        """Femtoseconds of an element of this kind of operation."""
        for one in self.operations:
            if (one.kind, one.dtype) == (kind, dtype):
                return one.elem_fs
        return self.elem_fs


def _costs(
    product: dict[str, int], other: dict[str, int], elem_fs: int, byte_fs: int
) -> DeviceCosts:
    kinds = {"product": product, "map": other, "reduce": other, "copy": other}
    every = ((kind, name, fs) for kind, costs in kinds.items() for name, fs in costs.items())
    return DeviceCosts(elem_fs, byte_fs, tuple(OperationCost(*one) for one in every))


# Computing. ``redist calibrate`` measures it on a machine.

GPU = _costs(
    {"bf16": 4, "f16": 4, "f32": 50, "f64": 50},
    {"bf16": 100, "f16": 100, "f32": 200, "f64": 400},
    elem_fs=1000,
    byte_fs=250,
)
"""A GPU: 20 (f64) to 250 (bf16) 10^12 multiply-adds a second, 4 TB/s. Rough, of an H200."""
CPU = _costs(
    {"bf16": 30_000, "f16": 30_000, "f32": 30_000, "f64": 60_000},
    {"f32": 500_000, "f64": 1_000_000},
    elem_fs=1_000_000,
    byte_fs=100_000,
)
"""A core: 17 (f64) 10^9 multiply-adds and 10^9 elements a second, 10 GB/s. Rough, not measured."""


def device_costs(on_device: bool) -> DeviceCosts:
    """The costs of computing on a GPU, or on one core of a CPU."""
    return GPU if on_device else CPU


# Moving between ranks of MPI. Links between nodes are measured at the first large transfer.

FLAT = Topology((Level("all", None, 1_000_000, 100_000),))
"""If nothing is known of a machine: every pair of ranks at 1 us and 10 GB/s. A convention."""
STEP_PS = 20_000_000
"""A step: ranks meet. 8 ranks on a node take 18 us for it (docs/decisions/on-the-host.md)."""
NEAR_BYTE_FS = 100_000
"""A byte between ranks of one node is a copy: 10 GB/s. Rough; ``redist calibrate`` measures it."""
ONE_NODE = Topology((Level("node", None, 0, NEAR_BYTE_FS),), STEP_PS)
"""Ranks of one node: messages are copies, only bytes and steps cost."""
PASSED_BYTE_FS = 400_000
"""Of several nodes, a byte that passes through one's memory once more, which all its ranks share and where
its tile is new: 2.5 GB/s of each. From the cluster in one machine (docs/benchmarks/cluster.md)."""
FAR_LEVEL = Level("network", None, 2_000_000, 100_000, 100_000)
"""Between nodes, until it is measured: 2 us, 10 GB/s of a rank, and of a link that a node's ranks share."""

# Moving by other systems.

TORCH_MESSAGES = Topology((Level("network", None, 20_000_000, 500_000),), 100_000_000)
"""By messages of a group of PyTorch: 20 us each, 2 GB/s, 100 us a step. Rough, of Gloo on one machine."""
XLA = Topology((Level("all", None, 20_000_000, 1_000_000),), 300_000_000)
"""By collectives of XLA: 20 us a message, 1 GB/s, 0.3 ms a step. Rough, of 8 CPU devices in one process
(docs/benchmarks/xla.md has what plans take that are chosen so)."""
XLA_CALL_PS = 150_000_000
"""A collective that XLA runs, by itself, on the same devices."""
XLA_BYTE_PS = 150
"""A byte that XLA copies in order, on the same devices."""
XLA_LOOSE_PS = 900
"""An element that XLA copies by itself, beside its bytes, on the same devices."""

# Loading and storing.

FILE_BYTE_FS = 1_000_000
"""A byte between memory and a spill file: 1 GB/s of a rank; 4.5 GB/s by all (docs/benchmarks/larger.md)."""
HOST_BYTE_FS = 20_000
"""A byte between a GPU and pinned memory: 50 GB/s; 54 GB/s on an H200 (docs/benchmarks/larger.md)."""

# Packing between a GPU and the host, on an H200. ``python -m bench gpu packs`` measures all of these.

LAUNCH_PS = 30_000_000
"""A kernel that packs, from the call until the host knows of its end: 30 us, most of it Python's."""
START_PS = 15_000_000
"""A copy between a GPU and the host, likewise: 15 us."""
PINNED_WORD_FS = 21_000
"""A byte that a kernel writes to pinned memory, or reads there: 48 GB/s, a little less than a copy's."""
PAGEABLE_BYTE_FS = 80_000
"""A byte between a GPU and memory that is not pinned: 12.5 GB/s."""
