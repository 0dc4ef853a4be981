"""Memory: live bytes never exceed the model, and the model never exceeds its closed forms.

Statement. For tiles, staging, limits and numbers of steps of any size:
(1) at every moment the allocations of a plan that are alive are the source (until its first step is
done where it is donated), the result of the step before, the result of this step, and this step's
staging; together they are what the model says of the step, on every kind of rank of two meshes.
(2) Staging is at most half the larger end and never above what a limit leaves.
(3) A plan in normal form (one slice, steps between tiles of one size m, one gather; any may be left
out) never exceeds source + target + m + staging where the source is kept, and source + target +
staging where it is donated; one exchange never exceeds source + target + staging. Any other plan whose
largest middle tile is m never exceeds source + max(target, m) + m + staging, or max(source, m) +
max(target, m) + staging. That the runtime allocates no more is the theorem ``allocations``.

Encoding. Sizes of tiles, staging, limits and step numbers are symbols. ``freed_at``, ``alive_events``,
``source_events``, ``step_events``, ``live_bytes``, ``hop_live_bytes``, ``default_staging_bytes``,
``staging_for`` and ``Pricer.budget_bytes`` are the program's own functions (:mod:`proofs.engine.branches`).
They ask of meshes only whether the same ranks play them and which ranks are in one or both, so one
pair of meshes stands for each of the five answers.

What joins the obligations. *Moments*: what is alive at a moment is said for any step and any number of
steps by "alive: ..."; the obligations "model: ..." then add the sizes up for plans of up to three
steps, in which every place of a step occurs: the only one, the first, one in between, the last.
*Closed forms*: every step of a plan is one of those named there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from proofs.engine.branches import claimed, symbols
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.weighing import Wanted, wrong_peak
from redist.layout.axes import whole
from redist.layout.mesh import Mesh
from redist.plan.memory import (
    MIB,
    alive_events,
    default_staging_bytes,
    freed_at,
    holder_classes,
    hop_live_bytes,
    live_bytes,
    source_events,
    staging_for,
    step_events,
)
from redist.plan.rates import FLAT
from redist.plan.steps import Event
from redist.synth.plan_figures import Pricer
from redist.synth.routes import via

source, target, middle, other, most, room, itemsize = symbols(
    "source target middle other most room itemsize"
)
SIZES = (source >= 0, target >= 0, middle >= 0, other >= 0, itemsize >= 1)
STAGING = (room >= 0, most >= room)
ONE = Mesh(x=2)
MESHES = {
    "one set of ranks": (ONE, ONE),
    "some ranks in both": (ONE, Mesh({"z": 2}, ranks=[1, 2])),
    "target within source": (ONE, Mesh({"z": 1}, ranks=[1])),
    "source within target": (ONE, Mesh({"z": 3}, ranks=[0, 1, 2])),
    "no rank in both": (ONE, Mesh({"z": 2}, ranks=[2, 3])),
}


def tile(n_bytes: Any, mesh: Mesh = ONE) -> Any:
    """What the memory model asks of a type."""
    return SimpleNamespace(tile_bytes=n_bytes, mesh=mesh, dtype=SimpleNamespace(itemsize=itemsize))


def obligations() -> Iterator[Obligation]:
    """See the module."""
    yield from _alive()
    yield from _model()
    yield from _staging()
    yield from _closed_forms()


# The model ----------------------------------------------------------------------------------


def _alive() -> Iterator[Obligation]:
    number, moment, last = symbols("number moment last")
    within = (number >= 0, number <= last, moment >= 0, moment <= last)

    def lives(event: Event) -> bool:
        return bool(alive_events([event], moment, "both"))

    def result() -> bool:
        near = bool(moment == number) or bool(moment == number + 1)
        return lives(Event("middle", middle, number, freed_at(number, last), "both")) == near

    def staging() -> bool:
        return lives(Event("staging", room, number, number, "both")) == bool(moment == number)

    yield claimed("alive: a result during its step and the next", within, result)
    yield claimed("alive: staging during its step", within, staging)

    def the_source(steps: int, donate: bool) -> Callable[[], Any]:
        def claim() -> Any:
            (event,) = source_events([tile(source)] * (steps + 1), donate)
            return bool(moment >= steps) or lives(event) == (not donate or bool(moment == 0))

        return claim

    claims = [the_source(steps, donate) for steps in (1, 2, 3, 4) for donate in (False, True)]
    yield claimed("alive: the source to the end, or during the first step", within, *claims)


def _model() -> Iterator[Obligation]:
    rooms = symbols("room_0 room_1 room_2")
    middles = symbols("middle_1 middle_2")
    given = (*SIZES, *(r >= 0 for r in rooms), *(m >= 0 for m in middles))

    def step(types: list[Any], number: int, donate: bool) -> Callable[[], Any]:
        def claim() -> Any:
            steps = range(len(types) - 1)
            events = [*source_events(types, donate)]
            events += [e for k in steps for e in step_events(types, k, rooms[k])]
            classes = holder_classes(types[0].mesh, types[-1].mesh)
            hop = types[0], types[-1], types[number], types[number + 1], number == 0, donate
            return live_bytes(events, number, classes) == hop_live_bytes(*hop) + rooms[number]

        return claim

    for name, (here, there) in MESHES.items():
        claims = []
        for steps in (1, 2, 3):
            sizes = [source, *middles[: steps - 1], target]
            for crossed in range(1, steps + 1):
                types = [tile(n, here if k < crossed else there) for k, n in enumerate(sizes)]
                claims += [step(types, k, d) for k in range(steps) for d in (False, True)]
        yield claimed(f"model: live bytes are those of the step, {name}", given, *claims)

    def copied() -> list[Any]:
        both = [source_events([tile(source)], donate) for donate in (False, True)]
        live = [live_bytes(events, 0, ("both",)) for events in both]
        return [live[0] == source + source, live[1] == source]

    yield claimed("model: without steps a copy of the source, or nothing more", SIZES, copied)


def _staging() -> Iterator[Obligation]:
    received, limit, fixed = symbols("received limit fixed")
    ends = tile(source), tile(target)
    given = (*SIZES, received >= 0)

    def half() -> list[Any]:
        budget = default_staging_bytes(*ends)
        return [budget >= 0, 2 * budget <= max(source, target)]

    def eighth() -> Any:
        return 8 * default_staging_bytes(*ends) <= max(source, target, 8 * MIB)

    def granted() -> list[Any]:
        staging = staging_for(received * itemsize, room, itemsize)
        least = staging >= itemsize if received >= 1 and room >= itemsize else True
        fits = [staging >= 0, staging <= room, staging <= 2 * received * itemsize, least]
        return [*fits, staging % itemsize == 0]

    def limited() -> Any:
        pricer: Any = SimpleNamespace(source=ends[0], target=ends[1], limit_bytes=limit)
        budget = Pricer.budget_bytes(pricer, fixed)
        return fixed + staging_for(received, budget, itemsize) <= limit

    yield claimed("staging: at most half the larger end", given, half)
    yield claimed("staging: at most an eighth of the larger end, from 8 MiB on", given, eighth)
    yield claimed("staging: within the budget, in whole elements", (*given, room >= 0), granted)
    yield claimed(
        "staging: within what a limit leaves", (*given, fixed >= 0, fixed <= limit), limited
    )


# The closed forms ---------------------------------------------------------------------------


def row(before: Any, after: Any, first: bool, donate: bool) -> Any:
    """Live bytes of a step on one mesh, with staging."""
    ends = tile(source), tile(target)
    return hop_live_bytes(*ends, tile(before), tile(after), first, donate) + room


def _closed_forms() -> Iterator[Obligation]:
    given = (*SIZES, *STAGING)
    small = (middle <= source, middle <= target)
    places = {
        "the first step": (source, middle, True),
        "between middles": (middle, middle, False),
        "the last step": (middle, target, False),
    }
    for name, (before, after, first) in places.items():
        yield claimed(
            f"normal form: {name}",
            (*given, *small),
            lambda b=before, a=after, f=first: [
                row(b, a, f, False) <= source + target + middle + most,
                row(b, a, f, True) <= source + target + most,
            ],  # type: ignore[misc]
        )
    rising = (other <= middle, middle <= target)
    yield claimed(
        "normal form with gathers apart: a tile grows up to the target",
        (*given, *rising),
        lambda: [
            row(other, middle, False, False) <= source + target + middle + most,
            row(other, middle, False, True) <= middle + target + most,
        ],
    )
    for name, (here, there) in MESHES.items():
        yield claimed(
            f"any plan: steps within the closed form, {name}",
            (*given, other <= middle),
            *_any_step(here, there),
        )


def _any_step(here: Mesh, there: Mesh) -> Iterator[Callable[[], Any]]:
    """Each kind of step between two meshes, source kept or donated, against the closed form."""
    ends = tile(source, here), tile(target, there)

    def step(before: Any, after: Any, first: bool, donate: bool) -> Callable[[], Any]:
        def claim() -> list[Any]:
            live = hop_live_bytes(*ends, before, after, first, donate) + room
            if before is ends[0] and after is ends[1]:
                return [live <= source + target + most]
            if donate:
                return [live <= max(source, middle) + max(target, middle) + most]
            return [live <= source + max(target, middle) + middle + most]

        return claim

    for donate in (False, True):
        yield step(*ends, True, donate)
        for mesh in (here, there):
            one, two = tile(other, mesh), tile(middle, mesh)
            yield step(ends[0], two, True, donate)
            yield step(two, ends[1], False, donate)
            yield step(one, two, False, donate)
            yield step(two, one, False, donate)
            yield step(tile(middle, here), tile(middle, there), False, donate)


# Wrong variants -----------------------------------------------------------------------------

rows, columns, x, y = symbols("rows columns x y")
ARRAY = (
    *(n >= 1 for n in (rows, columns)),
    *(n <= 3 for n in (rows, columns, x, y)),
    *(n >= 2 for n in (x, y)),
    source == 4 * rows * (y * columns),
    middle == 4 * rows * columns,
    target == 4 * (x * rows) * columns,
    room == most,
    most >= 0,
)
"""i32[x rows {x}, y columns] -> i32[x rows, y columns {y}]: a slice, then a gather."""


def wanted(v: Mapping[str, int], strategy: str = "no_permute") -> Wanted:
    """The request for such an array."""
    height, width = v["x"] * v["rows"], v["y"] * v["columns"]
    mesh = f"x={v['x']},y={v['y']}"
    return Wanted(
        f"i32[{height}{{x}}, {width}]", f"i32[{height}, {width}{{y}}]", mesh, strategy=strategy
    )


def _claims_of_last(less: Any) -> Obligation:
    """That the last step, source kept, needs so much less than source + target + middle + staging."""
    return claimed(
        "less",
        ARRAY,
        lambda: row(middle, target, False, False) <= source + target + middle + most - less,
        shown=(rows, columns, x, y),
    )


def _show_byte_less(v: Mapping[str, int]) -> Shown:
    plan = wanted(v).plan()
    ends = plan.source.tile_bytes + plan.target.tile_bytes
    bound = ends + plan.types[1].tile_bytes + plan.steps[-1].staging_bytes
    return wrong_peak("memory-byte-less", plan, bound - 1, "one byte less than the bound")


def _show_no_middle(v: Mapping[str, int]) -> Shown:
    plan = wanted(v).plan()
    said = plan.source.tile_bytes + plan.target.tile_bytes + plan.steps[-1].staging_bytes
    return wrong_peak("memory-no-middle", plan, said, "source kept, but no middle counted")


def _no_staging() -> Obligation:
    given = (*ARRAY, room >= 4)
    return claimed(
        "none", given, lambda: row(source, target, True, False) <= source + target,
        shown=(rows, columns, x, y),
    )  # fmt: skip


def _show_no_staging(v: Mapping[str, int]) -> Shown:
    plan = wanted(v, "direct").plan()
    said = plan.source.tile_bytes + plan.target.tile_bytes
    return wrong_peak("memory-no-staging", plan, said, "one exchange without staging")


def _gathers_apart() -> Obligation:
    """Donated i32[x y rows {x,y}] -> {x} -> whole, gathered one axis at a time."""
    sizes = (source == 4 * rows, middle == source * y, target == middle * x)
    small = (x >= 2, x <= 3, y >= 2, y <= 3, rows >= 1, rows <= 3)
    return claimed(
        "apart",
        (*small, *sizes, room == most, most >= 0),
        lambda: row(middle, target, False, True) <= source + target + most,
        shown=(rows, x, y),
    )


def _show_gathers_apart(v: Mapping[str, int]) -> Shown:
    n, mesh = v["x"] * v["y"] * v["rows"], f"x={v['x']},y={v['y']}"
    plan = Wanted(f"i32[{n}{{x,y}}]", f"i32[{n}]", mesh, strategy="direct", donate=True).plan()
    half = plan.source.with_dims([[whole(plan.source.mesh, "x")]])
    pricer = Pricer(plan.source, plan.target, FLAT, None, True)
    plan = replace(plan, steps=pricer.steps(via(plan.source, [half, plan.target])))
    staging = max(step.staging_bytes for step in plan.steps)
    said = plan.source.tile_bytes + plan.target.tile_bytes + staging
    return wrong_peak("memory-gathers-apart", plan, said, "donated, gathered axis by axis")


THEOREM = Theorem(
    "memory",
    "Live bytes of every step are what the model says; a plan in normal form stays within source + "
    "target + middle + staging (kept) or source + target + staging (donated), one exchange within "
    "source + target + staging, any plan within source + max(target, middle) + middle + staging or "
    "max(source, middle) + max(target, middle) + staging; staging stays within what a limit leaves.",
    "Any number of steps by what is alive at a moment; every step is one of the kinds named.",
    "Normal form means one slice and one gather: gathered one axis at a time, a donated array needs "
    "max(source, middle) + target + staging. Plans that reduce have the closed form of any plan only. "
    "That the middle of a normal form is the smallest tile is the theorem rewrites.",
    obligations,
    (
        Twin("one byte less", lambda: _claims_of_last(1), _show_byte_less),
        Twin("the middle tile forgotten", lambda: _claims_of_last(middle), _show_no_middle),
        Twin("an exchange without staging", _no_staging, _show_no_staging),
        Twin("gathers taken apart, as one", _gathers_apart, _show_gathers_apart),
    ),
)
