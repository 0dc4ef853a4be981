"""Seeded random redistribution problems; at least a fifth in each of five kinds."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from redist.errors import LayoutError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, prime_parts
from redist.layout.mesh import Mesh
from redist.plan.rates import FLAT
from redist.plan.topology import Level, Topology

KINDS = ("even", "uneven", "sub-axes", "pending", "two meshes")
DEVICES = (8, 12, 16, 24, 30)
DTYPES = ("f32", "f64", "bf16", "i32", "i64", "u8", "c64")
SUMMABLE = ("f32", "f64", "i32", "i64", "u8")
NODES = Topology((Level("node", 4, 1_000_000, 100_000), Level("net", None, 10_000_000, 1_000_000)))
"""Four devices a node at 1 us and 10 GB/s, 10 us and 1 GB/s between nodes."""
TOPOLOGIES = {"flat": FLAT, "two levels": NODES}


@dataclass(frozen=True, slots=True)
class Problem:
    """A source, a target, and what is special about them."""

    kind: str
    source: ArrayType
    target: ArrayType

    def __str__(self) -> str:
        where = str(self.source.mesh)
        if self.target.mesh != self.source.mesh:
            where += f" -> {self.target.mesh}"
        return f"{self.source} -> {self.target} on {where}"


def problems(
    n: int,
    seed: int = 0,
    kinds: tuple[str, ...] = KINDS,
    devices: tuple[int, ...] = DEVICES,
    most_dims: int = 4,
) -> Iterator[Problem]:
    """``n`` problems, the kinds in turn; the same for the same seed on every machine.

    >>> [p.kind for p in problems(5)]
    ['even', 'uneven', 'sub-axes', 'pending', 'two meshes']
    """
    rng = random.Random(seed)
    for i in range(n):
        yield _problem(rng, kinds[i % len(kinds)], devices, most_dims)


def _problem(rng: random.Random, kind: str, devices: tuple[int, ...], most_dims: int) -> Problem:
    while True:
        mesh = _mesh(rng, rng.choice(devices))
        rank = rng.randint(1, most_dims)
        other = mesh
        if kind == "two meshes":
            other = _other_mesh(rng, mesh, devices)
        fine = kind == "sub-axes"
        uneven = kind == "uneven" or (kind in ("pending", "two meshes") and rng.random() < 0.5)
        a = _cuts(rng, mesh, rank, fine)
        b = _cuts(rng, other, rank, fine)
        pending: list[SubAxis] = []
        left: list[SubAxis] = []
        if kind == "pending":
            pending = _take_idle(rng, mesh, a)
            left = _take_idle(rng, mesh, b) if rng.random() < 0.25 else []
            if not pending:
                continue
        shape = tuple(_size(rng, a[i], b[i], uneven) for i in range(rank))
        op = rng.choice(("sum", "max", "min", "prod"))
        dtype = rng.choice(SUMMABLE if kind == "pending" else DTYPES)
        try:
            source = ArrayType.of(mesh, dtype, shape, a, {op: pending})
            target = ArrayType.of(other, dtype, shape, b, {op: left})
        except LayoutError:
            continue
        problem = Problem(kind, source, target)
        if source != target and is_of_its_kind(problem):
            return problem


def is_of_its_kind(problem: Problem) -> bool:
    """Whether a problem has what is special about its kind: chance may have left it out."""
    source, target = problem.source, problem.target
    match problem.kind:
        case "even":
            return source.is_even and target.is_even
        case "uneven":
            return not (source.is_even and target.is_even)
        case "sub-axes":
            ends = (source, target)
            return any(part.size < t.mesh.size(part.name) for t in ends for part in t.used)
        case "pending":
            return source.pending_op is not None
        case _:
            return source.mesh != target.mesh


def _mesh(rng: random.Random, n_devices: int, ranks: list[int] | None = None) -> Mesh:
    """A mesh of so many devices with one to four axes, now and then one of size 1."""
    sizes: list[int] = []
    for part in prime_parts(Mesh(p=n_devices)):
        if sizes and rng.random() < 0.4:
            sizes[rng.randrange(len(sizes))] *= part.size
        else:
            sizes.append(part.size)
    if rng.random() < 0.1:
        sizes.append(1)
    rng.shuffle(sizes)
    return Mesh([("xyzwuvabcdefgh"[i], size) for i, size in enumerate(sizes)], ranks=ranks)


def _other_mesh(rng: random.Random, mesh: Mesh, devices: tuple[int, ...]) -> Mesh:
    """Other axes and sizes on the same, overlapping or disjoint ranks."""
    n = mesh.n_devices
    where = rng.choice(("same", "permuted", "subset", "overlapping", "disjoint"))
    if where == "same":
        return _mesh(rng, n)
    if where == "permuted":
        return _mesh(rng, n, rng.sample(range(n), n))
    if where == "subset":
        m = rng.randint(1, n)
        return _mesh(rng, m, rng.sample(range(n), m))
    m = rng.choice([d for d in devices if d <= n] or [n])
    first = n if where == "disjoint" else n - rng.randint(1, min(m, n))
    return _mesh(rng, m, list(range(first, first + m)))


def _cuts(rng: random.Random, mesh: Mesh, rank: int, fine: bool) -> list[list[SubAxis]]:
    """Some axes (or prime pieces of them) on some dims, in any order."""
    if fine:
        pieces = list(prime_parts(mesh))
        if rng.random() < 0.3:
            pieces = [SubAxis(p.name, mesh.size(p.name) // p.end, p.size) for p in pieces]
    else:
        pieces = [SubAxis(name, 1, size) for name, size in mesh.axes]
    rng.shuffle(pieces)
    dims: list[list[SubAxis]] = [[] for _ in range(rank)]
    for piece in pieces:
        if rng.random() < 0.8:
            dims[rng.randrange(rank)].append(piece)
    return dims


def _take_idle(rng: random.Random, mesh: Mesh, dims: list[list[SubAxis]]) -> list[SubAxis]:
    used = {part for dim in dims for part in dim}
    idle = [p for name, size in mesh.axes for p in [SubAxis(name, 1, size)] if p not in used]
    idle = [part for part in idle if part.size > 1]
    if not idle:
        dim = rng.choice([d for d in dims if d])
        idle = [dim.pop()]
    return [part for part in idle if rng.random() < 0.7] or idle[:1]


def _size(rng: random.Random, a: list[SubAxis], b: list[SubAxis], uneven: bool) -> int:
    cuts = [math.prod(part.size for part in axes) for axes in (a, b)]
    if uneven and rng.random() < 0.8:
        return rng.choice((rng.randint(0, 7), rng.randint(1, 3 * max(cuts)), rng.randint(5, 90)))
    return math.lcm(*cuts) * rng.choice((1, 1, 2, 3, 4, 8))
