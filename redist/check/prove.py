"""Certificates: Z3 proves that live bytes never exceed a bound, for this array and for others.

Z3 gets two things that were made apart: the plan's allocation events, and a bound written from the
types alone: at every step the source (if kept), the tile before, the tile after, and staging by the
rule of the memory model. It looks for a size and a moment at which more is alive than at any step of
the bound, or at which the bound is above source + target + middle + staging.

With a limit the claim is about this array alone. Without one, and where all tiles are even, dims are
n_i = K_i t_i (K_i = lcm of all cuts of dim i in the plan), so every tile is a number times
M = t_1 t_2 ..., and one integer M >= 1 stands for all sizes. Where tiles are not even, one dim at a
time grows from its size on, with one integer per cut for the rounded-up tile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import z3

from redist.check.families import Scale, named_dims, received_worst, scales, scope
from redist.layout.array_type import ArrayType
from redist.plan.plan import Certificate, Plan
from redist.plan.steps import Event

MIB = 2**20
TIMEOUT_S = 5.0


def certify(
    plan: Plan, *, bound_bytes: int | None = None, timeout_s: float = TIMEOUT_S
) -> Certificate:
    """Prove, refute or give up on the memory bound of a plan; ``unknown`` is never called proved.

    >>> import redist
    >>> plan = redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2))
    >>> certify(plan).verdict, certify(plan, bound_bytes=plan.peak_bytes - 1).verdict
    ('proved', 'refuted')

    With ``bound_bytes`` the claim is instead that this array stays within that many bytes.
    """
    started = time.perf_counter()
    formula = _formula(plan)
    if bound_bytes is not None:
        claims = [_constant_claim(plan, bound_bytes)]
        formula, covered = f"{bound_bytes} bytes", "this array"
    else:
        claims, covered = list(_claims(plan)), scope(plan)
    bound = _peak_here(plan) if bound_bytes is None else bound_bytes
    verdict, reason = "proved", ""
    counterexample: tuple[tuple[str, int], ...] = ()
    for claim in claims:
        solver = claim.solver()
        solver.set("timeout", max(1, int(timeout_s * 1000)))
        answer = solver.check()
        if answer == z3.sat:
            verdict, counterexample = "refuted", claim.sizes(solver.model())
            break
        if answer != z3.unsat:
            verdict, reason = "unknown", f"{claim.name}: {solver.reason_unknown()}"
    seconds = time.perf_counter() - started
    return Certificate(verdict, formula, bound, covered, "z3", reason, counterexample, seconds)


def smt2(plan: Plan) -> str:
    """The queries of a certificate in SMT-LIB; every one must be unsatisfiable.

    >>> import redist
    >>> text = smt2(redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2)))
    >>> "(check-sat)" in text
    True
    """
    return "\n".join(f"; {c.name}: expect unsat\n{c.solver().to_smt2()}" for c in _claims(plan))


def count_queries(plan: Plan) -> int:
    """How many questions Z3 is asked for a certificate: one for each family of sizes."""
    return sum(1 for _ in _claims(plan))


def formula_bytes(plan: Plan) -> int:
    """What the formula of a certificate comes to for this array; the bound is never above it.

    >>> import redist
    >>> plan = redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2))
    >>> formula_bytes(plan), certify(plan).bound_bytes
    (64, 64)
    """
    tiles = {t: z3.IntVal(t.tile_bytes) for t in plan.types}
    rooms = [z3.IntVal(_staging_here(plan, number)) for number in range(len(plan.steps))]
    return int(z3.simplify(_closed_form(plan, tiles, rooms)).as_long())


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim by its negation: constraints that no sizes satisfy if the claim is true."""

    name: str
    negation: tuple[Any, ...]
    scale: Scale | None
    here: tuple[tuple[str, int], ...]

    def solver(self) -> z3.Solver:
        """A solver that looks for a counterexample."""
        solver = z3.SimpleSolver()
        solver.add(*self.negation)
        return solver

    def sizes(self, model: z3.ModelRef) -> tuple[tuple[str, int], ...]:
        """The dims of the counterexample."""
        if self.scale is None:
            return self.here
        value = model.eval(self.scale.variable, model_completion=True).as_long()
        return self.here if value == self.scale.here else self.scale.sizes(value)


