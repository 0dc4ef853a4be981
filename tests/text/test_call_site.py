"""A call is named as a user writes it."""

from __future__ import annotations

import copy
import os
import statistics
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import numpy as np
import pytest

from redist import pgas
from redist.text.call_site import PACKAGE, _name_of, callers_of, calling_line, public_call

ARRAY = pgas.ones((3, 2))


@pytest.mark.parametrize(
    ("call", "written"),
    [
        (lambda a: float(a[0, 0]), "float(a)"),
        (lambda a: int(a[0, 0]), "int(a)"),
        (lambda a: bool(a[0, 0]), "bool(a)"),
        (lambda a: a[0], "a[...]"),
        (lambda a: a + a, "a + b"),
        (lambda a: 1 - a, "b - a"),
        (lambda a: a < a, "a < b"),
        (lambda a: a.gather(), "a.gather()"),
        (lambda a: a.sum(), "a.sum()"),
        (lambda a: pgas.sum(a), "pgas.sum()"),
        (lambda a: np.sin(a), "numpy.sin()"),
        (lambda a: np.mean(a), "numpy.mean()"),
    ],
)
def test_calls_are_named(call: Callable[[Any], Any], written: str) -> None:
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            public, line = public_call(frame)
            if public is not None and line.file == __file__:  # no code that dataclasses make
                seen.add(_name_of(public))

    sys.setprofile(note)
    try:
        call(ARRAY)
    finally:
        sys.setprofile(None)
    assert seen - {"a[...]"} == {written} - {"a[...]"}, seen
    assert written in seen


def test_the_line_of_the_user_behind_a_library() -> None:
    seen: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            public, line = public_call(frame)
            if public is not None:
                seen.append((_name_of(public), line.file))

    sys.setprofile(note)
    try:
        copy.deepcopy(ARRAY)
        statistics.fmean(ARRAY[:, 0])  # goes through iter(a)
    finally:
        sys.setprofile(None)
    assert {"a.copy()", "iter(a)", "a[...]", "float(a)"} <= {name for name, _ in seen}, seen
    assert {file for _, file in seen} <= {__file__, "<string>"}, seen
    assert not [name for name, _ in seen if "<" in name], seen


def test_a_thread_of_a_library_has_its_own_line() -> None:
    with ThreadPoolExecutor(1) as pool:
        line = pool.submit(calling_line).result()
    assert os.path.basename(line.file) == "thread.py" and line.number > 0


def test_a_traceback_of_the_user_alone() -> None:
    def interrupted(tile: Any) -> Any:
        np.apply_along_axis(stop, 0, tile)

    def stop(_: Any) -> Any:
        raise KeyboardInterrupt

    try:
        pgas.map_tiles(interrupted, ARRAY)
    except KeyboardInterrupt as error:
        full, own = error.__traceback__, callers_of(error.__traceback__)
    whole = [frame.filename for frame in traceback.extract_tb(full)]
    assert any(file.startswith(PACKAGE) for file in whole)
    names = [frame.name for frame in traceback.extract_tb(own)]
    assert names == ["test_a_traceback_of_the_user_alone", "interrupted", "stop"]
    assert callers_of(None) is None
