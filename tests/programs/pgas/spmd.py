"""What methods over ranks are built on, against all rows in one place.

As in ``mpirun -n 3 python -m tests.programs.pgas.spmd``: rows, totals, passing, visits, order, neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import pgas
from redist.spmd import (
    Passing,
    Rows,
    RowsOfAll,
    RunningSums,
    Totals,
    Visits,
    all_parts,
    cut_like,
    draw,
    draw_distinct,
    exact_total,
    kth_of_all,
    median_of_all,
    neighbour_tiles,
    node_loops,
    own_range,
    same_error,
    total_of,
    whole_of,
)
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
X = np.random.RandomState(0).normal(size=(203, 4))


def sets() -> dict[str, Any]:
    rng = np.random.RandomState(0)
    return {
        "normal": rng.normal(size=(120, 3)),
        "few": rng.rand(2, 2),
        "numbers": rng.rand(31),
        "large": rng.normal(size=(4000, 4)),
    }


def error_of(call: Callable[[], Any]) -> str:
    """The errors of all ranks, which must be one."""
    said = "none"
    try:
        call()
    except redist.RedistError as problem:
        said = str(problem)
    every = set(COMM.allgather(said))
    return every.pop() if len(every) == 1 else f"ranks say different things: {every}"


def rows_are_those_of_any_layout() -> str | None:
    lo, hi = own_range(COMM, len(X))
    for text in ("{x}, {}", "{}, {x}", "{}, {}"):
        x = pgas.asarray(X, type=text)
        rows = Rows.of(x)
        if not np.array_equal(rows.local, X[lo:hi]) or (rows.first, rows.n) != (lo, len(X)):
            return f"{text}: {rows.local.shape}, {rows.first}"
        answer = rows.answer(rows.local[:, 0].copy())
        if answer.type.dims[0] != x.type.dims[0] or not np.array_equal(answer.gather(), X[:, 0]):
            return f"{text}: the answer is {answer.type}"
        like = cut_like(x, X[:, 1])
        if like.type.dims != answer.type.dims or not np.array_equal(whole_of(like), X[:, 1]):
            return f"{text}: {like.type}"
        if not np.array_equal(rows.fetch([200, 0, 200]), X[[200, 0, 200]]):
            return f"{text}: fetched"
    shared = Rows.share(X)
    if shared.given is not None or not np.array_equal(shared.answer(shared.local), X):
        return "shared rows"
    wrong = (lambda: Rows.of(X), lambda: Rows.of(pgas.ones(())), lambda: Rows.share(3.0))  # type: ignore[arg-type]
    said = [error_of(call) for call in wrong]
    starts = ("cannot take the rows of this ndarray", "cannot take the rows of f64", "cannot share")
    right = all(one.startswith(start) for one, start in zip(said, starts, strict=True))
    return None if right else f"{said}"


def exact_totals_have_the_same_bits_for_every_cut() -> str | None:
    rng = np.random.RandomState(5)
    values = rng.normal(size=(501, 3)) * 10.0 ** rng.randint(-9, 9, (501, 3))
    whole = exact_total(MPI.COMM_SELF, values)
    for column, total in zip(values.T, whole, strict=True):
        if total != float(sum(map(Fraction, column.tolist()), Fraction(0))):
            return "one rank: not the sum, rounded once"
    order = rng.permutation(501)
    ends = [0, *sorted(rng.randint(0, 502, SIZE - 1)), 501]
    own = values[order[ends[RANK] : ends[RANK + 1]]]
    for given in ({}, {"bound": float(np.abs(values).max())}):
        if not np.array_equal(exact_total(COMM, own, **given), whole):
            return f"{given}: other bits"
    return None


def steps_tell_rows_of_all() -> str | None:
    tell = RowsOfAll(COMM, 2)
    for step in range(3):
        tell.row[:] = RANK, step
        if tell().tolist() != [[rank, step] for rank in range(SIZE)]:
            return f"step {step}"
    sums = RunningSums.of(Rows.share(X), np.ones(len(Rows.share(X).local)), 1.0)
    found = sums.find(np.array([0.5, 203.0])).tolist()
    return None if (sums.total, found) == (203.0, [0, 202]) else f"{sums.total}, {found}"


def neighbours_read_in_place() -> str | None:
    mine = np.arange(RANK + 1.0)
    with neighbour_tiles(COMM, mine) as tiles:
        seen = {rank: tile.tolist() for rank, tile in tiles.items()}
    if seen != {rank: list(np.arange(rank + 1.0)) for rank in range(SIZE)}:
        return f"{seen}"

    def mixed() -> None:
        with neighbour_tiles(COMM, mine.astype("f4" if RANK else "f8")):
            pass

    said = error_of(mixed)
    want = "cannot read the neighbours' tiles: rank 0 has float64, rank 1 has float32; give"
    if SIZE > 1 and not said.startswith(want):
        return said
    return None


def wrong_tiles_and_ranks_are_one_error() -> str | None:
    def run(width: int) -> None:
        with node_loops(COMM, (2, width), what="count"):
            pass

    three = np.arange(3)
    for call, want in (
        (
            lambda: run(0),
            "cannot count: tiles must have as many elements on all ranks, at least one",
        ),
        (
            lambda: run(3 + (RANK == 0 and SIZE > 1) if SIZE > 1 else 0),
            "cannot count: tiles must have",
        ),
        (
            lambda: Passing.of(COMM, three, three * 0 + SIZE * (RANK == 0)),
            "cannot pass rows on: rank 0 ",
        ),
        (
            lambda: Passing.of(COMM, three, three[: 3 - (RANK == SIZE - 1)] * 0),
            f"cannot pass rows on: rank {SIZE - 1}",
        ),
        (
            lambda: Passing.with_values(COMM, three, three * 0 + SIZE * (RANK == 0)),
            "cannot pass rows on: rank 0 ",
        ),
    ):
        said = error_of(call)
        if not said.startswith(want):
            return said
    run(4)  # all is well after an error
    return None


def an_error_is_that_of_all_ranks() -> str | None:
    def fail() -> None:
        with same_error(COMM):
            if RANK == SIZE - 1:
                raise redist.RequestError(f"rank {RANK} has had enough")

    said = error_of(fail)
    if said != f"rank {SIZE - 1} has had enough":
        return said
    one = np.array([2.0])
    missing = np.array([1.0, np.nan if RANK == 0 else 2.0])
    asked: dict[str, Callable[[], Any]] = {
        f"cannot find value -1 of {SIZE} in order: counting starts": lambda: kth_of_all(
            COMM, one, -1
        ),
        f"cannot find value {SIZE} of {SIZE} in": lambda: kth_of_all(COMM, one, SIZE),
        f"cannot find value 0 of {2 * SIZE} in order: 1 of them": lambda: kth_of_all(
            COMM, missing, 0
        ),
        "cannot find value -1 of 0 in order": lambda: median_of_all(COMM, one[:0]),
    }
    found = {want: error_of(call) for want, call in asked.items()}
    return next((said for want, said in found.items() if not said.startswith(want)), None)


def rows_are_passed_there_and_back() -> str | None:
    mine = np.arange(5) + 10 * RANK
    to = (np.arange(5) + RANK) % SIZE
    passing = Passing.of(COMM, np.arange(5), to)
    got = passing.there(np.stack([mine, mine * 2], axis=1))
    want = [10 * r + i for r in range(SIZE) for i in range(5) if (i + r) % SIZE == RANK]
    if got[:, 0].tolist() != want or passing.from_ranks.tolist() != [one // 10 for one in want]:
        return f"{got[:, 0]} and not {want}"
    if not np.array_equal(passing.back(got[:, 0]), mine[passing.rows]):
        return "back"
    for values in (np.stack([mine, mine * 2], axis=1), mine, np.empty((5, 0))):
        again, came = Passing.with_values(COMM, values, to)
        if not np.array_equal(came, passing.there(values)) or not np.array_equal(
            again.back(came), values[passing.rows]
        ):
            return f"with values of shape {values.shape}"
    joined, begin = all_parts(COMM, np.arange(RANK))
    right = joined.tolist() == [i for r in range(SIZE) for i in range(r)]
    return None if right and begin[-1] == len(joined) else f"{joined}"


def chosen_rows_are_evened_out() -> str | None:
    x = sets()["normal"]
    rows = Rows.share(x)
    odd = (np.arange(rows.first, rows.first + len(rows.local)) % 7) < 2 + RANK
    counts = COMM.allgather(int(odd.sum()))
    chosen = Rows(rows.local[odd], sum(counts[:RANK]), sum(counts), COMM, None, is_even=False)
    even = chosen.even_out()
    lo, hi = own_range(COMM, even.n)
    whole = chosen.gather(chosen.local)
    right = np.array_equal(even.local, whole[lo:hi]) and even.first == lo
    return None if right else "other rows"


def visits_see_every_row_once() -> str | None:
    for name, x in sets().items():
        rows = Rows.share(x)
        for node_size in (None, 1, 2):
            for prefetch, keep in ((True, 0), (False, 0), (True, 2**20)):
                visits = Visits(rows, prefetch=prefetch, keep_bytes=keep, node_size=node_size)
                for _ in range(2):
                    seen = [(first, np.array(tile)) for first, tile in visits]
                    if seen[0][0] != rows.first and len(rows.local):
                        return f"{name}: others come before the own rows"
                    found = np.concatenate(
                        [tile for _, tile in sorted(seen, key=lambda one: one[0])]
                    )
                    if not np.array_equal(found, x):
                        return f"{name}, nodes of {node_size}: {len(found)} rows of {len(x)}"
    return None


def visits_count_what_they_do() -> str | None:
    x = sets()["large"]
    rows, far = Rows.share(x), SIZE - 1
    others = x.nbytes - rows.local.nbytes
    near = Visits(rows)
    for _ in near:
        pass
    if near.counts.in_place != SIZE or near.counts.fetched_bytes:
        return f"on one node: {near.counts}"
    for keep, fetched in ((0, 2 * far), (2**30, far)):
        apart = Visits(rows, node_size=1, keep_bytes=keep)
        for _ in range(2):
            for _ in apart:
                pass
        want = (2, fetched, 2 * far - fetched, others * (2 if keep == 0 else 1))
        got = apart.counts
        if (got.in_place, got.fetched, got.kept, got.fetched_bytes) != want:
            return f"on nodes of one rank, {keep} kept: {got} and not {want}"
    return None


def visits_are_traced() -> str | None:
    rows, far = Rows.share(sets()["large"]), SIZE - 1
    for prefetch, keep in ((True, 0), (False, 0), (True, 2**30)):
        visits = Visits(rows, prefetch=prefetch, keep_bytes=keep, node_size=1)
        with redist.trace() as t:
            for _ in range(3):
                for _ in visits:
                    pass
        (counts,) = t.visits.values()
        fetched = far if keep else 3 * far
        want = (3, 3, fetched, fetched if prefetch else 0, 3 * far - fetched)
        if counts[:5] != want or counts != visits.counts:
            return f"prefetch={prefetch}, keep_bytes={keep}: {counts} and not {want}"
        if counts.fetched_bytes != sum(move.received_bytes for move in t.moves):
            return f"{counts.fetched_bytes} bytes, but\n{t}"
        if "bytes fetched" not in str(t) or (SIZE == 1 and "no array moved" in str(t)):
            return f"{t}"
    with redist.trace() as t:
        for _ in Visits(rows):
            pass
    (counts,) = t.visits.values()
    if counts.in_place != SIZE or counts.in_place_bytes != rows.n * rows.d * 8 or t.moves:
        return f"{t}"
    return None


def medians_are_numpys() -> str | None:
    rng = np.random.RandomState(4)
    kinds = {
        "normal": rng.normal(size=60000),
        "few values": rng.randint(0, 3, 50000).astype(float),
        "equal": np.ones(40001),
        "skewed": np.exp(4 * rng.normal(size=45000)),
        "two": np.array([3.0, 1.0]),
        "sorted": np.sort(rng.rand(70001)),
    }
    for name, values in kinds.items():
        lo, hi = own_range(COMM, len(values))
        for own in (values[lo:hi], values if RANK == SIZE - 1 else values[:0]):
            found = median_of_all(COMM, own)
            if found != np.median(values):
                return f"{name}: {found} and not {np.median(values)}"
        for k in (0, len(values) // 3, len(values) - 1):
            if kth_of_all(COMM, values[lo:hi], k) != np.sort(values)[k]:
                return f"{name}: number {k}"
    return None


def draws_are_numpys() -> str | None:
    weights = np.random.RandomState(1).rand(203)
    rows = Rows.share(X)
    lo, hi = own_range(COMM, 203)
    p = weights / weights.sum()
    ours = draw(rows, weights[lo:hi], np.random.RandomState(2), 50)
    if not np.array_equal(ours, np.random.RandomState(2).choice(203, 50, p=p)):
        return "with replacement"
    ours = draw_distinct(rows, weights[lo:hi], np.random.RandomState(2), 190)
    want = np.random.RandomState(2).choice(203, 190, p=p, replace=False)
    return None if np.array_equal(ours, want) else "without replacement"


def totals_are_those_of_all_ranks() -> str | None:
    row = np.arange(5.0) + COMM.rank
    n = COMM.size
    if not np.array_equal(Totals(COMM, 5)(row), np.arange(5.0) * n + n * (n - 1) / 2):
        return "sum"
    most = total_of(COMM, np.array([[COMM.rank, -COMM.rank]]), "max")
    return None if most.tolist() == [[n - 1, 0]] else f"max {most}"


CHECKED = (
    rows_are_those_of_any_layout,
    exact_totals_have_the_same_bits_for_every_cut,
    steps_tell_rows_of_all,
    neighbours_read_in_place,
    wrong_tiles_and_ranks_are_one_error,
    an_error_is_that_of_all_ranks,
    rows_are_passed_there_and_back,
    chosen_rows_are_evened_out,
    visits_see_every_row_once,
    visits_count_what_they_do,
    visits_are_traced,
    medians_are_numpys,
    draws_are_numpys,
    totals_are_those_of_all_ranks,
)
CHECKS = tuple(check.__name__ for check in CHECKED)


def program() -> int:
    """0 if nothing is wrong."""
    return run_named({check.__name__: check for check in CHECKED})


if __name__ == "__main__":
    main(program)