def _claims(plan: Plan) -> Iterator[Claim]:
    for scale in scales(plan):
        tiles = {t: scale.tile_bytes(t) for t in plan.types}
        rooms = [_staging_rule(plan, scale, tiles, k) for k in range(len(plan.steps))]
        rows = _bound_rows(plan, tiles, rooms)
        live, allowed = _live_rows(plan, scale, tiles, rooms)
        closed = _closed_form(plan, tiles, rooms)
        over = [z3.And(*(total > row for row in rows)) for total in live]
        beyond = [row > closed for row in rows]
        name = f"live bytes within the bound, the bound within {_formula(plan)}, {scale.name}"
        negation = (*scale.range, *allowed, z3.Or(*over, *beyond))
        yield Claim(name, negation, scale, named_dims(plan.source.shape))


def _constant_claim(plan: Plan, bound_bytes: int) -> Claim:
    """This array, this number: some moment has more alive than that."""
    live = [_sum([z3.IntVal(event.n_bytes) for event in alive]) for alive in _alive(plan)]
    over = z3.Or(*(total > bound_bytes for total in live))
    return Claim(
        f"live bytes stay within {bound_bytes}", (over,), None, named_dims(plan.source.shape)
    )


# The two sides ------------------------------------------------------------------------------


Tiles = dict[ArrayType, Any]


def _bound_rows(plan: Plan, tiles: Tiles, rooms: list[Any]) -> list[Any]:
    """Live bytes of every step by the types alone, on every kind of rank."""
    if not plan.steps:
        return [(1 if plan.donate else 2) * tiles[plan.source]]
    return [
        _sum([*(tiles[t] for t in parts), rooms[number]])
        for number in range(len(plan.steps))
        for parts in _tiles_of_step(plan, number)
    ]


def _tiles_of_step(plan: Plan, number: int) -> Iterator[list[ArrayType]]:
    """The types whose tiles a step needs at once, on every kind of rank."""
    types = plan.types
    parts = [types[number], types[number + 1]]
    if number > 0 and not plan.donate:
        parts.append(types[0])
    for kind in _kinds(plan):
        yield [t for t in parts if kind in ("all", _side(plan, t))]


def _live_rows(
    plan: Plan, scale: Scale, tiles: Tiles, rooms: list[Any]
) -> tuple[list[Any], list[Any]]:
    """Live bytes at every moment by the events, on every kind of rank.

    An event has its size for this array; for others it grows as the tile of its type does, and
    staging may be anything that the staging rule allows.
    """
    allowed: list[Any] = []
    sized: dict[Event, Any] = {}
    for event in plan.events:
        if event.what == "staging":
            room = z3.Int(f"staging_{event.born}")
            excess = max(0, event.n_bytes - _staging_here(plan, event.born))
            allowed += [room >= 0, room <= rooms[event.born] + excess]
            here = scale.variable == scale.here
            allowed.append(z3.Implies(here, room == event.n_bytes))
            sized[event] = room
        else:
            t = _type_of(plan, event)
            excess = event.n_bytes - t.tile_bytes
            sized[event] = tiles[t] + excess if excess else tiles[t]
    return [_sum([sized[event] for event in alive]) for alive in _alive(plan)], allowed


def _type_of(plan: Plan, event: Event) -> ArrayType:
    """The type whose tile an allocation holds."""
    if event.what == "source":
        return plan.source
    return plan.target if event.what == "target" else plan.types[event.born + 1]


def _alive(plan: Plan) -> Iterator[list[Event]]:
    """The events alive at every moment on every kind of rank."""
    last = max([len(plan.steps) - 1, 0, *(event.freed for event in plan.events)])
    for moment in range(last + 1):
        for kind in _kinds(plan):
            yield [
                event
                for event in plan.events
                if event.born <= moment <= event.freed
                and (kind == "all" or event.at in (kind, "both"))
            ]


