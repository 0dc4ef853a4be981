"""Choose which parts of an array and of a mesh a picture shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh

SHOWN_DEVICES = 64
SHOWN_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class View:
    """The dims of an array that run down and across in a thumbnail (None: no such dim)."""

    shape: tuple[int, ...]
    down: int | None
    across: int | None
    hidden_cut: tuple[int, ...]

    @staticmethod
    def of(types: Sequence[ArrayType]) -> View:
        """The first two dims that any of the types cuts; if there are fewer, the last dims fill up.

        >>> t = ArrayType.parse("f32[8, 8{x}, 8, 8]", Mesh(x=2))
        >>> View.of([t]).down, View.of([t]).across
        (1, 3)
        """
        rank = types[0].ndim
        cut = [i for i in range(rank) if any(t.cuts[i] > 1 for t in types)]
        rest = [i for i in reversed(range(rank)) if i not in cut]
        chosen = sorted([*cut, *rest][:2])
        down = chosen[0] if len(chosen) > 1 else None
        across = chosen[-1] if chosen else None
        return View(types[0].shape, down, across, tuple(i for i in cut if i not in chosen))

    def size(self, most: float) -> tuple[float, float]:
        """Width and height of a thumbnail: the array's proportions, unless they are extreme."""
        if self.down is None or self.across is None:
            return most, most if self.across is None else most * 0.4
        ratio = max(self.shape[self.down], 1) / max(self.shape[self.across], 1)
        if ratio <= 1:
            return most, most * max(ratio, 0.4)
        root = math.sqrt(min(ratio, 2.5))
        return most / root, most * root

    def place(
        self, lo: Sequence[int], hi: Sequence[int], width: float, height: float
    ) -> tuple[float, float, float, float]:
        """x, y, width and height of a box of indices in a thumbnail; empty boxes have no width."""
        if any(b <= a for a, b in zip(lo, hi, strict=True)):
            return 0.0, 0.0, 0.0, 0.0
        x, w = self._span(self.across, lo, hi, width)
        y, h = self._span(self.down, lo, hi, height)
        return x, y, w, h

    def _span(
        self, dim: int | None, lo: Sequence[int], hi: Sequence[int], length: float
    ) -> tuple[float, float]:
        if dim is None:
            return 0.0, length
        scale = length / self.shape[dim]
        span = max((hi[dim] - lo[dim]) * scale, 1.2)
        return min(lo[dim] * scale, length - span), span

    def caption(self) -> str:
        """What a thumbnail shows, in words."""
        whole = " x ".join(map(str, self.shape))
        if self.across is None:
            return "each square is the one element of the array"
        if self.down is None:
            return f"each bar is the whole array of {whole}, dim 0 from left to right"
        where = f"dim {self.down} runs down, dim {self.across} across"
        text = f"each thumbnail is the whole array of {whole}: {where}"
        if len(self.shape) > 2:
            text += "; the other dims are not drawn"
        if self.hidden_cut:
            dims = ", ".join(map(str, self.hidden_cut))
            one = len(self.hidden_cut) == 1
            text += f", though dim{'' if one else 's'} {dims} {'is' if one else 'are'} cut too"
        return text


@dataclass(frozen=True, slots=True)
class Seats:
    """Where the devices of a mesh are placed: the last ``n_across`` axes in a row, the others down."""

    mesh: Mesh
    n_shown: int
    n_across: int
    columns: int

    @staticmethod
    def of(mesh: Mesh) -> Seats:
        """Places for the first devices of a mesh, about twice as wide as high.

        >>> seats = Seats.of(Mesh(x=2, y=4))
        >>> seats.columns, seats.row_labels(), seats.column_labels()
        (4, ['x=0', 'x=1'], ['y=0', 'y=1', 'y=2', 'y=3'])
        """
        sizes = [size for _, size in mesh.axes] or [1]
        widths = {k: math.prod(sizes[-k:]) for k in range(1, max(2, len(sizes)))}
        fits = [k for k in widths if widths[k] <= SHOWN_COLUMNS] or [1]
        n_across = min(fits, key=lambda k: abs(math.log(widths[k] ** 2 / mesh.n_devices / 2)))
        columns = min(widths[n_across], SHOWN_COLUMNS)
        return Seats(mesh, min(mesh.n_devices, SHOWN_DEVICES), n_across, columns)

    @property
    def ranks(self) -> list[int]:
        """The ranks of the devices shown."""
        return [int(rank) for rank in self.mesh.ranks[: self.n_shown]]

    def row_labels(self) -> list[str]:
        """Coordinates on the axes that run down, one label per row."""
        starts = range(0, self.n_shown, self.columns)
        if self._wraps:
            return [" ".join(self._coordinates(start)) + ".." for start in starts]
        return [" ".join(self._coordinates(start)[: -self.n_across]) for start in starts]

    def column_labels(self) -> list[str]:
        """Coordinates on the axes that run across; none where a row does not hold them all."""
        if self._wraps or not self.mesh.axes:
            return [""] * self.columns
        across = [self._coordinates(i)[-self.n_across :] for i in range(self.columns)]
        if self.n_across == 1:
            return [items[0] for items in across]
        return [",".join(item.partition("=")[2] for item in items) for items in across]

    def corner(self) -> str:
        """Names of the axes that run across where the columns show their coordinates only."""
        if self.n_across == 1 or self._wraps:
            return ""
        return ",".join(name for name, _ in self.mesh.axes[-self.n_across :])

    @property
    def _wraps(self) -> bool:
        last = math.prod(size for _, size in self.mesh.axes[-self.n_across :])
        return last > self.columns

    def _coordinates(self, device: int) -> list[str]:
        out = []
        for name, size in reversed(self.mesh.axes):
            device, at = divmod(device, size)
            out.append(f"{name}={at}")
        return out[::-1]
