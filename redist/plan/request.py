"""A request: everything that determines which plan is right."""

from __future__ import annotations

from dataclasses import dataclass

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.plan.rates import FLAT
from redist.plan.topology import Topology
from redist.text.units import limit_from

OBJECTIVES = ("time", "bytes")
STRATEGIES = ("auto", "collectives", "no_permute", "direct")


@dataclass(frozen=True, slots=True)
class Request:
    """The input of the search for a plan; equal requests have equal plans."""

    source: ArrayType
    target: ArrayType
    limit_bytes: int | None = None
    objective: str = "time"
    strategy: str = "auto"
    donate: bool = False
    topology: Topology = FLAT

    def __post_init__(self) -> None:
        a, b = self.source, self.target
        if a.shape != b.shape:
            raise RequestError(
                f"cannot turn {a} into {b}: shapes {a.shape} and {b.shape} differ; a move changes the layout "
                "only, give both ends one shape"
            )
        if a.dtype != b.dtype:
            raise RequestError(
                f"cannot turn {a} into {b}: dtypes {a.dtype} and {b.dtype} differ; a move changes the layout "
                "only, use astype first"
            )
        devices = max(a.mesh.n_devices, b.mesh.n_devices)
        if a.global_elems * devices >= 2**62:
            raise RequestError(
                f"cannot plan {a} on {devices} devices: elements times devices must stay below 2^62"
            )
        for name, value, known in (
            ("objective", self.objective, OBJECTIVES),
            ("strategy", self.strategy, STRATEGIES),
        ):
            if value not in known:
                raise RequestError(f"unknown {name} {value!r}; known: {', '.join(known)}")
        if not isinstance(self.donate, bool):
            raise RequestError(f"cannot use donate={self.donate!r}; need True or False")
        if not isinstance(self.topology, Topology):
            raise RequestError(f"cannot use topology={self.topology!r}; need a Topology")
        object.__setattr__(self, "limit_bytes", limit_from(self.limit_bytes))
