"""Bound refits on ranks that are threads: random plans, versions, what has changed, failures."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from redist.runtime.refit import program
from redist.runtime.refit.bound import BoundRefit
from redist.runtime.shm.segments import allocated_bytes
from tests.fakes.refit_ranks import ThreadRanks, on_ranks
from tests.problems import refits
from tests.problems.small_refits import SmallRefit, random_refit, small_refit
from tests.refits.test_random import plan_of
from tests.tiers import sample

COMMITS = ("copy", "swap", "in place")


def bound(plan: SmallRefit, ranks: ThreadRanks, **options: Any) -> tuple[BoundRefit, Any, Any]:
    """A rank's plan, bound to its tiles; they come back, too."""
    given, got = plan.sending(ranks.rank, 1), plan.receiving(ranks.rank)
    return BoundRefit(plan, ranks, given, got, **options), given, got


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("seed", range(sample(6, of=400)))
def test_planned_refits(seed: int, shares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of :func:`redist.refit` between literal tiles: fused, padded, transposed, stacked ones."""
    rng = Random(seed)
    monkeypatch.setattr(program, "DIRECT_BYTES", rng.choice([1, 16, 2**20]))
    problem = refits.random_refit(seed, n_weights=12)
    plan = plan_of(problem)
    commit = rng.choice(COMMITS)

    def of(rank: int, tiles: Any, version: int) -> Any:
        """Elements count up with versions, where there is no padding."""
        own = {name: tile for (owner, name), tile in tiles.items() if owner == rank}
        return {name: np.asarray(tile + (tile != refits.PADDING) * tile.dtype.type(version))
                for name, tile in own.items()}  # fmt: skip

    def work(ranks: ThreadRanks) -> str:
        source, target = problem.source.tiles, problem.target.tiles
        given = of(ranks.rank, source, 0)
        got = {name: np.zeros_like(tile) for name, tile in of(ranks.rank, target, 0).items()}
        refit = BoundRefit(plan, ranks, given, got, commit=commit)
        for version in (1, 2):
            put(given, of(ranks.rank, source, version))
            go(refit, given, version)
            if not same(refit.tiles, of(ranks.rank, target, version)):
                return f"version {version} differs, {commit}"
        return ""

    assert set(on_ranks(max(plan.ranks) + 1, shares, work)) == {""}


def put(tiles: Any, others: Any) -> None:
    for name, values in others.items():
        tiles[name][...] = values


def go(refit: BoundRefit, given: Any, *args: Any, **options: Any) -> Any:
    return refit.send(*args, **options) if given else refit.receive()


def same(have: Any, want: Any) -> bool:
    return set(have) == set(want) and all(np.array_equal(have[name], want[name]) for name in want)


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("seed", range(sample(12, of=200)))
def test_random_refits(
    seed: int, shares: bool, commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    monkeypatch.setattr(program, "DIRECT_BYTES", rng.choice([1, 16, 2**20]))
    plan = random_refit(rng, rng.randrange(1, 6))
    changed = sorted(
        rng.sample(sorted(plan.source_tensors), rng.randrange(len(plan.source_tensors) + 1))
    )

    def work(ranks: ThreadRanks) -> str:
        refit, given, got = bound(plan, ranks, commit=commit)
        assert refit.transport == ("ipc" if shares else "messages")
        assert go(refit, given, 1) == 1 == refit.version
        if not same(refit.tiles, plan.wanted(ranks.rank, 1)):
            return "version 1 differs"
        put(given, plan.sending(ranks.rank, 2))
        go(refit, given, 2, changed=changed)
        if not same(refit.tiles, plan.wanted(ranks.rank, 2, changed, before=1)):
            return f"version 2 differs, {changed} changed"
        go(refit, given, 3)
        want = plan.wanted(ranks.rank, 2)
        if commit != "swap" and not same(got, want):
            return "the tiles that were given are not those that serve"
        refit.close()
        return "" if same(refit.tiles, want) and refit.version == 3 else "version 3 differs"

    assert set(on_ranks(plan.n_ranks, shares, work)) == {""}


def test_memory_of_arrivals_goes_when_the_plan_is_closed() -> None:
    plan = small_refit(1, 1, together=True)
    given, got = plan.sending(0, 1), plan.receiving(0)

    def work(ranks: ThreadRanks) -> tuple[int, int]:
        before = allocated_bytes()
        refit = BoundRefit(plan, ranks, given, got)
        refit.send(1)
        during = allocated_bytes()
        refit.close()
        return during - before, allocated_bytes() - before

    (found,) = on_ranks(1, True, work)
    assert found[0] > 0 and found[1] == 0, found
    assert same(got, plan.wanted(0, 1))
