"""Allocations: what the runtime allocates is never more than what the memory model says.

Statement. For every array, plan, number of ranks and staging of 8 KiB or more:
(1) no tile is larger than a full one, which is what the model counts;
(2) the two slots of a rank's pool and what it packs to send and to receive take no more than the
staging of the plan, whether all ranks share memory, none do, or some do;
(3) tiles on the way stay allocated between calls only if all tiles and staging fit the bound; a target
that exists from the start fits it at every step, or the plan is called tight and its pages are given
back; (4) of arrays that move together, all tiles and the staging that they share fit the bound of the
batch.

Encoding. ``EvenCut.range_of``, ``OwnTiles.keeps``, ``TransferStages.is_tight``,
``TransferStages.staging_bytes`` and ``TransferStages.peak_bytes`` are the program's own functions, run
on symbols (:mod:`proofs.engine.branches`).
:func:`staging_taken` says how ``Staging.of`` divides staging, which asks all ranks and so cannot be
run on symbols; a test compares the two.

What joins the obligations. *Dims*: a tile's bytes are a product over dims, each factor at most that of
a full tile; the lemma on products is the step of the induction. *Steps and arrays*: the functions take
sums and maxima over steps, stages and arrays; the obligations have three steps, and two arrays of two
steps, and more add terms of the same kind on both sides. That buffers are freed when the model says so
is compared on random plans by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from types import SimpleNamespace
from typing import Any

from proofs.engine.branches import claimed, symbols
from proofs.engine.theorem import Obligation, Shown, Theorem, Twin
from proofs.evidence.weighing import Wanted
from proofs.theorems.memory import SIZES, middle, source, target, tile
from redist.layout.cuts import EvenCut
from redist.runtime.host.executor import OwnTiles
from redist.runtime.host.staging import (
    BOOK_BYTES,
    GRAIN_BYTES,
    LEAST_BOOK_BYTES,
    LEAST_HOST_HALF_BYTES,
    MAX_MESSAGE_BYTES,
)
from redist.runtime.ranks.control_page import LEAST_POOL_BYTES
from redist.runtime.schedule.stages import TransferStages, is_tight
from redist.runtime.simulator import random_tiles, simulate
from redist.text.units import ceil_div


def staging_taken(
    staging_bytes: Any,
    is_limited: bool,
    one_node: bool,
    shared: bool,
    need: Any,
    combined: Any,
    halves: int,
) -> tuple[Any, Any]:
    """A slot, and the bytes of pool, send and receive buffers, as ``Staging.of`` divides staging.

    ``shared`` says that some node has several ranks; ``need`` is what a slot must hold on the fullest
    rank, ``combined`` what partial values this rank must receive at once. With two ``halves`` there
    are two buffers for messages to send, and two for those to receive. Where nothing is packed on one of
    the two sides, the other has both buffers as one, which takes no more.
    """
    book = min(LEAST_BOOK_BYTES, staging_bytes // 2) if is_limited else 0
    spare = max(book, min(BOOK_BYTES, staging_bytes // 8))
    budget = max(staging_bytes - spare, LEAST_POOL_BYTES)
    share = budget if one_node or not shared else budget // 2
    slot = min(share // 2, MAX_MESSAGE_BYTES)
    if one_node or bool(share // 4 < LEAST_HOST_HALF_BYTES):
        halves = 1  # smaller staging is not halved
    else:
        slot = min(share // 4 // GRAIN_BYTES * GRAIN_BYTES, MAX_MESSAGE_BYTES)
    pool = 2 * (-(-need // 64) * 64) if shared else 0
    packed = 0 if one_node else slot
    return slot, pool + halves * (packed + max(packed, combined))


def obligations() -> Iterator[Obligation]:
    """See the module."""
    n, k, i = symbols("n k i")

    def full() -> list[Any]:
        lo, hi = EvenCut(n, k).range_of(i)
        return [hi - lo >= 0, hi - lo <= ceil_div(n, k)]

    yield claimed("tile: none is larger than a full one", (n >= 0, k >= 1, i >= 0, i < k), full)
    held, full_held, factor, full_factor = symbols("held full_held factor full_factor")
    yield claimed(
        "lemma: a product does not grow when its factors fall",
        (held >= 0, held <= full_held, factor >= 0, factor <= full_factor),
        lambda: held * factor <= full_held * full_factor,
    )
    staging, need, combined = symbols("staging need combined")
    given = (staging >= LEAST_POOL_BYTES, need >= 0, combined >= 0)
    kinds = {"one node": (True, True), "nodes of one": (False, False), "nodes": (False, True)}
    for name, (one_node, shared) in kinds.items():
        for is_limited, halves in product((False, True), (1,) if one_node else (1, 2)):

            def fits(args: Any = (is_limited, one_node, shared, halves)) -> Any:
                limited, together, some, n = args
                partial = 0 if together else combined  # they come from other nodes
                slot, taken = staging_taken(staging, limited, together, some, need, partial, n)
                return True if need > slot or partial > slot else taken <= staging

            limit = "under a limit" if is_limited else "no limit"
            halved = ", in two halves" if halves == 2 else ""
            yield claimed(f"staging taken: {name}, {limit}{halved}", given, fits)
    yield from _kept_and_tight()
    yield _batch()


def _kept_and_tight() -> Iterator[Obligation]:
    peak, room_0, room_1, middle_2 = symbols("peak room_0 room_1 middle_2")
    sizes = (source, middle, middle_2, target)
    types = [tile(size) for size in sizes]
    given = (*SIZES, *(r >= 0 for r in (peak, room_0, room_1, middle_2)))

    def kept(placed_tiles: Lodgers) -> Callable[[], Any]:
        def claim() -> Any:
            schedule: Any = SimpleNamespace(
                plans=[SimpleNamespace(types=types)],
                stages=[(), ()],
                staging_bytes=lambda stage: (room_0, room_1)[stage],
                peak_bytes=lambda: peak,
                placed_tiles=lambda: placed_tiles,
                has_memory=lambda item, buffer: True,
            )
            own = [size for k, size in enumerate(sizes) if (0, k) not in placed_tiles]
            held = sum(own) + max(room_0, room_1)
            return held <= peak if OwnTiles(schedule, donate=False).keeps else True

        return claim

    def planned(donate: bool) -> Any:
        steps = [SimpleNamespace(staging_bytes=r, action=None) for r in (room_0, room_1, 0)]
        return SimpleNamespace(
            types=types, steps=steps, donate=donate, peak_bytes=peak, source=types[0],
            target=types[-1],
        )  # fmt: skip

    def viewed() -> Any:
        """The first step is a slice, and the source is kept: the second reads it."""
        if is_tight(planned(donate=False), (0, 0, 2, 3), ()):
            return True
        return source + middle_2 + target + room_1 <= peak

    def early(donate: bool, placed_tiles: Lodgers) -> Callable[[], Any]:
        def claim() -> Any:
            schedule: Any = SimpleNamespace(plans=[planned(donate)], homes=[(0, 1, 2, 3)])
            if TransferStages.is_tight_beside(schedule, placed_tiles):
                return True
            still = 0 if donate else source
            first = 0 if placed_tiles else middle  # it lies in the target
            return [
                source + first + target + room_0 <= peak,
                still + first + middle_2 + target + room_1 <= peak,
            ]

        return claim

    none: Lodgers = {}
    one: Lodgers = {(0, 1): 0}
    yield claimed("kept tiles: only where the bound has room for all", given, kept(none), kept(one))
    ways = product((False, True), (none, one))
    claims = (early(donate, placed_tiles) for donate, placed_tiles in ways)
    yield claimed("target from the start: within the bound, or the plan is tight", given, *claims)
    yield claimed(
        "slices as views: what reads the source is within the bound beside an early target",
        given,
        viewed,
    )
    yield _placed_tiles()


Lodgers = dict[tuple[int, int], Any]


def _placed_tiles() -> Obligation:
    """Tiles of a plan of four steps in the memory of its target: the last tile but one is never there."""
    first, second, third, whole = names = symbols("first second third whole")
    types = [tile(size) for size in (whole, first, second, third, whole)]
    for t in types:
        t.is_even = True

    def apart() -> Any:
        plan = SimpleNamespace(types=types, target=types[-1])
        schedule: Any = SimpleNamespace(
            is_tight=True, plans=[plan], last=lambda item: 4, has_memory=lambda item, buffer: True
        )
        found = TransferStages.placed_tiles(schedule)
        sizes = {(0, 1): first, (0, 2): second}
        claims = [True] if found.keys() <= sizes.keys() else [False]
        claims += [start >= 0 for start in found.values()]
        claims += [start + sizes[key] <= whole for key, start in found.items()]
        if len(found) == 2:
            a, b = found[0, 1], found[0, 2]
            claims.append(True if a + first <= b else b + second <= a)
        return claims

    return claimed(
        "tiles in the target: inside it, apart, read before it is written",
        [name >= 0 for name in names],
        apart,
    )


def _batch() -> Obligation:
    """Two arrays of two steps each, side by side."""
    names = [
        [f"{what}_{item}_{k}" for k in (0, 1)] for what in ("fixed", "room") for item in (0, 1)
    ]
    values = [symbols(" ".join(pair)) for pair in names]
    fixed, rooms = values[:2], values[2:]

    def plan(item: int) -> Any:
        pairs = zip(fixed[item], rooms[item], strict=True)
        steps = [SimpleNamespace(peak_bytes=f + r, staging_bytes=r) for f, r in pairs]
        return SimpleNamespace(steps=steps, peak_bytes=max(step.peak_bytes for step in steps))

    def held() -> list[Any]:
        parts = [[SimpleNamespace(item=item, step_number=k) for item in (0, 1)] for k in (0, 1)]
        schedule: Any = SimpleNamespace(plans=[plan(0), plan(1)], stages=parts)
        schedule.staging_bytes = lambda stage: TransferStages.staging_bytes(schedule, stage)
        bound = TransferStages.peak_bytes(schedule)
        return [fixed[0][k] + fixed[1][k] + schedule.staging_bytes(k) <= bound for k in (0, 1)]

    given = [value >= 0 for pair in values for value in pair]
    return claimed("batch: tiles of all arrays and their staging within the bound", given, held)


# Wrong variants -----------------------------------------------------------------------------


def pool_without_spare(staging_bytes: Any) -> Any:
    """A pool of two slots that fill all staging, each rounded up to whole cache lines."""
    return 2 * (-(-(staging_bytes // 2) // 64) * 64)


def _no_spare() -> Obligation:
    elems = symbols("elems")[0]
    small = (4 * elems >= LEAST_POOL_BYTES, 4 * elems <= 2 * LEAST_POOL_BYTES)
    return claimed(
        "no spare", small, lambda: pool_without_spare(4 * elems) <= 4 * elems, shown=(elems,)
    )


def _show_no_spare(v: Mapping[str, int]) -> Shown:
    n = v["elems"]
    asked = Wanted(f"i32[{2 * n}{{x}}]", f"i32[{2 * n}]", "x=2", limit_bytes=16 * n)
    plan = asked.plan()
    (step,) = plan.steps
    held = max(simulate(plan, random_tiles(plan.source)).held_bytes.values())
    pool = pool_without_spare(step.staging_bytes)
    _, taken = staging_taken(step.staging_bytes, True, True, True, 0, 0, 1)
    tiles = held - step.staging_bytes
    return Shown(
        asked.command("simulate"),
        tiles + pool > plan.peak_bytes >= tiles + taken,
        f"{tiles} bytes of tiles and a pool of {pool} are over the limit of {plan.limit_bytes}; "
        f"the simulator measures {held} with the {step.staging_bytes} that the plan grants",
    )


THEOREM = Theorem(
    "allocations",
    "What the runtime allocates is within the model: tiles, the slots of pools, what is packed for "
    "other nodes, tiles kept between calls or lying in the target until it is written, a target that exists "
    "from the start, and batches.",
    "Dims by induction with a lemma on products; steps and arrays as terms of sums and maxima.",
    "Staging below 8 KiB: a pool has that much all the same. Slots in which one element of each box "
    "does not fit, and receive buffers for one element of each partial value from other nodes: they "
    "grow beyond the plan. A pool made for a larger transfer before (its pages are given back under a "
    "limit). Control pages, tables, Python's and MPI's own memory, for which an eighth of staging "
    "(under a limit 64 KiB or half) is left unused. Pages of a target that exists from the start are given "
    "back in tight plans, not unreserved. A donated array whose type does not change, if it goes into "
    "an ``out`` of its own. Padding of allocators.",
    obligations,
    (Twin("no spare for rounding up", _no_spare, _show_no_spare),),
)
