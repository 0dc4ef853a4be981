"""Meshes: ordered named axes over a set of ranks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redist.errors import LayoutError, ParseError
from redist.text.units import count_of

AXIS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_DEVICES = 2**31 - 1
# Read as far as the text goes; what is missing shows in the groups and in where the match ends.
_AXIS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*(?:=\s*([0-9]{1,18}(?![0-9]))?\s*)?")
_RANK = re.compile(r"([0-9]{1,18})(?![0-9])\s*")


@dataclass(frozen=True, slots=True, init=False)
class Mesh:
    """Devices in a grid with named axes, numbered in row-major order; each is mapped to one rank.

    >>> Mesh(x=2, y=4).n_devices
    8
    >>> str(Mesh({"z": 3}, ranks=[8, 9, 10]))
    'z=3@8'
    >>> Mesh({"z": 3}, ranks=[5, 0, 9]).ranks
    (5, 0, 9)
    """

    axes: tuple[tuple[str, int], ...]
    ranks: range | tuple[int, ...]

    def __init__(
        self,
        axes: Mapping[str, int] | Iterable[tuple[str, int]] | None = None,
        /,
        *,
        ranks: Iterable[int] | None = None,
        **sizes: int,
    ) -> None:
        try:
            pairs = list(axes.items() if isinstance(axes, Mapping) else axes or ())
            items = tuple((name, size) for name, size in [*pairs, *sizes.items()])
        except (TypeError, ValueError):
            raise LayoutError(
                f"cannot make a mesh from {axes!r}: axes need names; write Mesh(x=2, y=4), Mesh({{'x': 2}}) "
                "or Mesh.parse('x=2,y=4')"
            ) from None
        seen: set[str] = set()
        for name, size in items:
            if not isinstance(name, str) or AXIS_NAME.fullmatch(name) is None:
                raise LayoutError(
                    f"cannot make a mesh: {name!r} is not a valid axis name; use letters, digits, _"
                )
            if name in seen:
                raise LayoutError(f"cannot make a mesh: axis {name!r} appears twice; rename one")
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise LayoutError(
                    f"cannot make a mesh: axis {name!r} has size {size!r}; need an int >= 1"
                )
            seen.add(name)
        n_devices = math.prod(size for _, size in items)
        if n_devices > MAX_DEVICES:
            raise LayoutError(f"cannot make a mesh: {n_devices} devices; at most {MAX_DEVICES}")
        object.__setattr__(self, "axes", items)
        object.__setattr__(self, "ranks", _canonical_ranks(ranks, n_devices))

    @staticmethod
    def of(given: Any) -> Any:
        """Make a mesh from text or a dict; any other object is returned as it is.

        >>> Mesh.of({"x": 2, "y": 4}) == Mesh.of("x=2,y=4") == Mesh(x=2, y=4), Mesh.of(None)
        (True, None)
        """
        if isinstance(given, str):
            return Mesh.parse(given)
        return Mesh(given) if isinstance(given, Mapping) else given

    @property
    def n_devices(self) -> int:
        """Number of devices: the product of the axis sizes."""
        return len(self.ranks)

    def size(self, name: str) -> int:
        """Size of the axis called ``name``."""
        for axis, size in self.axes:
            if axis == name:
                return size
        raise LayoutError(f"the mesh {self} has no axis {name!r}")

    def at(self, **coordinates: int) -> Mesh:
        """The mesh of the ranks at the given coordinates, with the remaining axes.

        For example, one stage of a pipeline is such a mesh, and so are the ranks that have one expert.

        >>> print(Mesh(pp=2, tp=3).at(pp=1), Mesh(pp=2, tp=3).at(tp=1))
        tp=3@3 pp=2@1;4
        """
        grid = self.rank_array().reshape([size for _, size in self.axes])
        index: list[int | slice] = [slice(None)] * len(self.axes)
        for name, place in coordinates.items():
            size = self.size(name)
            if not 0 <= place < size:
                raise LayoutError(
                    f"cannot take {name}={place} of the mesh {self}: axis {name} has coordinates 0 to "
                    f"{size - 1}"
                )
            index[[axis for axis, _ in self.axes].index(name)] = place
        rest = [axis for axis in self.axes if axis[0] not in coordinates]
        return Mesh(rest, ranks=grid[tuple(index)].ravel().tolist())

    def rank_array(self) -> NDArray[np.int64]:
        """The rank of every device, in device order."""
        if isinstance(self.ranks, range):
            return np.arange(self.ranks.start, self.ranks.stop, dtype=np.int64)
        return np.array(self.ranks, dtype=np.int64)

    @staticmethod
    def parse(text: str) -> Mesh:
        """Read a mesh from text: ``x=2,y=4``; ``@8`` gives the first rank, ``@5;0;9`` lists all ranks.

        >>> Mesh.parse("z=3@8").ranks
        range(8, 11)
        """
        body, at, tail = text.partition("@")
        axes: list[tuple[str, int]] = []
        for start, item in _items(body, ",", 0) if body.strip() else ():
            found = _AXIS.match(item)
            if found is None or found.end() < len(item) or found[2] is None:
                stop = start + (found.end() if found else 0)
                raise ParseError(text, stop, "expected an axis and its size, as in x=2")
            axes.append((found[1], int(found[2])))
        if not at:
            return Mesh(axes)
        ranks: list[int] = []
        for start, item in _items(tail, ";", len(body) + 1):
            found = _RANK.match(item)
            if found is None or found.end() < len(item):
                stop = start + (found.end() if found else 0)
                raise ParseError(text, stop, "expected a rank, as in x=2@8 or x=2@5;0")
            ranks.append(int(found[1]))
        if len(ranks) > 1:
            return Mesh(axes, ranks=ranks)
        return Mesh(axes, ranks=range(ranks[0], ranks[0] + math.prod(size for _, size in axes)))

    def __str__(self) -> str:
        body = ",".join(f"{name}={size}" for name, size in self.axes)
        if not isinstance(self.ranks, range):
            return f"{body}@{';'.join(map(str, self.ranks))}"
        return body if self.ranks.start == 0 else f"{body}@{self.ranks.start}"

    def __repr__(self) -> str:
        return f"Mesh.parse({str(self)!r})"


def _items(text: str, separator: str, start: int) -> Iterator[tuple[int, str]]:
    """The items of a list, each with the place of its first character in a text from ``start``."""
    for item in text.split(separator):
        body = item.lstrip()
        yield start + len(item) - len(body), body
        start += len(item) + len(separator)


def _canonical_ranks(ranks: Iterable[int] | None, n_devices: int) -> range | tuple[int, ...]:
    if ranks is None:
        return range(n_devices)
    given = ranks if isinstance(ranks, range) and ranks.step == 1 else tuple(ranks)
    if len(given) != n_devices:
        raise LayoutError(
            f"cannot make a mesh: {count_of(n_devices, 'device')} but {count_of(len(given), 'rank')}"
        )
    if isinstance(given, tuple):
        for rank in given:
            if not isinstance(rank, (int, np.integer)) or isinstance(rank, bool):
                raise LayoutError(f"cannot make a mesh: rank {rank!r} is not an int")
        given = tuple(int(rank) for rank in given)
        if len(set(given)) != n_devices:
            raise LayoutError("cannot make a mesh: a rank appears twice; each device needs its own")
        if given == tuple(range(given[0], given[0] + n_devices)):
            given = range(given[0], given[0] + n_devices)
    if max(given) >= 2**31:
        raise LayoutError(f"cannot make a mesh: rank {max(given)} is above 2^31 - 1")
    if min(given) < 0:
        raise LayoutError(f"cannot make a mesh: rank {min(given)} is negative")
    return given
