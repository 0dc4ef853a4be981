"""Random types with segments, written as text, and what they mean: owners listed index by index.

The oracle reads the tree that the text was made from, not the type that was parsed from it, and shares no
code with `redist.layout` or `redist.check`.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

KINDS = ("factors", "segments", "dealt", "ragged", "mixed")

Axes = tuple[tuple[str, int, int], ...]
"""Parts of axes: name, size before, size."""


@dataclass(frozen=True)
class Number:
    """A factor: size, axes, block, first, lengths."""

    size: int
    axes: Axes = ()
    block: int = 0
    first: int = 0
    lengths: tuple[int, ...] = ()

    def text(self, mesh: dict[str, int]) -> str:
        if not self.axes:
            return str(self.size)
        names = ",".join(
            name if (pre, size) == (1, mesh[name]) else f"{name}:({pre}){size}"
            for name, pre, size in self.axes
        )
        how = f"/{self.block}" + (f"@{self.first}" if self.first else "") if self.block else ""
        how = how or ("=" + ";".join(map(str, self.lengths)) if self.lengths else "")
        return f"{self.size}{{{names}{how}}}"

    def holder(self, i: int) -> int:
        n = math.prod(size for _, _, size in self.axes)
        if self.block:
            return (i + self.first) // self.block % n
        if self.lengths:
            for tile, end in enumerate(itertools.accumulate(self.lengths)):
                if i < end:
                    return tile
        return i // max(1, -(-self.size // n))


Product = tuple[Number, ...]
Dim = tuple[Product, ...]


def dim_text(dim: Dim, mesh: dict[str, int]) -> str:
    return "+".join("*".join(number.text(mesh) for number in product) for product in dim)


def dim_size(dim: Dim) -> int:
    return sum(math.prod(number.size for number in product) for product in dim)


def holds(dim: Dim, index: int, at: dict[str, int], mesh: dict[str, int]) -> bool:
    """Whether the device at these coordinates holds an index of a dim."""
    for product in dim:
        size = math.prod(number.size for number in product)
        if index >= size:
            index -= size
            continue
        for number in product:
            size //= number.size
            digit, index = divmod(index, size)
            place = 0
            for name, pre, part in number.axes:
                rest = mesh[name] // (pre * part)
                place = place * part + at[name] // rest % part
            if number.axes and number.holder(digit) != place:
                return False
        return True
    raise AssertionError("no such index")


@dataclass(frozen=True)
class Layout:
    """A type as a tree: dims, and the text of what is pending."""

    mesh: tuple[tuple[str, int], ...]
    dims: tuple[Dim, ...]
    pending: tuple[str, Axes] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(dim_size, self.dims))

    def text(self, dtype: str) -> str:
        sizes = dict(self.mesh)
        pending = ""
        if self.pending:
            op, axes = self.pending
            pending = f" {op}{{{','.join(name for name, _, _ in axes)}}}"
        return f"{dtype}[{', '.join(dim_text(dim, sizes) for dim in self.dims)}]{pending}"

    def places(self) -> list[dict[str, int]]:
        """Coordinates of every device."""
        names = [name for name, _ in self.mesh]
        every = itertools.product(*(range(n) for _, n in self.mesh))
        return [dict(zip(names, place, strict=True)) for place in every]

    def indices(self, device: int) -> list[list[int]]:
        """What a device holds of every dim."""
        at, sizes = self.places()[device], dict(self.mesh)
        return [[i for i in range(dim_size(dim)) if holds(dim, i, at, sizes)] for dim in self.dims]

    def partial(self, device: int) -> int:
        """Which partial value a device has."""
        at, sizes, place = self.places()[device], dict(self.mesh), 0
        for name, pre, part in self.pending[1] if self.pending else ():
            place = place * part + at[name] // (sizes[name] // (pre * part)) % part
        return place


# Random ones


def _parts(rng: random.Random, name: str, size: int) -> Axes:
    """A whole axis, or now and then a part of it."""
    if size > 2 and size % 2 == 0 and rng.random() < 0.4:
        return ((name, 1, 2),) if rng.random() < 0.5 else ((name, 2, size // 2),)
    return ((name, 1, size),)


def _number(rng: random.Random, size: int, axes: Axes, kind: str) -> Number:
    n = math.prod(part for _, _, part in axes)
    if not axes:
        return Number(size)
    if kind == "dealt":
        return Number(size, axes, rng.choice((1, 2, 3, 5)), rng.choice((0, 0, 0, 1, 4)))
    if kind == "ragged":
        cuts = sorted(rng.randint(0, size) for _ in range(n - 1))
        lengths = tuple(b - a for a, b in itertools.pairwise((0, *cuts, size)))
        return Number(size, axes, lengths=lengths)
    return Number(size, axes)


def _split(rng: random.Random, size: int) -> tuple[int, int]:
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    major = rng.choice(divisors)
    return major, size // major


def _product(rng: random.Random, size: int, axes: list[Axes], kind: str) -> Product:
    """A product of this many indices, each of the axes on one of its factors."""
    if kind in ("dealt", "ragged") or rng.random() < 0.2:
        joined = tuple(part for own in axes for part in own)
        return (_number(rng, size, joined, kind),)
    a, rest = _split(rng, size)
    b, c = _split(rng, rest)
    owners: list[Axes] = [(), (), ()]
    for own in axes:
        place = rng.randrange(3)
        owners[place] = (*owners[place], *own)
    return tuple(_number(rng, n, own, "") for n, own in zip((a, b, c), owners, strict=True))


def random_dim(
    rng: random.Random, size: int, names: list[str], mesh: dict[str, int], kind: str
) -> Dim:
    """A dim of this many indices, cut by some of the axes."""
    if kind == "plain" or (kind == "mixed" and rng.random() < 0.3):
        return ((Number(size, tuple((name, 1, mesh[name]) for name in names)),),)
    cuts = [0, size]
    if kind in ("segments", "mixed"):
        cuts = sorted({0, size, *(rng.randint(0, size) for _ in range(rng.randint(1, 3)))})
    dim = []
    for lo, hi in itertools.pairwise(cuts):
        own = kind
        if kind == "mixed":
            own = rng.choice(("factors", "dealt", "ragged", "segments"))
        axes = [_parts(rng, name, mesh[name]) for name in names if rng.random() < 0.8]
        dim.append(_product(rng, hi - lo, axes, "factors" if own == "segments" else own))
    return tuple(dim) or ((Number(0),),)


def random_layout(
    rng: random.Random, shape: tuple[int, ...], mesh: dict[str, int], kind: str, pending: bool
) -> Layout:
    """A layout of an array, one dim at least of the kind."""
    names = list(mesh)
    rng.shuffle(names)
    waits = None
    if pending and len(names) > 0 and rng.random() < 0.8:
        name = names.pop()
        waits = (rng.choice(("sum", "max")), ((name, 1, mesh[name]),))
    share: list[list[str]] = [[] for _ in shape]
    for name in names:
        if rng.random() < 0.9:
            rng.choice(share).append(name)
    dims = []
    odd = rng.randrange(len(shape))
    for i, (n, own) in enumerate(zip(shape, share, strict=True)):
        use = kind if i == odd or rng.random() < 0.4 else "plain"
        dims.append(random_dim(rng, n, own, mesh, use))
    return Layout(tuple(mesh.items()), tuple(dims), waits)


MESHES: dict[int, list[dict[str, int]]] = {
    1: [{"x": 1}],
    2: [{"x": 2}],
    3: [{"x": 3}],
    4: [{"x": 4}, {"x": 2, "y": 2}],
    6: [{"x": 6}, {"x": 2, "y": 3}, {"x": 3, "y": 2}],
}


def random_pair(seed: int, n_ranks: int, kind: str, factor: int = 1) -> tuple[Layout, Layout]:
    """Two layouts of one array, whose dims are ``factor`` times as large; ``pending`` is a kind too."""
    rng = random.Random(f"{seed} {n_ranks} {kind}")
    sizes = (1, 6, 7, 12, 16, 24, 30)
    shape = tuple(rng.choice(sizes) * factor for _ in range(rng.randint(1, 2)))
    if kind == "pending":
        own, source_waits, target_waits = rng.choice(KINDS), True, rng.random() < 0.3
    else:
        own, source_waits, target_waits = kind, False, False
    meshes = MESHES[n_ranks]
    a = rng.choice(meshes)
    b = rng.choice(meshes) if not source_waits and rng.random() < 0.3 else a
    source = random_layout(rng, shape, a, own, source_waits)
    other = own if rng.random() < 0.6 else "plain"
    target = random_layout(rng, shape, b, other, target_waits)
    if target.pending and source.pending and target.pending[0] != source.pending[0]:
        target = Layout(target.mesh, target.dims, (source.pending[0], target.pending[1]))
    return source, target
