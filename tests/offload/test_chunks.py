"""Chunks fit, cover the whole task, and load little more than any order must."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from redist.check.memory_graphs import check_memory_graph
from redist.errors import NoPlanError
from redist.offload.chunk_tasks import chunk_tasks
from redist.offload.chunks import choose_chunks
from redist.offload.compile import compile_memory
from redist.offload.least_limit import least_memory
from redist.program.memory_graph import MemoryPlace

SHAPES = {
    (1, 1, 1): 1.3,
    (2, 1, 1): 1.3,
    (1, 2, 1): 1.3,
    (4, 1, 1): 1.3,
    (3, 2, 1): 1.3,
    (1, 5, 2): 1.3,
    (1, 1, 2): 1.5,  # here the result is once or twice the memory: whole chunks of it hardly fit
    (1, 1, 4): 1.5,
}
"""Shapes of products (m, n, k), and how near loads come to the bound."""


@pytest.mark.parametrize("is_sum", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_of_operands_four_times_the_limit_loads_near_the_bound(
    shape: tuple[int, int, int], is_sum: bool
) -> None:
    """Each operand, or both together, four times the limit: loads near 2 m n k / sqrt(M) elements."""
    m, n, k = (240 * one for one in shape)
    elems = m * k + k * n if is_sum else min(m * k, k * n)
    itemsize, limit = 8, 8 * elems // 4
    chunks = choose_chunks("mk,kn->mn", {"m": m, "n": n, "k": k}, itemsize, limit * 9 // 10)
    tasks = chunk_tasks(chunks).tasks
    graph = compile_memory(tasks, (MemoryPlace("memory", limit), MemoryPlace("store")))
    check_memory_graph(graph)
    loaded = graph.moved_bytes["load"] / itemsize
    bound = max(2 * m * n * k / math.sqrt(limit / itemsize), m * k + k * n)
    assert loaded <= SHAPES[shape] * bound, (loaded / bound, dict(chunks.counts))


NOTATIONS = {
    "mk,kn->mn": {"m": 7, "k": 9, "n": 5},
    "bmk,bkn->bmn": {"b": 3, "m": 4, "k": 5, "n": 6},
    "ab,ab->ab": {"a": 13, "b": 9},
    "ij->i": {"i": 11, "j": 10},
    "ijk,kl,lj->i": {"i": 4, "j": 5, "k": 3, "l": 4},
}


@pytest.mark.parametrize(("notation", "part"), [*product(NOTATIONS, (1.0, 0.5, 0.2))])
def test_chunks_fit_and_add_up_to_the_whole(notation: str, part: float) -> None:
    sizes = NOTATIONS[notation]
    whole = choose_chunks(notation, sizes, 8, 10**9)
    assert whole.n_chunks == 1
    room = max(int(part * whole.chunk_bytes), 100)
    chunks = choose_chunks(notation, sizes, 8, room)
    assert chunks.chunk_bytes <= room
    done = chunk_tasks(chunks)
    assert least_memory(done.tasks)[0] <= room
    rng = np.random.default_rng(1)
    operands = [rng.integers(0, 9, [sizes[one] for one in term]) for term in chunks.terms]
    result = np.zeros([sizes[one] for one in chunks.kept], int)
    for task in done.tasks.tasks:
        parts = []
        for tile in task.reads:
            block = done.blocks[tile]
            assert block.operand is not None
            parts.append(operands[block.operand][tuple(slice(*pair) for pair in block.box)])
        (out,) = (*task.makes, *task.updates)
        here = tuple(slice(*pair) for pair in done.blocks[out].box)
        result[here] += np.einsum(notation, *parts)
    assert np.array_equal(result, np.einsum(notation, *operands))


def test_what_no_chunk_fits_is_refused_with_the_least() -> None:
    sizes = {"m": 2, "k": 2, "n": 2}
    with pytest.raises(NoPlanError) as refused:
        choose_chunks("mk,kn->mn", sizes, 8, 23)
    assert refused.value.least_bytes == 24
    assert choose_chunks("mk,kn->mn", sizes, 8, 24).n_chunks == 8
