"""The memory model: allocation events of a plan, live bytes at every moment, staging and rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.steps import MIDDLE, Event
from redist.text.units import ceil_div

MIB = 2**20
HOLDERS = {
    "both": "a device of both meshes",
    "source": "a device of the source",
    "target": "a device of the target",
}
"""Kinds of ranks in words."""


def default_staging_bytes(source: ArrayType, target: ArrayType) -> int:
    """Bytes of staging that a step may use when no limit is given, in whole elements.

    >>> m = Mesh(x=2)
    >>> t = ArrayType.parse("f32[4194304{x}]", m)
    >>> default_staging_bytes(t, t) // 2**20
    1
    """
    larger = max(source.tile_bytes, target.tile_bytes)
    budget = max(larger // 8, min(MIB, larger // 2))
    return budget // source.dtype.itemsize * source.dtype.itemsize


def holder_classes(source: Mesh, target: Mesh) -> tuple[str, ...]:
    """Kinds of ranks: in both meshes, in the source only, in the target only.

    >>> holder_classes(Mesh(x=4), Mesh({"z": 2}, ranks=[2, 3]))
    ('both', 'source')
    """
    if source.ranks == target.ranks:
        return ("both",)
    a, b = set(source.ranks), set(target.ranks)
    kinds = (("both", a & b), ("source", a - b), ("target", b - a))
    return tuple(name for name, ranks in kinds if ranks)


def side(t: ArrayType, source: ArrayType, target: ArrayType) -> str:
    """Which ranks hold a value of type t: ``both`` where the two meshes are one set of ranks."""
    if source.mesh.ranks == target.mesh.ranks:
        return "both"
    return "source" if t.mesh == source.mesh else "target"


def source_events(types: Sequence[ArrayType], donate: bool) -> tuple[Event, ...]:
    """The allocations before the first step: the source, and a copy of it if there are no steps."""
    source, target = types[0], types[-1]
    last = max(0, len(types) - 2)
    at = side(source, source, target)
    kept = Event("source", source.tile_bytes, 0, 0 if donate else last, at)
    if len(types) == 1 and not donate:
        return kept, Event("target", target.tile_bytes, 0, 0, at)
    return (kept,)


def step_events(types: Sequence[ArrayType], number: int, staging_bytes: int) -> tuple[Event, ...]:
    """The allocations of step ``number``: its result, which lives through the next step, and staging."""
    last = len(types) - 2
    after = types[number + 1]
    what = "target" if number == last else MIDDLE
    at = side(after, types[0], types[-1])
    out = Event(what, after.tile_bytes, number, freed_at(number, last), at)
    return (out, Event("staging", staging_bytes, number, number, "both"))


def freed_at(number: int, last: int) -> int:
    """The last moment at which the result of a step lives: through the next step, if there is one.

    >>> freed_at(0, 2), freed_at(2, 2)
    (1, 2)
    """
    return min(number + 1, last)


def alive_events(events: Iterable[Event], moment: int, kind: str) -> list[Event]:
    """The allocations that are alive at a moment on one kind of rank."""
    return [
        event
        for event in events
        if event.born <= moment <= event.freed and (kind == "both" or event.at in ("both", kind))
    ]


def worst_class(events: Sequence[Event], moment: int, classes: Sequence[str]) -> str:
    """The kind of rank that holds the most bytes at a moment."""
    return max(classes, key=lambda kind: sum(e.n_bytes for e in alive_events(events, moment, kind)))


def live_bytes(events: Sequence[Event], moment: int, classes: Sequence[str]) -> int:
    """Bytes alive at a moment on the worst kind of rank."""
    kind = worst_class(events, moment, classes)
    return sum(event.n_bytes for event in alive_events(events, moment, kind))


def fixed_live_bytes(types: Sequence[ArrayType], donate: bool) -> tuple[int, ...]:
    """Live bytes of every step without staging; no limit can be lower."""
    steps = range(len(types) - 1)
    events = [*source_events(types, donate), *(e for k in steps for e in step_events(types, k, 0))]
    classes = holder_classes(types[0].mesh, types[-1].mesh)
    return tuple(live_bytes(events, moment, classes) for moment in range(max(1, len(steps))))


def hop_live_bytes(
    source: ArrayType,
    target: ArrayType,
    before: ArrayType,
    after: ArrayType,
    first: bool,
    donate: bool,
) -> int:
    """Live bytes of one step on the worst kind of rank, without staging.

    >>> t = ArrayType.parse("f32[8{x}]", Mesh(x=2))
    >>> hop_live_bytes(t, t, t, t, first=False, donate=False)
    48
    """
    held = [before, after] if first or donate else [source, before, after]
    return max(
        sum(
            t.tile_bytes
            for t in held
            if kind == "both" or side(t, source, target) in ("both", kind)
        )
        for kind in holder_classes(source.mesh, target.mesh)
    )


def staging_for(received_worst_bytes: int, budget_bytes: int, itemsize: int) -> int:
    """Bytes of staging of a step: what one round of sending and receiving needs, within the budget.

    If the budget has no room for an element, it is 0, and data goes straight from tile to tile.

    >>> staging_for(1000, 500, 4), staging_for(100, 500, 4), staging_for(100, 3, 4)
    (500, 200, 0)
    """
    return min(2 * received_worst_bytes, max(0, budget_bytes)) // itemsize * itemsize


def rounds_for(busiest_bytes: int, staging_bytes: int) -> int:
    """How often the staging is filled, half for sending and half for receiving; 1 without staging.

    >>> rounds_for(1000, 500), rounds_for(0, 0)
    (4, 1)
    """
    return max(1, ceil_div(2 * busiest_bytes, staging_bytes)) if staging_bytes else 1