def _kinds(plan: Plan) -> tuple[str, ...]:
    """Kinds of ranks by the mesh they are in; one kind where both meshes are the same ranks."""
    if plan.source.mesh.ranks == plan.target.mesh.ranks:
        return ("all",)
    a, b = set(plan.source.mesh.ranks), set(plan.target.mesh.ranks)
    kinds = (("all", a & b), ("source", a - b), ("target", b - a))
    return tuple(kind for kind, ranks in kinds if ranks)


def _side(plan: Plan, t: ArrayType) -> str:
    return "source" if t.mesh == plan.source.mesh else "target"


# Staging ------------------------------------------------------------------------------------


def _room(plan: Plan, number: int) -> int | None:
    """What a limit leaves for staging next to the tiles of a step."""
    if plan.limit_bytes is None:
        return None
    worst = max(sum(t.tile_bytes for t in parts) for parts in _tiles_of_step(plan, number))
    return max(0, plan.limit_bytes - worst)


def _staging_rule(plan: Plan, scale: Scale, tiles: Tiles, number: int) -> Any:
    """min(two halves of what is received, max(larger / 8, min(1 MiB, larger / 2)), the limit's room)."""
    wider = max((plan.source, plan.target), key=lambda t: t.tile_bytes)
    larger = tiles[wider]
    if not all(t.is_even for t in plan.types):
        larger = _max(tiles[plan.source], tiles[plan.target])
    budget = _max(larger / 8, _min(z3.IntVal(MIB), larger / 2))
    room = _room(plan, number)
    if room is not None:
        budget = _min(budget, z3.IntVal(room))
    itemsize = plan.source.dtype.itemsize
    return _min(2 * scale.received_bytes(number), budget) / itemsize * itemsize


def _staging_here(plan: Plan, number: int) -> int:
    """The same for this array, as a number."""
    larger = max(plan.source.tile_bytes, plan.target.tile_bytes)
    budget = max(larger // 8, min(MIB, larger // 2))
    room = _room(plan, number)
    budget = budget if room is None else min(budget, room)
    itemsize = plan.source.dtype.itemsize
    return min(2 * received_worst(plan, number), budget) // itemsize * itemsize


# The closed form ----------------------------------------------------------------------------


def _formula(plan: Plan) -> str:
    if not plan.steps:
        return "source" if plan.donate else "source + target"
    if len(plan.steps) == 1:
        return "source + target + staging"
    if plan.donate:
        return "max(source, middle) + max(target, middle) + staging"
    return "source + max(target, middle) + middle + staging"


def _closed_form(plan: Plan, tiles: Tiles, rooms: list[Any]) -> Any:
    source, target = tiles[plan.source], tiles[plan.target]
    if not plan.steps:
        return source if plan.donate else source + target
    staging = _most(rooms)
    if len(plan.steps) == 1:
        return source + target + staging
    middle = _most([tiles[t] for t in plan.types[1:-1]])
    if plan.donate:
        return _max(source, middle) + _max(target, middle) + staging
    return source + _max(target, middle) + middle + staging


def _peak_here(plan: Plan) -> int:
    """The bound for this array, from the types alone."""
    if not plan.steps:
        return plan.source.tile_bytes * (1 if plan.donate else 2)
    return max(
        sum(t.tile_bytes for t in parts) + _staging_here(plan, number)
        for number in range(len(plan.steps))
        for parts in _tiles_of_step(plan, number)
    )


def _sum(terms: list[Any]) -> Any:
    out = z3.IntVal(0) if not terms else terms[0]
    for term in terms[1:]:
        out = out + term
    return out


def _max(a: Any, b: Any) -> Any:
    return z3.If(a >= b, a, b)


def _min(a: Any, b: Any) -> Any:
    return z3.If(a <= b, a, b)


def _most(values: list[Any]) -> Any:
    out = values[0]
    for value in values[1:]:
        out = _max(out, value)
    return out
