"""Steps as data: seven actions, and what a plan records about each use of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis


@dataclass(frozen=True, slots=True)
class Slice:
    """Every device keeps a part of what it has; the step is local, and nothing is received.

    ``moves`` appends unused axes to dims. ``pending`` lists axes that become pending: an unused axis
    (coordinate 0 keeps the values, the others hold the identity of ``pending_op``) or the minor-most
    axis of a dim (each device's values stand in a larger tile of identities).
    """

    moves: tuple[tuple[SubAxis, int], ...] = ()
    pending_op: str | None = None
    pending: tuple[SubAxis, ...] = ()


@dataclass(frozen=True, slots=True)
class AllGather:
    """Axes leave the minor end of their dims; every device receives its group's tiles."""

    moves: tuple[tuple[SubAxis, int], ...]


@dataclass(frozen=True, slots=True)
class AllToAll:
    """The net effect of moves (axes, from, to), one after another, as one step.

    Each move takes a block of axes from the minor end of one dim to the minor end of another and keeps
    their order; an axis may move twice. Usually a block is one axis.
    """

    moves: tuple[tuple[tuple[SubAxis, ...], int, int], ...]


@dataclass(frozen=True, slots=True)
class AllPermute:
    """Whole tiles move between devices: to any type with the same tile shape, even on another mesh."""

    to: ArrayType


@dataclass(frozen=True, slots=True)
class Exchange:
    """From any type to any type with the same pending axes: each device fetches exactly what it lacks.

    The target may have more pending axes: coordinate 0 gets the values, the others hold the identity.
    """

    to: ArrayType


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """Pending axes are resolved while the array moves to any type.

    Each device receives the partial values of its new tile that it lacks and combines them.
    """

    to: ArrayType


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Pending axes become replicating axes; the tiles stay where they are."""

    axes: tuple[SubAxis, ...]


Action: TypeAlias = Slice | AllGather | AllToAll | AllPermute | Exchange | ReduceScatter | AllReduce

OP_NAMES: dict[type, str] = {
    Slice: "slice",
    AllGather: "all_gather",
    AllToAll: "all_to_all",
    AllPermute: "all_permute",
    Exchange: "exchange",
    ReduceScatter: "reduce_scatter",
    AllReduce: "all_reduce",
}


MIDDLE = "middle"
"""What an event allocates that is neither source, target nor staging: a result between two steps."""


@dataclass(frozen=True, slots=True)
class Event:
    """One allocation: live at every moment from ``born`` to ``freed``, both included.

    Moments are step numbers, from 0. ``at`` says which ranks hold it: those of the ``source`` mesh,
    of the ``target`` mesh, or ``both`` (every rank that takes part).
    """

    what: str
    n_bytes: int
    born: int
    freed: int
    at: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan: the action, the type after it, and what it costs.

    ``received_bytes`` is summed over all ranks. The ``_worst`` figures are those of the busiest rank, and
    the pairs are (least, most) over the ranks that hold the type after the step. ``rounds`` is how
    often the staging buffer is filled. ``over`` has the axes along which data moves (empty if source
    and target have different meshes), and ``group`` is the number of ranks among which it moves.
    """

    action: Action
    after: ArrayType
    events: tuple[Event, ...]
    rounds: int
    over: tuple[SubAxis, ...]
    group: int
    received_bytes: int
    received_range_bytes: tuple[int, int]
    sent_worst_bytes: int
    messages_range: tuple[int, int]
    time_ps: int
    peak_bytes: int

    @property
    def op(self) -> str:
        """The name of the action: ``slice``, ``all_gather``, ..."""
        return OP_NAMES[type(self.action)]

    @property
    def staging_bytes(self) -> int:
        """Bytes of the staging buffer."""
        return sum(event.n_bytes for event in self.events if event.what == "staging")
