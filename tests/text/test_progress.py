"""Progress: a bar on a terminal, a line now and then elsewhere; how long it takes."""

from __future__ import annotations

import io

import pytest

from redist.text import progress
from redist.text.progress import Progress


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
