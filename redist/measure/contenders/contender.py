"""A contender: one way to do the work of a case, ready to run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from mpi4py import MPI

from redist.layout.array_type import ArrayType
from redist.layout.tiles import indices_of, tile_shapes
from redist.measure import memory
from redist.measure.cases import Case
from redist.measure.values import AnyArray, boxes, parts, target_values, values_at

POISON = 0x77
"""Every byte of a target before a check; what is left of them was not written."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Arrays for this rank's tiles of source and target; None where it holds none."""

    source: AnyArray | None
    target: AnyArray | None

    @staticmethod
    def new(case: Case, rank: int) -> Ends:
        """Fresh arrays with every page touched."""
        return Ends(new_tile(case.source, rank), new_tile(case.target, rank))


def new_tile(t: ArrayType, rank: int) -> AnyArray | None:
    """An array for what a rank holds, poisoned; None where it holds nothing."""
    shape = tile_shapes(t).get(rank)
    if shape is None:
        return None
    tile = np.empty(shape, t.dtype.to_numpy())
    poison(tile)
    return tile


def poison(tile: AnyArray) -> None:
    """Overwrite a tile with bytes that no check accepts."""
    tile.reshape(-1).view(np.uint8).fill(POISON)


class Contender(ABC):
    """One way to move ``case.source`` to ``case.target``, made ready by the constructor.

    A subclass keeps in ``input`` and ``output`` the arrays that :meth:`run` reads and writes on
    this rank; ``ends`` are there for it to use. What a user would do once (types of messages,
    buffers, plans) belongs into the constructor, which is collective over ``comm``.
    """

    label: str
    """Its name in tables."""
    uses_ends: ClassVar[bool] = True
    """Whether it works on arrays that it is given."""
    knows_segments: ClassVar[bool] = False
    """Whether it can move tiles that are not boxes."""
    planned_bytes: int | None = None
    """What it says its memory will be at most, source and target included."""

    def __init__(self, case: Case, comm: MPI.Intracomm, ends: Ends) -> None:
        self.case = case
        self.comm = comm
        self.input = ends.source
        self.output = ends.target
        self.source_box, self.target_box = (
            boxes(t).get(comm.rank) if t.is_plain else None for t in (case.source, case.target)
        )

    @classmethod
    def absent(cls) -> str | None:
        """Why it cannot run here at all; None where it can."""
        return None

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        """Why it cannot express a case; None where it can."""
        return None

    @classmethod
    def why_not(cls, case: Case) -> str | None:
        """Why it does not take part in a case; None where it does."""
        if (case.source.is_plain and case.target.is_plain) or cls.knows_segments:
            return cls.cannot(case)
        return "it takes every tile for a box"

    @abstractmethod
    def run(self) -> None:
        """Move the array once. **Collective over `comm`.**"""

    def repeat(self, times: int) -> None:
        """Move the array several times in a row. **Collective over `comm`.**"""
        for _ in range(times):
            self.run()

    def fill(self) -> None:
        """Write this rank's tile of the source. **Local.**"""
        source, rank = self.case.source, self.comm.rank
        if self.input is not None and rank in source.mesh.ranks:
            self.input[...] = values_at(source, indices_of(source, rank), parts(source)[rank])

    def is_right(self) -> bool:
        """Move once into a poisoned target and compare this rank's. **Collective over `comm`.**"""
        self.poison_target()
        self.comm.Barrier()
        self.run()
        return self.holds_target()

    def poison_target(self) -> None:
        """Overwrite this rank's tile of the target with bytes that no check accepts. **Local.**"""
        if self.output is not None:
            poison(self.output)

    def holds_target(self) -> bool:
        """Whether this rank's tile of the target is what it must be, bit for bit. **Local.**"""
        target, rank = self.case.target, self.comm.rank
        if rank not in target.mesh.ranks:
            return True
        want = target_values(self.case.source, indices_of(target, rank))
        return self.output is not None and np.array_equal(self.output, want)

    def peak_bytes(self, base_bytes: int) -> int:
        """What this rank holds at most during a move, over ``base_bytes`` without the contender.

        It must have moved the array before. **Collective over `comm`.**
        """
        return memory.peak_bytes(self.comm, self.run) - base_bytes

    def close(self) -> None:
        """Give back what the constructor took. **Collective over `comm`.**"""
        self.input = self.output = None
