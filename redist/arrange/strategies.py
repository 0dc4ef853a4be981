"""Ways to do an operation on factors of a mesh: each cuts a label or none, or operands stay pending."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from redist.arrange.domain import NOWHERE, PENDING, TypeDomain
from redist.arrange.ein_graph import ADDING, SCALING, EinNode
from redist.arrange.solving.network import Costs
from redist.errors import RequestError
from redist.layout.cuts import Ints
from redist.plan.rates import DeviceCosts
from redist.text.units import ceil_div

MOST_STRATEGIES = 4096


def kind_of(node: EinNode) -> str:
    """The class of an operation.

    >>> sizes = {"i": 4, "j": 4}
    >>> [kind_of(EinNode(*args)) for args in (("ij,j->i", (~0, ~1), sizes), ("ij->j", (~0,), sizes))]
    ['product', 'reduce']
    """
    if node.aggregated:
        is_summed = node.join in ("multiply", "product") and node.agg == "sum"
        is_product = is_summed and len(node.operands) > 1
        return "product" if is_product else "reduce"
    return "copy" if node.join == "copy" and len(node.operands) == 1 else "map"


@dataclass(frozen=True, slots=True, eq=False)
class Strategies:
    """The ways to do a node: types of its operands and result, and what the busiest device does."""

    operands: tuple[Ints, ...]
    """Of each operand, the number of the type that every way wants."""
    result: Ints
    work: Ints
    """Elements of the join on the busiest device."""
    n_bytes: Ints
    """Bytes of the tiles that it reads and writes."""
    kind: str = "map"
    dtype: str = "f32"

    def __len__(self) -> int:
        return len(self.result)

    def time_ps(self, device: DeviceCosts) -> Costs:
        """What every way takes."""
        elem_fs = device.of(self.kind, self.dtype)
        fs = np.maximum(self.work * elem_fs, self.n_bytes * device.byte_fs)
        return ceil_div(fs, 1000)


def list_strategies(
    node: EinNode, operands: Sequence[TypeDomain], result: TypeDomain
) -> Strategies:
    """All ways to do a node whose types are among those of its operands and of its result."""
    n_factors, labels = len(result.parts), node.labels
    kept_pending = _pending_operands(node, operands)
    choices = (*range(NOWHERE - len(kept_pending), 0), *range(len(labels)))
    if len(choices) ** n_factors > 2**22:
        raise RequestError(f"cannot list the ways to do {node.notation!r} over {n_factors} factors")
    rows = np.array(list(itertools.product(choices, repeat=n_factors)), dtype=np.int64)
    rows = rows.reshape(len(rows), n_factors)
    wanted = [
        domain.numbers(_operand_places(rows, labels, term, place, kept_pending))
        for place, (term, domain) in enumerate(zip(node.terms, operands, strict=True))
    ]
    made = result.numbers(_result_places(rows, node, kept_pending))
    good = made >= 0
    for numbers in wanted:
        good &= numbers >= 0
    cuts, sizes = _cuts(rows, labels, result), node.sizes
    for at, label in enumerate(labels):
        good &= cuts[:, at] <= max(1, sizes[label])
    chosen = np.flatnonzero(good)
    if not len(chosen):
        raise RequestError(f"cannot do {node.notation!r} on these factors: no way fits")
    if len(chosen) > MOST_STRATEGIES:
        raise RequestError(f"cannot plan {len(chosen)} ways to do {node.notation!r}: join factors")
    cuts = cuts[chosen]
    work = np.ones(len(chosen), dtype=np.int64)
    for at, label in enumerate(labels):
        work *= ceil_div(np.full_like(work, sizes[label]), cuts[:, at])
    asked = tuple(one[chosen] for one in wanted)
    n_bytes = result.tile_bytes()[made[chosen]]
    for domain, own in zip(operands, asked, strict=True):
        n_bytes = n_bytes + domain.tile_bytes()[own]
    return Strategies(asked, made[chosen], work, n_bytes, kind_of(node), node.dtype.name)


def _pending_operands(node: EinNode, operands: Sequence[TypeDomain]) -> list[tuple[int, ...]]:
    """Which operands may stay pending on a factor, together: the join, and the sum after it, are linear."""
    if node.agg != "sum" or any(domain.op not in ("sum", None) for domain in operands):
        return []
    able = [place for place, domain in enumerate(operands) if domain.op == "sum"]
    if node.join in ADDING:
        return [tuple(able)] if len(able) == len(operands) else []
    return [(place,) for place in able] if node.join in SCALING else []


def _operand_places(
    rows: Ints, labels: str, term: str, place: int, kept_pending: Sequence[tuple[int, ...]]
) -> Ints:
    """Where factors are in an operand: on the dim of their label, or nowhere."""
    dim_of = np.array([term.find(label) for label in labels] or [NOWHERE], dtype=np.int64)
    out = np.where(rows >= 0, dim_of[np.maximum(rows, 0)], NOWHERE)
    for number, together in enumerate(kept_pending):
        if place in together:
            out = np.where(rows == NOWHERE - 1 - number, PENDING, out)
    return out


def _result_places(rows: Ints, node: EinNode, kept_pending: Sequence[tuple[int, ...]]) -> Ints:
    """Where factors are in the result; those on labels that are aggregated are pending."""
    dim_of = np.array([node.kept.find(label) for label in node.labels] or [NOWHERE], dtype=np.int64)
    dim_of = np.where(dim_of < 0, PENDING, dim_of)
    out = np.where(rows >= 0, dim_of[np.maximum(rows, 0)], NOWHERE)
    return np.where(rows < NOWHERE, PENDING, out)


def _cuts(rows: Ints, labels: str, domain: TypeDomain) -> Ints:
    """Into how many parts every label is cut."""
    sizes = np.array([part.size for part in domain.parts], dtype=np.int64)
    columns = [np.where(rows == at, sizes, 1).prod(axis=1) for at in range(len(labels))]
    return np.stack(columns, axis=1) if columns else np.ones((len(rows), 0), dtype=np.int64)


def least_time_ps(node: EinNode, n_devices: int, device: DeviceCosts) -> int:
    """What a node takes at least, however it is cut: the work shared by all devices."""
    elems = math.prod(node.sizes[label] for label in node.labels)
    return ceil_div(elems * device.of(kind_of(node), node.dtype.name), 1000 * n_devices)
