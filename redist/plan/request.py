"""A request: everything that decides which plan is right."""

from __future__ import annotations

from dataclasses import dataclass

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.plan.topology import FLAT, Topology

OBJECTIVES = ("time", "bytes")
STRATEGIES = ("auto", "collectives", "no_permute", "direct")


@dataclass(frozen=True, slots=True)
class Request:
    """A question to the synthesizer; equal requests have equal plans."""

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
            raise RequestError(f"cannot turn {a} into {b}: shapes {a.shape} and {b.shape} differ")
        if a.dtype != b.dtype:
            raise RequestError(f"cannot turn {a} into {b}: dtypes {a.dtype} and {b.dtype} differ")
        for name, value, known in (
            ("objective", self.objective, OBJECTIVES),
            ("strategy", self.strategy, STRATEGIES),
        ):
            if value not in known:
                raise RequestError(f"unknown {name} {value!r}; known: {', '.join(known)}")
        limit = self.limit_bytes
        if limit is not None and (
            not isinstance(limit, int) or isinstance(limit, bool) or limit < 0
        ):
            raise RequestError(f"cannot use limit_bytes={limit!r}; need an int >= 0 or None")
