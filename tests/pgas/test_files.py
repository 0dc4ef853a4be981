"""Files say how far they have come: on a terminal if it takes long, elsewhere if asked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from redist import pgas
from redist.pgas.files import shares
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
