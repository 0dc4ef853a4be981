"""Long loops give Python a turn now and then, so that Ctrl-C is seen: results keep their bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from redist.learn.cluster import HDBSCAN, KMeans
from redist.learn.kernels import library, steps
from redist.learn.kernels.messages import Messages
from redist.learn.metrics import silhouette_score
from redist.learn.near import nearest_chain, searching
from redist.learn.near.nearest import nearest_in
from redist.learn.near.searching import Search
from redist.learn.vectors.eigenvectors import times
from redist.spmd import ExactGrid
from redist.text import progress

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(1003, 5))
ONES = np.ones(len(ROWS))
GRID = ExactGrid.for_sum(1e3, len(ROWS))


def lloyd() -> Any:
    labels = np.zeros(len(ROWS), np.int32)
    centers = ROWS[:11].copy()
    found = steps.lloyd_step(ROWS, ONES, centers, (centers**2).sum(axis=1), labels, (GRID, GRID))
    return [labels, *found]


def candidates() -> Any:
    norms = (ROWS**2).sum(axis=1)
    return steps.try_candidates(
        ROWS, norms, ONES, ROWS[:7], norms[:7], np.full(len(ROWS), 9.0), GRID
    )


def inertia() -> Any:
    zeros = np.zeros(len(ROWS), np.int32)
    return [steps.inertia_sums(ROWS, ONES, ROWS[:3].copy(), zeros, zeros, 2, GRID)]


def messages() -> Any:
    far = -((ROWS[:200, None] - ROWS[None, :200]) ** 2).sum(axis=2)
    told = Messages.of(far, 0, 0.5)
    most = told.respond()
    sums = told.support(ExactGrid.for_sum(most, 200))
    told.make_available(sums.sum(axis=0))
    return [most, sums, told.respond(), told.responsible, told.available]


LOOPS: dict[str, Callable[[], Any]] = {
    "lloyd": lloyd,
    "candidates": candidates,
    "inertia": inertia,
    "messages": messages,
    "columns": lambda: [steps.column_sums(ROWS, GRID, True)],
    "pairs": lambda: [steps.pair_sums(ROWS, GRID, True)],
    "times": lambda: [times(ROWS, ROWS[:5, :3].copy())],
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_in_turns_keep_their_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    want = LOOPS[name]()
    monkeypatch.setattr(library, "TURN", 1000)
    for one, other in zip(LOOPS[name](), want, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("linkage", nearest_chain.LINKAGES)
def test_merges_in_turns_keep_their_bits(linkage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    far = np.sqrt(((ROWS[:150, None] - ROWS[None, :150]) ** 2).sum(axis=2))
    np.fill_diagonal(far, np.inf)
    want = nearest_chain.merge_alone(linkage, far.copy())
    monkeypatch.setattr(nearest_chain, "AT_ONCE", 10)
    found = nearest_chain.merge_alone(linkage, far.copy())
    assert want is None or found is None or np.array_equal(found, want)


@pytest.mark.parametrize("algorithm", ["kd_tree", "ball_tree", "brute"])
def test_searches_in_parts_keep_their_bits(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search.of(*ROWS.shape, n_neighbors=5, algorithm=algorithm)
    model = search.over(ROWS)
    want = model.kneighbors(ROWS, 5)[0]
    monkeypatch.setattr(searching, "BY_HAND", searching.CHUNK)
    assert np.array_equal(nearest_in(model, ROWS, 5)[0], want)


def test_progress_is_shown_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    HDBSCAN(copy=True).fit(ROWS, progress=False)
    assert capsys.readouterr().err == ""


def test_progress_is_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    HDBSCAN(copy=True).fit(ROWS)
    assert re.search(r"HDBSCAN, 1 of 3, neighbours \[#+", capsys.readouterr().err)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_silhouettes_show_progress(
    metric: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.arange(len(ROWS)) % 3
    want = silhouette_score(ROWS, labels, metric=metric, progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert silhouette_score(ROWS, labels, metric=metric) == want
    phase = "distances" if metric == "euclidean" else "2 of 2, distances"
    assert re.search(rf"silhouette_score, {phase} \[#+", capsys.readouterr().err)


def test_long_fits_say_so_unasked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "UNASKED_S", 0.001)
    KMeans(5, n_init=5).fit(ROWS)
    assert "KMeans has been running for 0 s" in capsys.readouterr().err
