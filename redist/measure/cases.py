"""What is moved: one redistribution for each important kind, for any number of ranks."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from redist.errors import RequestError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.tiles import volumes

ITEM_BYTES = 8
"""Every case moves f64."""


@dataclass(frozen=True, slots=True)
class Case:
    """One redistribution.

    >>> case = make_case("rows-columns", 128 * 2**20, 4)
    >>> print(case)
    f64[4096{x}, 4096] -> f64[4096, 4096{x}] on x=4
    >>> case.held_bytes // 2**20
    128
    """

    name: str
    source: ArrayType
    target: ArrayType

    @property
    def held_bytes(self) -> int:
        """What all ranks together hold at the larger end; tiles of even ranges count as full ones."""
        return max(map(_held_bytes, (self.source, self.target)))

    @property
    def is_beyond(self) -> str | None:
        """Why a library that only moves whole values on one mesh cannot do this case."""
        if self.source.pending_op or self.target.pending_op:
            return "it has no pending sums"
        if not (self.source.is_plain and self.target.is_plain):
            return "it cuts dims into even ranges only"
        return "two meshes" if self.source.mesh != self.target.mesh else None

    def __str__(self) -> str:
        source, target = self.source.mesh, self.target.mesh
        where = str(source) if source == target else f"{source} -> {target}"
        return f"{self.source} -> {self.target} on {where}"


@dataclass(frozen=True, slots=True)
class Kind:
    """How a case is written: N is the size of a dim, and the mesh is a line, a grid or two halves."""

    text: str
    source: str
    target: str
    mesh: str = "line"
    copies: bool = False
    """Whether every rank holds the whole array at one end."""


KINDS = {
    "rows-columns": Kind("a matrix by rows -> by columns", "[N{x}, N]", "[N, N{x}]"),
    "columns-rows": Kind("a matrix by columns -> by rows", "[N, N{x}]", "[N{x}, N]"),
    "slab-pencil": Kind("slabs -> pencils", "[N{x,y}, N, N]", "[N{x}, N{y}, N]", "grid"),
    "slab-0-1": Kind("slabs, dim 0 -> dim 1", "[N{x}, N, N]", "[N, N{x}, N]"),
    "slab-0-2": Kind("slabs, dim 0 -> dim 2", "[N{x}, N, N]", "[N, N, N{x}]"),
    "slab-2-0": Kind("slabs, dim 2 -> dim 0", "[N, N, N{x}]", "[N{x}, N, N]"),
    "pencil-pencil": Kind("pencils -> pencils", "[N{x}, N{y}, N]", "[N{x}, N, N{y}]", "grid"),
    "uneven": Kind("rows -> columns, uneven tiles", "[U{x}, V]", "[U, V{x}]"),
    "swap": Kind("two axes change places", "[N{x}, N{y}]", "[N{y}, N{x}]", "grid"),
    "axis-order": Kind("major and minor axis swapped", "[N{x,y}, N]", "[N{y,x}, N]", "grid"),
    "sub-axes": Kind(
        "parts of one axis change places", "[N{x:(1)P}, N{x:(P)Q}]", "[N{x:(P)Q}, N{x:(1)P}]"
    ),
    "gather": Kind("cut -> every rank has all", "[N{x}, N]", "[N, N]", copies=True),
    "cut": Kind("every rank has all -> cut", "[N, N]", "[N, N{x}]", copies=True),
    "sum-cut": Kind("a sum, added up and cut", "[N, N] sum{x}", "[N{x}, N]", copies=True),
    "sum-all": Kind("a sum, added up everywhere", "[N, N] sum{x}", "[N, N]", copies=True),
    "cyclic-rows": Kind(
        "blocks dealt to a grid -> rows", "[N{x/B}, N{y/B}]", "[N{x,y}, N]", "grid"
    ),
    "cyclic-cyclic": Kind(
        "blocks of 64 dealt to a grid -> of 96", "[N{x/B}, N{y/B}]", "[N{x/C}, N{y/C}]", "grid"
    ),
    "ragged": Kind("tiles of any lengths -> of one", "[N{x=L}, N]", "[N{x}, N]"),
    "fused-qkv": Kind("a fused weight -> rows", "[H{x}+K{x}+K{x}, N]", "[N{x}, N]"),
    "experts": Kind("stacked experts, by tensor -> by expert", "[R, 2*M{x}, N]", "[R{x}, N, N]"),
    "two-meshes": Kind("from half the ranks to the others", "[N{x}, N]", "[N, N{z}]", "halves"),
}
"""P x Q = R, the number of ranks; U and V are a little off N, so that nothing divides them; L are lengths
that rise from rank to rank; H, K and M are parts of N."""


def make_case(name: str, total_bytes: int, n_ranks: int) -> Case:
    """The case called ``name``; all ranks together hold about ``total_bytes`` at the larger end.

    >>> print(make_case("sum-cut", 2**20, 8))
    f64[128, 128] sum{x} -> f64[128{x}, 128] on x=8
    >>> print(make_case("two-meshes", 2**20, 4))
    f64[362{x}, 362] -> f64[362, 362{z}] on x=2 -> z=2@2
    """
    if name not in KINDS:
        raise RequestError(f"cannot measure {name!r}: no such case; known: {', '.join(KINDS)}")
    if n_ranks < 2:
        raise RequestError(f"cannot measure {name!r} on {n_ranks} rank: need at least 2")
    kind = KINDS[name]
    p, q = factors(n_ranks)
    if p == 1 and (kind.mesh == "grid" or "P" in kind.source):
        raise RequestError(
            f"cannot measure {name!r} on {n_ranks} ranks: need a product, such as 4, 6 or 8"
        )
    n = _size(kind, total_bytes, n_ranks)
    letters: dict[str, int | str] = {
        "N": n, "U": max(1, n - 3), "V": n + 5, "P": p, "Q": q, "R": n_ranks, "B": 64, "C": 96,
        "K": n // 10, "H": n - 2 * (n // 10), "M": n // 2, "L": _lengths(n, n_ranks),
    }  # fmt: skip
    ends = []
    for pattern, mesh in zip((kind.source, kind.target), _meshes(kind.mesh, n_ranks), strict=True):
        text = "".join(str(letters.get(letter, letter)) for letter in pattern)
        ends.append(ArrayType.parse(f"f64{text}", mesh))
    return Case(name, ends[0], ends[1])


def _held_bytes(t: ArrayType) -> int:
    if t.is_plain:
        return t.tile_bytes * t.mesh.n_devices
    return int(volumes(t).sum()) * t.dtype.itemsize


def _lengths(n: int, n_ranks: int) -> str:
    """Lengths of tiles that rise from rank to rank.

    >>> _lengths(100, 4)
    '10;20;30;40'
    """
    edges = [n * k * (k + 1) // (n_ranks * (n_ranks + 1)) for k in range(n_ranks + 1)]
    return ";".join(str(hi - lo) for lo, hi in itertools.pairwise(edges))


def factors(n: int) -> tuple[int, int]:
    """Two factors of n that are as near to each other as can be, the smaller first.

    >>> factors(8), factors(12), factors(7)
    ((2, 4), (3, 4), (1, 7))
    """
    smaller = max(k for k in range(1, math.isqrt(n) + 1) if n % k == 0)
    return smaller, n // smaller


def _size(kind: Kind, total_bytes: int, n_ranks: int) -> int:
    """The size of a dim: a multiple of the number of ranks (of half of it, for two halves)."""
    n_elems = total_bytes / ITEM_BYTES / (n_ranks if kind.copies or "R" in kind.source else 1)
    step = max(1, n_ranks // 2) if kind.mesh == "halves" else n_ranks
    step *= 2 if "M" in kind.source else 1
    n_dims = kind.source.count(",") - kind.source.count("x,y") + 1 - kind.source.count("R")
    return max(1, round(n_elems ** (1 / n_dims) / step)) * step


def _meshes(mesh: str, n_ranks: int) -> tuple[Mesh, Mesh]:
    if mesh == "halves":
        half = n_ranks // 2
        return Mesh(x=half), Mesh({"z": n_ranks - half}, ranks=range(half, n_ranks))
    p, q = factors(n_ranks)
    one = Mesh(x=p, y=q) if mesh == "grid" else Mesh(x=n_ranks)
    return one, one
