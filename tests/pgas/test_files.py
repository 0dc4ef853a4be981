"""Files say how far they have come: on a terminal if it takes long, elsewhere if asked."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from redist import pgas
from redist.pgas.files import shares
from redist.pgas.files.csv_fields import Dialect
from redist.text import progress


@pytest.mark.parametrize("asked", [None, True, False])
def test_progress(
    asked: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.setattr(progress, "REDRAW_S", 0.0)
    monkeypatch.setattr(shares, "SOON_S", 1e-9)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    a = pgas.ones((2**18, 2))
    pgas.write_npy(tmp_path / "a.npy", a, limit_bytes="1MiB", progress=asked)
    said = capsys.readouterr().err
    assert ("write a.npy [" in said and "MiB" in said) == (asked is not False), said


def test_empty_fields_are_filled_before_numbers_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object) -> None:
        raise AssertionError("each field became a text of Python")

    monkeypatch.setattr(Dialect, "_chosen", slow)
    kind, nan = np.dtype(float), np.nan
    for mark, end, decimal in ((",", "\n", "."), (";", "\r\n", ","), ("\t", "\n", ".")):
        rows = ["|1|", "||", "2.5|3|4", "5||6"]
        text = end.join(rows).replace(".", decimal).replace("|", mark).encode()
        want = [[nan, 1, nan], [nan] * 3, [2.5, 3, 4], [5, nan, 6]]
        for piece in (text, text + end.encode()):
            found = Dialect(mark, decimal=decimal).parse(piece, range(3), kind)
            np.testing.assert_array_equal(found, want)
