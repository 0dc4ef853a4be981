"""What tasks on blocks call beside the function of the task that was cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from redist.pgas.memory import BUFFERS
from redist.pgas.tiles.tiled import Tile

Region = tuple[slice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class NewBlock:
    """Makes a block and lets a function write all of it, or a region: as ``out``, or as its first operand."""

    empty: Callable[..., Tile]
    given: tuple[Any, ...]
    """What ``empty`` takes: shape, type, bytes."""
    function: Callable[..., Any]
    as_out: bool
    region: Region
    work_bytes: int = 0

    def __call__(self, *operands: Any, **options: Any) -> Tile:
        """**Local.** The block."""
        block = self.empty(*self.given)
        part = block[self.region]
        if self.as_out:
            self.function(*operands, out=part, **options)
        else:
            self.function(part, *operands, **options)
        return block


@dataclass(frozen=True, slots=True, eq=False)
class FirstPart:
    """Makes memory of a shape with what a function gives in one region of it."""

    function: Callable[..., Any]
    shape: tuple[int, ...]
    region: Region
    work_bytes: int

    def __call__(self, *operands: Any, **options: Any) -> Tile:
        """**Local.** The memory; the rest of it has no values yet."""
        part = self.function(*operands, **options)
        whole = BUFFERS.empty(self.shape, part.dtype, 0)
        whole[self.region] = part
        return whole


@dataclass(frozen=True, slots=True, eq=False)
class NextPart:
    """Writes what a function gives, or joins it to what is there."""

    function: Callable[..., Any]
    joined_by: np.ufunc | None
    work_bytes: int

    def __call__(self, out: Tile, *operands: Any, **options: Any) -> None:
        """**Local.** Change ``out``."""
        part = self.function(*operands, **options)
        if self.joined_by is None:
            out[...] = part
        else:
            self.joined_by(out, part, out=out)
