"""A scene in which ranks turn rows into columns, and what can be done wrong in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist.errors import RedistError, RequestError

SOON_S = 20.0


@dataclass
class Scene:
    """Four or more ranks that turn rows into columns, and what they hold."""

    comm: MPI.Comm
    options: dict[str, Any]
    local: Any = field(init=False)
    out: Any = field(init=False)

    def __post_init__(self) -> None:
        size = self.comm.size
        self.mesh = redist.Mesh(x=size)
        self.rows, self.columns = f"f32[{2 * size}{{x}}, {size}]", f"f32[{2 * size}, {size}{{x}}]"
        self.local = np.arange(2.0 * size, dtype="f4").reshape(2, size) + 100 * self.comm.rank
        self.out = np.full((2 * size, 1), -1, "f4")

    @property
    def rank(self) -> int:
        """This rank."""
        return self.comm.rank

    def transfer(self, source: Any = None, target: Any = None, **options: Any) -> redist.Transfer:
        """A transfer, rows to columns unless told otherwise."""
        options = {"mesh": self.mesh, "timeout_s": SOON_S, **self.options, **options}
        return redist.Transfer(source or self.rows, target or self.columns, self.comm, **options)

    def redistribute(self, local: Any, source: Any = None, target: Any = None, **more: Any) -> Any:
        """The same in one call."""
        more = {"mesh": self.mesh, "timeout_s": SOON_S, **more}
        return redist.redistribute(
            local, source or self.rows, target or self.columns, self.comm, **more
        )

    def on(self, *ranks: int) -> bool:
        """Whether this is one of the ranks that do it wrong."""
        return self.rank in ranks


Act = Callable[[Scene], Any]


@dataclass(frozen=True)
class Fault:
    """What is done, and words that the error of every rank must have."""

    name: str
    act: Act
    says: tuple[str, ...]
    kind: type[RedistError] = RequestError


FAULTS: list[Fault] = []


def fault(*says: str, kind: type[RedistError] = RequestError) -> Callable[[Act], Act]:
    """Register a fault."""

    def keep(act: Act) -> Act:
        FAULTS.append(Fault(act.__name__, act, says, kind))
        return act

    return keep
