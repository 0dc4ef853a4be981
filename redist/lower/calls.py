"""The calls that a plan becomes: rearrangements of a tile's digits, and collectives over leading digits.

Every collective is one that MPI, JAX and PyTorch all have, in its plainest form: the array that a
device holds is a row of equal blocks, one for each member of its group. ``shape`` is the tile before the
call with a dim for every digit; what a call takes away or adds leads, a digit for each axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.plan.pieces import Piece

Axes = tuple[SubAxis, ...]


@dataclass(frozen=True, slots=True)
class Arrange:
    """See the tile as ``shape``, one dim for every digit, then put these into ``order``."""

    shape: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Select:
    """See the tile as ``shape``; along dim ``at[k]`` of it keep one's own place along axis k.

    Nothing is sent.
    """

    axes: Axes
    shape: tuple[int, ...]
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Swap:
    """Send block k to member k, get one from each: an all-to-all."""

    axes: Axes
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Collect:
    """Get the tile of every member, one block for each: an all-gather."""

    axes: Axes
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scatter:
    """Combine block k of all members at member k: a reduce-scatter."""

    axes: Axes
    shape: tuple[int, ...]
    op: str


@dataclass(frozen=True, slots=True)
class CombineAll:
    """Combine the tiles of all members, for all of them: an all-reduce."""

    axes: Axes
    op: str


@dataclass(frozen=True, slots=True)
class Embed:
    """Become one of as many blocks as there are members; the others hold the identity of ``op``."""

    axes: Axes
    shape: tuple[int, ...]
    op: str


@dataclass(frozen=True, slots=True)
class Keep:
    """At the first place along the axes keep the tile, elsewhere hold the identity of ``op``."""

    axes: Axes
    op: str


@dataclass(frozen=True, slots=True)
class Permute:
    """Boxes change hands, row by row; in a row they are of one shape, one to send and one to get each.

    With ``op`` the new tile begins as its identity, and boxes of later order are combined by it.
    """

    source_shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    rows: tuple[tuple[Piece, ...], ...]
    op: str | None = None


Call: TypeAlias = Arrange | Select | Swap | Collect | Scatter | CombineAll | Embed | Keep | Permute


@dataclass(frozen=True, slots=True)
class Calls:
    """What every device does, one call after another, and the atoms of the mesh that calls name.

    ``step_ends`` says after how many calls each step of the plan is done.
    """

    source: ArrayType
    target: ArrayType
    atoms: Axes
    calls: tuple[Call, ...]
    step_ends: tuple[int, ...]
