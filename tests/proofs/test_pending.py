"""The formulas of theorem pending are those of the bound and of the steps."""

from __future__ import annotations

from random import Random

import numpy as np

from proofs.theorems.pending import least_receives, ring_receives, scatter_receives
from redist.layout.array_type import ArrayType
from redist.layout.lower_bound import lower_bound_bytes
from redist.plan.rates import FLAT
from redist.plan.steps import AllReduce, ReduceScatter
from redist.plan.traffic import traffic_of
from tests.problems.oracle import holdings, labels
from tests.problems.strategies import random_mesh, random_shape, random_type


def random_resolution(rng: Random) -> tuple[ArrayType, ArrayType]:
    """A type with something pending, and one of the same array with nothing."""
    while True:
        mesh, shape = random_mesh(rng, 12), random_shape(rng, 24)
        source = random_type(rng, mesh, shape, "sum")
        other = mesh if rng.random() < 0.7 else random_mesh(rng, 12)
        if source.pending_op is not None:
            return source, random_type(rng, other, shape)


def test_bound_and_reduce_scatter_are_those_of_the_program() -> None:
    rng = Random(1)
    elements = 0
    while elements < 3000:
        source, target = random_resolution(rng)
        before, after, partial = holdings(source), holdings(target), labels(source)
        least = scatter = 0
        for index in np.ndindex(*source.shape):
            have = {rank for rank, held in before.items() if index in held}
            need = {rank for rank, held in after.items() if index in held}
            g, own = len({partial[rank] for rank in have}), len(have & need)
            least += least_receives(g, len(need), int(own > 0))
            scatter += scatter_receives(g, len(need), own)
            elements += 1
        assert lower_bound_bytes(source, target) == least * 4
        moved = traffic_of(ReduceScatter(target), source, target, FLAT).received_elems
        assert moved == scatter


def test_all_reduce_is_that_of_the_program() -> None:
    rng = Random(2)
    for _ in range(2000):
        source, _ = random_resolution(rng)
        target = source.with_pending(None, ())
        moved = traffic_of(AllReduce(source.pending_axes), source, target, FLAT).received_elems
        classes = len(set(labels(source).values()))
        copies = source.mesh.n_devices // (classes * int(np.prod(source.cuts)))
        assert moved == source.global_elems * ring_receives(classes, copies)
