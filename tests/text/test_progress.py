"""Progress: a bar on a terminal, a line now and then elsewhere; how long it takes."""

from __future__ import annotations

import io
import itertools
import time

import pytest

from redist.text import progress
from redist.text.progress import Progress, Work


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_goes_when_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REDRAW_S", 0.0)
    out = Terminal()
    say = Progress("work", out)
    for done in range(4):
        say(done, 3, f"part {done}")
    drawn = out.getvalue().split("\r")
    assert drawn[1].startswith("work [..............................] 0/3 part 0")
    assert drawn[2].startswith("work [##########....................] 1/3 part 1, ")
    assert drawn[-1] == "\x1b[K"


def test_a_bar_is_not_redrawn_all_the_time() -> None:
    out = Terminal()
    say = Progress("work", out)
    for done in range(1000):
        say(done, 10**6)
    assert 1 <= out.getvalue().count("\r") < 100


def test_a_bar_can_be_asked_for_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    Progress("work", out, bar=True)(0, 2, "first")
    assert "0/2 first" in out.getvalue()


def test_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    say = Progress("work", out)
    say(1, 2)
    assert out.getvalue() == ""
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    say(0, 2)
    say(1, 2)
    assert out.getvalue() == "work: 1 of 2 done in 0 s, about 0 s to go\n"


def test_nothing_to_do_says_nothing() -> None:
    for stream in (io.StringIO(), Terminal()):
        Progress("work", stream)(0, 0)
        assert stream.getvalue() in ("", "\r\x1b[K")
    assert list(progress.track([], 0, "work", io.StringIO())) == []


def test_short_work_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REDRAW_S", 0.0)
    out = Terminal()
    short, long = Progress("short", out, after_s=60.0), Progress("long", out, after_s=1e-9)
    for done in range(4):
        short(done, 3)
    assert out.getvalue() == ""
    for done in range(4):
        long(done, 3)
    assert "long [" in out.getvalue() and out.getvalue().endswith("\r\x1b[K")


def said_of(asked: bool | None, monkeypatch: pytest.MonkeyPatch, out: io.StringIO) -> str:
    """What work says that goes on until it has said something, by a clock that is 100 times as fast."""
    monkeypatch.setattr(progress, "ASKED_S", (0.02, 0.05, 0.1))
    monkeypatch.setattr(progress, "UNASKED_S", 0.05)
    with Work("HDBSCAN", asked, stream=out):
        progress.phase("neighbours")(7, 7)
        with Work("KMeans", asked, stream=out):  # is part of it
            progress.phase("tree")(12, 100)
        for _ in range(1000):
            time.sleep(0.01)
            if out.getvalue().count("\n") > 1:
                break
    return out.getvalue()


def test_work_says_where_it_is_by_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    unasked = said_of(None, monkeypatch, io.StringIO())
    assert unasked.startswith("HDBSCAN has been running for 0 s: tree, 12 %\n"), unasked
    asked = said_of(True, monkeypatch, io.StringIO())
    assert asked.startswith("HDBSCAN, tree: 12 of 100 done in 0 s, about "), asked


def test_work_asked_about_names_its_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "ASKED_S", (0.02, 0.05, 0.1))
    out = io.StringIO()

    def told(n: int) -> None:
        for _ in range(1000):
            if out.getvalue().count("\n") >= n:
                break
            time.sleep(0.01)

    with Work("HDBSCAN", True, stream=out):
        said = progress.phase("neighbours", 1, 3)
        said(97, 100, "rows of rank 0")
        told(1)
        said(100, 100, "rows of rank 0")
        told(2)
        progress.phase("tree", 2, 3)(1, 100)
        told(4)
    lines = out.getvalue().splitlines()
    first = "HDBSCAN, 1 of 3, neighbours: "
    assert lines[0] == f"{first}97 of 100 rows of rank 0 done in 0 s, about 0 s to go", lines
    assert f"{first}all 100 rows of rank 0 done, 0 s so far" in lines, lines
    begun = lines.index("HDBSCAN, 2 of 3, tree: begins after 0 s")
    assert lines[begun + 1].startswith("HDBSCAN, 2 of 3, tree: 1 of 100 done in 0 s, "), lines


def test_phases_of_short_work_write_nothing() -> None:
    out = io.StringIO()
    with Work("HDBSCAN", True, stream=out):
        for number in (1, 2, 3):
            progress.phase("phase", number, 3)(1, 1)
    assert out.getvalue() == ""


def test_when_lines_come() -> None:
    def times(asked: bool | None, line_s: float = progress.LINE_S) -> list[float]:
        work = Work("HDBSCAN", asked, stream=io.StringIO(), line_s=line_s)
        return [*itertools.accumulate(itertools.islice(work._pauses(), 6))]

    assert times(True) == [2, 5, 10, 20, 30, 40] and times(True, 5.0) == [2, 5, 10, 15, 20, 25]
    assert times(None) == [5, 15, 35, 75, 135, 195]


def test_work_is_silent_if_told_so_or_short() -> None:
    out = io.StringIO()
    for asked, speaks in ((False, True), (True, False), (None, True), (True, True)):
        with Work("HDBSCAN", asked, speaks, out):
            progress.phase("tree")(1, 2)
    assert out.getvalue() == "" and progress.phase("tree") is progress.nothing


def test_work_has_a_bar_on_a_terminal() -> None:
    out = Terminal()
    with Work("HDBSCAN", stream=out):
        progress.phase("tree")(1, 2)
    assert "HDBSCAN, tree [###" in out.getvalue()
