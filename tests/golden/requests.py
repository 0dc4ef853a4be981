"""Choose the 200 requests of the golden plans: ten groups of 20, the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice

from redist.errors import NoPlanError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.request import Request
from redist.plan.topology import Level, Topology
from redist.planner import synthesize
from tests.problems.problems import DEVICES, KINDS, problems

EACH = 20
SMALL = (4, 6, 8)
"""Numbers of devices on which a search over all types takes little time."""

TOPOLOGIES = (
    Topology((Level("node", 4, 10**6, 10**5), Level("net", None, 10**7, 10**6))),
    Topology(
        (
            Level("socket", 2, 500_000, 50_000),
            Level("node", 6, 10**6, 10**5),
            Level("net", None, 2 * 10**7, 8 * 10**5),
        ),
        step_ps=3 * 10**6,
    ),
    Topology((Level("all", None, 5 * 10**7, 10**4),), step_ps=10**7),
)

# Arrays of real sizes, whose staging goes in rounds: source, target, mesh, mesh of the target.
LARGE: tuple[tuple[str, str, Mesh, Mesh | None], ...] = (
    ("f32[4096{x}, 4096{y}]", "f32[4096{y}, 4096{x}]", Mesh(x=2, y=4), None),
    ("f32[65536{x}, 65536]", "f32[65536, 65536{x}]", Mesh(x=16), None),
    ("f64[1000{x}, 1000{y}, 1000]", "f64[1000, 1000{x}, 1000{y}]", Mesh(x=4, y=6), None),
    ("bf16[50257{m}, 12288] sum{d}", "bf16[50257, 12288{m,d}]", Mesh(d=4, m=8), None),
    ("f32[32768{d}, 8192{m}]", "f32[32768{m}, 8192]", Mesh(d=8, m=8), None),
    ("i64[1000003{x,y}]", "i64[1000003{y,x}]", Mesh(x=3, y=5), None),
    ("f32[8192{x}, 8192{y}]", "f32[8192, 8192{z}]", Mesh(x=2, y=4), Mesh(z=3, ranks=range(8, 11))),
    ("c64[512{x:(1)2}, 512{x:(2)2}, 512]", "c64[512, 512, 512{x}]", Mesh(x=4), None),
    ("f32[4096, 4096] max{x,y}", "f32[4096{y}, 4096{x}]", Mesh(x=4, y=2), None),
    ("u8[123456{x}, 789]", "u8[123456, 789{y}]", Mesh(x=6), Mesh(y=8, ranks=range(2, 10))),
)


def choose_requests() -> dict[str, Request]:
    """Choose every request, under the name that a failing test shows."""
    groups = {
        "even": [*_large(), *_drawn(10, 1, ("even",))],
        "uneven": _drawn(EACH, 2, ("uneven",)),
        "sub-axes": _drawn(EACH, 3, ("sub-axes",)),
        "pending": _drawn(EACH, 4, ("pending",)),
        "two-meshes": _drawn(EACH, 5, ("two meshes",)),
        "limit": islice(_limited(), EACH),
        "donate": [replace(r, donate=True) for r in _drawn(EACH, 7)],
        "bytes": [replace(r, objective="bytes") for r in _drawn(EACH, 8)],
        "strategy": _with_strategies(),
        "topology": _with_topologies(),
    }
    return {
        f"{group}-{number:02}": request
        for group, requests in groups.items()
        for number, request in enumerate(requests)
    }


def _drawn(
    n: int, seed: int, kinds: tuple[str, ...] = KINDS, devices: tuple[int, ...] = DEVICES
) -> list[Request]:
    return [Request(p.source, p.target) for p in problems(n, seed, kinds, devices)]


def _large() -> list[Request]:
    return [
        Request(ArrayType.parse(source, mesh), ArrayType.parse(target, other or mesh))
        for source, target, mesh, other in LARGE
    ]


def _limited() -> Iterator[Request]:
    """Limits between what is needed and what is wanted, the least that does, and a byte less."""
    for request in [*_large()[:4], *_drawn(20, 6)]:
        wanted = synthesize(request.source, request.target).peak_bytes
        try:
            synthesize(request.source, request.target, limit_bytes=0)
        except NoPlanError as error:
            least = error.least_bytes
            if least < wanted:
                limits = ((least + wanted) // 2, least, least - 1)
                yield from (replace(request, limit_bytes=limit) for limit in limits)


def _with_strategies() -> Iterator[Request]:
    names = cycle(("collectives", "no_permute", "direct", "collectives"))
    kinds = ("even", "uneven", "sub-axes", "pending")
    for request, strategy in zip(_drawn(EACH, 9, kinds, SMALL), names, strict=False):
        yield replace(request, strategy=strategy)


def _with_topologies() -> Iterator[Request]:
    for request, topology in zip(_drawn(EACH, 10), cycle(TOPOLOGIES), strict=False):
        yield replace(request, topology=topology)
