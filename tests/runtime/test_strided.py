"""Canonical forms of strided copies, walked byte by byte."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
from hypothesis import given, settings

from redist.runtime.copies.strided import Strided, c_strides, canonical
from tests.fakes.views import random_shape, random_view
from tests.problems.strategies import seeded
from tests.tiers import sample


def pairs_of(form: Strided) -> list[tuple[int, int]]:
    """Offsets (destination, source) of every byte that a form moves."""
    out = []
    for place in itertools.product(*(range(n) for n, _, _ in form.dims)):
        dst = sum(i * d for i, (_, d, _) in zip(place, form.dims, strict=True))
        src = sum(i * s for i, (_, _, s) in zip(place, form.dims, strict=True))
        out += [(dst + k, src + k) for k in range(form.block)]
    return out


def pairs_by_hand(shape, itemsize, dst, src) -> list[tuple[int, int]]:
    out = []
    for index in np.ndindex(*shape):
        to = sum(i * d for i, d in zip(index, dst, strict=True))
        of = sum(i * s for i, s in zip(index, src, strict=True))
        out += [(to + k, of + k) for k in range(itemsize)]
    return out


@given(seeded(lambda rng: rng))
@settings(max_examples=sample(38, of=300), deadline=None)
def test_a_form_moves_the_same_bytes(rng: Random) -> None:
    shape, itemsize = random_shape(rng, most_elems=100), rng.choice((1, 2, 3, 4, 8, 16))
    dst = random_view(rng, shape, itemsize)[1].strides
    src = random_view(rng, shape, itemsize, repeats=True)[1].strides
    form = canonical(shape, itemsize, dst, src)
    want = sorted(pairs_by_hand(shape, itemsize, dst, src))
    if 0 in shape:
        assert form.n_bytes == 0
        return
    assert sorted(pairs_of(form)) == want
    assert form.n_bytes == len(want)
    steps = [abs(d) for _, d, _ in form.dims]
    assert steps == sorted(steps, reverse=True)
    assert all(n > 1 for n, _, _ in form.dims)


@given(seeded(lambda rng: rng))
@settings(max_examples=sample(13, of=100), deadline=None)
def test_nothing_is_left_to_merge(rng: Random) -> None:
    """Of arrays that are whole on both sides one block remains, whatever the order of dims."""
    shape, itemsize = random_shape(rng), rng.randint(1, 33)
    order = rng.sample(range(len(shape)), len(shape))
    stored = np.empty([shape[i] for i in order], np.dtype((np.void, itemsize)))
    strides = stored.transpose(np.argsort(order)).strides if shape else ()
    form = canonical(shape, itemsize, strides, strides)
    assert 0 in shape or form == Strided(stored.nbytes, ())


@given(seeded(lambda rng: rng))
@settings(max_examples=sample(13, of=100), deadline=None)
def test_c_strides_are_numpys(rng: Random) -> None:
    shape, itemsize = random_shape(rng), rng.randint(1, 33)
    array = np.empty(shape, np.dtype((np.void, itemsize)))
    if array.size:
        assert c_strides(shape, itemsize) == array.strides
    assert len(c_strides(shape, itemsize)) == len(shape)


def test_swapped_goes_back() -> None:
    form = canonical((4, 2), 4, (8, 4), (32, 4))
    assert form.swapped() == Strided(8, ((4, 32, 8),))
    assert sorted(pairs_of(form.swapped())) == sorted((s, d) for d, s in pairs_of(form))


@given(seeded(lambda rng: rng))
@settings(max_examples=sample(25, of=200), deadline=None)
def test_parts_of_a_walk_make_the_whole(rng: Random) -> None:
    """The bytes of a strided box, in the order of the walk, cut anywhere."""
    dims: list[tuple[int, int, int]] = []
    stride = block = rng.randint(1, 5)
    for _ in range(rng.randint(0, 3)):
        count, stride = rng.randint(2, 4), stride + rng.randint(0, 3)
        dims.insert(0, (count, stride, 0))
        stride *= count
    form = Strided(block, tuple(dims))
    edges = sorted({0, form.n_bytes, *(rng.randint(0, form.n_bytes) for _ in range(4))})
    found = []
    for lo, hi in itertools.pairwise(edges):
        parts = list(form.between(lo, hi))
        assert sum(part.n_bytes for _, part in parts) == hi - lo
        found += [at + dst for at, part in parts for dst, _ in pairs_of(part)]
    assert found == [dst for dst, _ in pairs_of(form)]
