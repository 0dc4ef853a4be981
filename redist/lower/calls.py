"""The calls that a plan becomes: rearrangements of a tile's digits, and collectives over leading digits.

Every collective is one that MPI, JAX and PyTorch all have, in its plainest form: the array that a
device holds is a row of equal blocks, one for each member of its group. ``shape`` is the tile before the
call with a dim for every digit; what a call takes away or adds leads, a digit for each axis. What a device
holds while it runs calls is counted here too: an upper bound for systems that copy freely.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis
from redist.plan.pieces import Piece

# Write dims and mesh axes as digits that several types share, so that a step only moves digits.
#
# A dim of 12 that is cut by x=2 is a digit of 2, which the device's place along x gives, and one of 6
# that lies in its tile. Where another type cuts the same dim by y=4, that is a digit of 4 and one of 3.
# Both see it as digits of 2, 2 and 3.


@dataclass(frozen=True, slots=True)
class Digit:
    """Part of a dim's index, major to minor: that of ``size`` values with ``pre`` values before it.

    >>> Digit(0, 2, 3).end
    6
    """

    dim: int
    pre: int
    size: int

    @property
    def end(self) -> int:
        """How many values all digits down to this one have together."""
        return self.pre * self.size


@dataclass(frozen=True, slots=True)
class Held:
    """Which atom of the mesh gives each digit of a type; digits of no atom lie in the tile."""

    atom_of: dict[Digit, SubAxis]
    pending: tuple[SubAxis, ...]


@dataclass(frozen=True, slots=True)
class Digits:
    """The digits of every dim, major to minor, the atoms of the mesh, and how each type holds them."""

    dims: tuple[tuple[Digit, ...], ...]
    atoms: tuple[SubAxis, ...]
    types: tuple[Held, ...]

    def in_tile(self, number: int) -> tuple[Digit, ...]:
        """The digits that lie in the tiles of a type, in their order."""
        held = self.types[number].atom_of
        return tuple(digit for dim in self.dims for digit in dim if digit not in held)


def find_digits(types: Sequence[ArrayType]) -> Digits | None:
    """Digits that all of these types share; None if there are none.

    >>> from redist.layout.mesh import Mesh
    >>> mesh = Mesh(x=2, y=4)
    >>> a, b = (ArrayType.parse(t, mesh) for t in ("f32[12{x}, 8{y}]", "f32[12{y}, 8{x}]"))
    >>> found = find_digits([a, b])
    >>> [digit.size for digit in found.dims[0]], [part.size for part in found.atoms]
    ([2, 2, 3], [2, 2, 2])

    There are none if tiles are not full, if types are of different meshes, or if one cuts where
    another's cut goes through: 2 and 3 have no digits in common.
    """
    mesh = types[0].mesh
    if not all(t.is_even and t.mesh == mesh and t.global_elems for t in types):
        return None
    axis_edges = {name: {1, size} for name, size in mesh.axes}
    dim_edges = [{1, n} for n in types[0].shape]
    places = [
        (dim, base, part)
        for t in types
        for dim, parts in enumerate(t.dims)
        for base, part in zip(_bases(parts), parts, strict=True)
    ]
    for t in types:
        for part in t.pending_axes:
            axis_edges[part.name] |= {part.pre, part.end}
    while True:
        before = sum(map(len, axis_edges.values())) + sum(map(len, dim_edges))
        for dim, base, part in places:
            _share(axis_edges[part.name], dim_edges[dim], base, part)
        if sum(map(len, axis_edges.values())) + sum(map(len, dim_edges)) == before:
            break
    if not all(_is_chain(edges) for edges in (*axis_edges.values(), *dim_edges)):
        return None
    atoms = tuple(
        SubAxis(name, lo, hi // lo)
        for name, _ in mesh.axes
        for lo, hi in itertools.pairwise(sorted(axis_edges[name]))
    )
    dims = tuple(
        tuple(Digit(dim, lo, hi // lo) for lo, hi in itertools.pairwise(sorted(edges)))
        for dim, edges in enumerate(dim_edges)
    )
    return Digits(dims, atoms, tuple(_held(t, dims, atoms) for t in types))


def _bases(parts: Sequence[SubAxis]) -> list[int]:
    """How many tiles the parts before each one make."""
    return list(itertools.accumulate((p.size for p in parts), int.__mul__, initial=1))[:-1]


def _share(axis: set[int], dim: set[int], base: int, part: SubAxis) -> None:
    """Let the edges of an axis inside a part be edges of the dim that it cuts, and the reverse."""
    axis |= {part.pre, part.end}
    for edge in list(axis):
        if part.pre <= edge <= part.end and edge % part.pre == 0:
            dim.add(base * (edge // part.pre))
    for edge in list(dim):
        if base <= edge <= base * part.size and edge % base == 0:
            axis.add(part.pre * (edge // base))


def _is_chain(edges: set[int]) -> bool:
    """Whether each divides the next."""
    return all(hi % lo == 0 for lo, hi in itertools.pairwise(sorted(edges)))


def _held(t: ArrayType, dims: Sequence[Sequence[Digit]], atoms: Sequence[SubAxis]) -> Held:
    atom_of: dict[Digit, SubAxis] = {}
    for dim, parts in enumerate(t.dims):
        inside = [atom for part in parts for atom in atoms if atom.inside(part)]
        cut = [digit for digit in dims[dim] if digit.end <= t.cut(dim).n_tiles]
        assert [d.size for d in cut] == [a.size for a in inside], (t, cut, inside)
        atom_of.update(zip(cut, inside, strict=True))
    pending = tuple(a for a in atoms if any(a.inside(part) for part in t.pending_axes))
    return Held(atom_of, pending)


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


# What a device holds while it runs the calls of a plan.


TABLE_BYTES = 4096
"""Places of devices, and other small things."""
COLLECTIVES = (Collect, CombineAll, Permute, Scatter, Swap)
"""Calls in which devices send to each other."""


def elems_after(call: Call, elems: int) -> int:
    """Elements of a device's tile after a call.

    >>> from redist.layout.axes import SubAxis
    >>> elems_after(Collect((SubAxis("x", 1, 4),), (6,)), 6)
    24
    """
    match call:
        case Select(_, shape, at):
            return elems // math.prod(shape[k] for k in at)
        case Scatter(axes):
            return elems // math.prod(axis.size for axis in axes)
        case Collect(axes) | Embed(axes):
            return elems * math.prod(axis.size for axis in axes)
        case Permute(target_shape=shape):
            return math.prod(shape)
        case _:
            return elems


def sizes_of(runs: Iterable[Calls]) -> Iterator[tuple[Call, int, int]]:
    """Every call with the elements of a tile before and after it."""
    for run in runs:
        elems = math.prod(run.source.tile_shape)
        for call in run.calls:
            after = elems_after(call, elems)
            yield call, elems, after
            elems = after


def peak_bytes(runs: tuple[Calls, ...], donate: bool = False, as_bits: bool = False) -> int:
    """Bytes of a device at the worst moment: source, result, and what calls hold besides.

    >>> import redist
    >>> from redist.lower.lowering import lower_plan
    >>> plan = redist.synthesize("f32[8{x}, 8]", "f32[8, 8{x}]", mesh=redist.Mesh(x=4))
    >>> (peak_bytes(lower_plan(plan)) - TABLE_BYTES) // plan.source.tile_bytes
    5

    A call has what it is given and what it makes; one that sends blocks has them cut out and received
    as well. The source lives to the end, the result from the beginning. A donated source lives until
    the first call is done, and the result takes its memory; an only call reads it to the end.

    If elements travel ``as_bits``, as integers of their size, a collective that comes first is given a
    copy of the source, and one that comes last makes a copy of the result; other calls do this on the way.
    """
    if not runs:
        return 0
    item = runs[0].source.dtype.itemsize
    ends = [math.prod(t.tile_shape) for t in (runs[0].source, runs[-1].target)]
    calls = list(sizes_of(runs))
    kept = 0 if donate and (len(calls) > 1 or as_bits) else ends[0]
    most = 0
    for number, (call, before, after) in enumerate(calls):
        is_copied = as_bits and isinstance(call, COLLECTIVES)
        given = before if number or is_copied else 0
        made = after if number + 1 < len(calls) or is_copied else 0
        match call:
            case Swap():
                sent = 2 * before
            case Permute(rows=rows):
                boxes = [math.prod(row[0].shape) for row in rows]
                # Boxes make a tile before it is the result.
                sent = after + 3 * max(boxes, default=0)
                if donate and not number and not as_bits:
                    # All are cut out before it is overwritten.
                    sent += max(0, sum(boxes) - kept)
            case Scatter() | CombineAll():
                sent = before + after
            case _:
                sent = 0
        most = max(most, given + sent + made)
    return (kept + ends[1] + most) * item + TABLE_BYTES
