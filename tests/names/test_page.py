"""docs/reference/names.md: its rules can be read, and its errors are those that are raised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redist.errors import ParseError, ShapeError
from redist.names import Names

PAGE = (Path(__file__).parents[2] / "docs/reference/names.md").read_text(encoding="utf-8")


def blocks(heading: str) -> list[str]:
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```text\n(.*?)```", section, re.DOTALL)


def test_cases_are_rules() -> None:
    (text,) = blocks("Cases")
    assert len(Names(text).rules) == 16


def test_errors_are_those_that_are_raised() -> None:
    of_text, of_sizes, _ = blocks("Errors")
    rows = [re.split(r"   +", line) for line in of_text.splitlines()]
    assert len(rows) == 8
    for rule, words in rows:
        with pytest.raises(ParseError) as caught:
            Names(rule)
        assert caught.value.reason == words
    rows = [re.split(r"   +", line) for line in of_sizes.splitlines()]
    assert len(rows) == 4
    for rule, words in rows:
        with pytest.raises(ShapeError, match=f": {re.escape(words)}$"):
            Names(rule).parts_of("w", (6144, 4096))
