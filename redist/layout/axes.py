"""Parts of mesh axes: an axis of size 12 may be split into 2 x 6, and its parts used separately."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from redist.errors import LayoutError
from redist.layout.mesh import Mesh

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class SubAxis:
    """The middle of an axis split into [pre, size, rest], major to minor.

    A whole axis has ``pre == 1`` and ``size`` equal to the axis.

    >>> SubAxis("x", 2, 3).end          # everything major to the rest
    6
    """

    name: str
    pre: int
    size: int

    @property
    def end(self) -> int:
        """Product of the sizes down to and including this part."""
        return self.pre * self.size

    def inside(self, other: SubAxis) -> bool:
        """Whether this part is contained in another part, or equal to it.

        >>> SubAxis("x", 2, 2).inside(SubAxis("x", 1, 8))
        True
        """
        return self.name == other.name and other.pre <= self.pre and self.end <= other.end

    def text(self, mesh: Mesh) -> str:
        """``x`` for a whole axis, ``x:(2)3`` for a part of one."""
        if self.pre == 1 and self.size == mesh.size(self.name):
            return self.name
        return f"{self.name}:({self.pre}){self.size}"


def format_axes(mesh: Mesh, parts: Iterable[SubAxis]) -> str:
    """The text of some parts: ``x,y:(2)3``."""
    return ",".join(part.text(mesh) for part in parts)


def whole(mesh: Mesh, name: str) -> SubAxis:
    """The axis ``name`` as one part.

    >>> whole(Mesh(x=4), "x")
    SubAxis(name='x', pre=1, size=4)
    """
    return SubAxis(name, 1, mesh.size(name))


def merge_parts(parts: Iterable[SubAxis]) -> tuple[SubAxis, ...]:
    """Drop parts of size 1, and join neighbours that continue each other.

    >>> merge_parts([SubAxis("x", 1, 2), SubAxis("x", 2, 3), SubAxis("y", 1, 1)])
    (SubAxis(name='x', pre=1, size=6),)
    """
    out: list[SubAxis] = []
    for part in parts:
        if part.size == 1:
            continue
        if out and out[-1].name == part.name and out[-1].end == part.pre:
            out[-1] = SubAxis(part.name, out[-1].pre, out[-1].size * part.size)
        else:
            out.append(part)
    return tuple(out)


def check_chain(mesh: Mesh, parts: Iterable[SubAxis]) -> None:
    """Raise unless the parts exist in the mesh, do not overlap and come from one chain of cuts."""
    last: SubAxis | None = None
    for part in sorted(parts):
        total = mesh.size(part.name)
        if part.pre < 1 or part.size < 1 or total % part.end != 0:
            raise LayoutError(
                f"cannot use {part.name}:({part.pre}){part.size}: "
                f"{part.pre} x {part.size} does not divide axis {part.name}={total}"
            )
        if last is not None and last.name == part.name and part.size > 1:
            if part.pre < last.end:
                both = f"{last.text(mesh)} and {part.text(mesh)} overlap"
                whole = "an axis can cut one dim, or be pending, once"
                raise LayoutError(
                    f"cannot use axis {part.name} twice: {whole if last == part else both}"
                )
            if part.pre % last.end != 0:
                raise LayoutError(
                    f"cannot use {last.text(mesh)} and {part.text(mesh)} in one type: "
                    "they come from different cuts of the axis"
                )
        if part.size > 1:
            last = part


def refined_parts(mesh: Mesh, used: Iterable[SubAxis]) -> tuple[SubAxis, ...]:
    """Split every axis wherever a part of it in ``used`` begins or ends, major to minor.

    >>> [part.text(Mesh(x=12)) for part in refined_parts(Mesh(x=12), [SubAxis("x", 2, 3)])]
    ['x:(1)2', 'x:(2)3', 'x:(6)2']
    """
    edges: dict[str, set[int]] = {name: {1, size} for name, size in mesh.axes}
    for part in used:
        edges[part.name] |= {part.pre, part.end}
    return tuple(
        SubAxis(name, lo, hi // lo)
        for name, _ in mesh.axes
        for cuts in [sorted(edges[name])]
        for lo, hi in itertools.pairwise(cuts)
    )


def prime_parts(mesh: Mesh, used: Iterable[SubAxis] = ()) -> tuple[SubAxis, ...]:
    """Split every axis as :func:`refined_parts` does, and each piece into primes, the smallest first.

    >>> [part.text(Mesh(x=6)) for part in prime_parts(Mesh(x=6))]
    ['x:(1)2', 'x:(2)3']
    """
    parts = []
    for piece in refined_parts(mesh, used):
        pre = piece.pre
        for prime in _prime_factors(piece.size):
            parts.append(SubAxis(piece.name, pre, prime))
            pre *= prime
    return tuple(parts)


def _prime_factors(n: int) -> Iterator[int]:
    """The smallest first.

    >>> list(_prime_factors(60))
    [2, 2, 3, 5]
    """
    prime = 2
    while prime * prime <= n:
        if n % prime:
            prime += 1
        else:
            yield prime
            n //= prime
    if n > 1:
        yield n


# Coordinates of all devices


REMEMBERED_DEVICES = 4096
"""Many coordinates are remembered for meshes up to this size, a few for larger ones."""


def coordinates(mesh: Mesh, parts: Iterable[SubAxis]) -> Ints:
    """Mixed-radix number of every device's coordinates on ``parts``, major first.

    >>> coordinates(Mesh(x=2, y=3), [SubAxis("y", 1, 3)])
    array([0, 1, 2, 0, 1, 2])
    """
    remember = _many if mesh.n_devices <= REMEMBERED_DEVICES else _few
    return remember(mesh, tuple(parts))


def _make_coordinates(mesh: Mesh, parts: tuple[SubAxis, ...]) -> Ints:
    strides: dict[str, int] = {}
    stride = 1
    for name, size in reversed(mesh.axes):
        strides[name] = stride
        stride *= size
    device = np.arange(mesh.n_devices, dtype=np.int64)
    out = np.zeros(mesh.n_devices, dtype=np.int64)
    for part in parts:
        rest = mesh.size(part.name) // part.end
        out = out * part.size + (device // (strides[part.name] * rest)) % part.size
    out.setflags(write=False)
    return out


_many = lru_cache(maxsize=2048)(_make_coordinates)
_few = lru_cache(maxsize=16)(_make_coordinates)
