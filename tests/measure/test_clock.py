"""The clock: contenders take turns, short work is repeated; no time is asserted."""

from __future__ import annotations

from mpi4py import MPI

from redist.measure.timing import BATCH_S, MOST_TIMES, Stopwatch, Times, all_agree, meet


def test_contenders_take_turns() -> None:
    calls: list[str] = []
    watch = Stopwatch.on(MPI.COMM_SELF)
    assert watch.common
    times = watch.in_turn(
        [lambda n: calls.append("a"), lambda n: calls.append("b")], repeats=3, warm_ups=1
    )
    assert "".join(calls) == "ab" + "ab" * 3
    assert [t.n for t in times] == [3, 3]
    assert all(0 <= t.least_s <= t.low_s <= t.median_s <= t.high_s <= t.most_s for t in times)


def test_short_work_is_done_several_times_and_divided() -> None:
    asked: list[int] = []
    watch = Stopwatch(MPI.COMM_SELF, common=False)
    (times,) = watch.in_turn([asked.append], repeats=2)
    assert asked[:2] == [1, 1] and asked[2] == asked[3] == MOST_TIMES
    assert times.median_s < BATCH_S


def test_quartiles() -> None:
    assert Times.of([4.0, 2.0]) == Times(2, 2.0, 2.5, 3.0, 3.5, 4.0)


def test_agreement_on_one_rank() -> None:
    meet(MPI.COMM_SELF)
    assert all_agree(MPI.COMM_SELF, True) and not all_agree(MPI.COMM_SELF, False)
