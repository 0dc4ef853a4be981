"""Manifests come back from files as they were; what is wrong in one is said with its line."""

from __future__ import annotations

import contextlib
import gc
import json
import random
from pathlib import Path

import numpy as np
import pytest

import redist
from redist.check.boxes import Boxes, BoxRow, box_dtype
from redist.check.manifest import manifest_of, write_manifest
from redist.check.run_rows import FIELDS, RUN, as_runs
from redist.errors import ArgumentError, ReadError, WriteError
from tests.check.transfers import random_problem
from tests.tiers import sample

LINES = [
    '{"tensor": ["w", [4, 6], 2]}',
    '{"source": [0, "w.0", 24]}',
    '{"source_box": [0, "w", [0, 0], [2, 6], 0]}',
    '{"source": [1, "w.1", 24]}',
    '{"source_box": [1, "w", [2, 0], [2, 6], 0, [12, 2]]}',
    '{"target": [1, "w", 48]}',
    '{"target_box": [0, "w", [0, 0], [4, 6], 0, [12, 2], 2]}',
    '{"run": [0, 0, 0, 0, 0, 24]}',
    '{"run": [0, 1, 0, 0, 24, 12, 2, 12, 12]}',
]


@pytest.mark.parametrize("suffix", ["jsonl", "npz"])
def test_manifests_come_back_as_they_were(tmp_path: Path, suffix: str) -> None:
    for seed in range(8):
        p = random_problem(random.Random(seed))
        path = tmp_path / f"m.{suffix}"
        write_manifest(path, p.runs, p.source.made(), p.target.made())
        assert redist.check_runs(path) == redist.check_runs(
            p.runs, p.source.made(), p.target.made()
        )


def test_lines_may_come_in_any_order_of_kinds() -> None:
    text = "\n".join([*LINES[7:], "", *LINES[:7]])
    assert redist.check_runs(*manifest_of(text, "m")).is_right


def test_runs_may_be_in_a_file_beside_the_manifest(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join([*LINES[:7], '{"runs": "r.npy"}']), encoding="utf-8")
    runs = as_runs([(0, 0, 0, 0, 0, 24), (0, 1, 0, 0, 24, 24)])
    for fields in (list(FIELDS), list(FIELDS[:6])):  # one block each: no count
        np.save(tmp_path / "r.npy", runs[fields])
        assert redist.check_runs(path).is_right
    path.write_text("\n".join([*LINES[:8], '{"runs": "r.npy"}']), encoding="utf-8")
    np.save(tmp_path / "r.npy", runs[FIELDS[0:6]][1:] if False else runs[list(FIELDS[:6])][1:])
    assert redist.check_runs(path).is_right
    with pytest.raises(ReadError, match="runs alone; name it in a manifest"):
        redist.check_runs(tmp_path / "r.npy")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 10: need an object with one of tensor, source"),
        ("[1]", "line 10: need an object"),
        ('{"more": 1}', "line 10: need an object"),
        ('{"run": [1, 2]}', r"run 2, \(1, 2\): need 6 or 9 numbers"),
        ('{"run": [0, 0, 0, 0, 0, 1.5]}', "cannot read 'm': .* whole numbers"),
        ('{"tensor": ["w"]}', r'line 10: need "tensor": \[name, \[sizes\], itemsize\]'),
        ('{"source": [0, 1, 2]}', r'line 10: need "source": \[rank, name, bytes\]'),
        ('{"source_box": [0, "v", [0], [1], 0]}', "line 10: there is no line for the tensor 'v'"),
        ('{"source_box": [0, "w", [0], [1], 0]}', "the source: .* need 2 numbers each"),
        ('{"target_box": [7, "w", [0, 0], [1, 1], 0]}', "the target: .* there is no such buffer"),
        ('{"source_box": [0, "w", [3, 0], [2, 6], 0]}', "it is empty or not inside its tensor"),
        ('{"source_box": [0, "w", [2, 0], [2, 6], 2]}', "it is not inside its buffer"),
    ],
)
def test_what_is_wrong_in_a_manifest_is_said_with_its_line(line: str, reason: str) -> None:
    with pytest.raises(ReadError, match=reason):
        manifest_of("\n".join([*LINES, line]), "m")


def test_files_that_are_no_manifests(tmp_path: Path) -> None:
    for name, data in (("a.npz", b"PK"), ("b.jsonl", b"\xff\xfe"), ("c.npz", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ReadError, match=name):
            redist.check_runs(tmp_path / name)
    np.savez(tmp_path / "d.npz", runs=np.zeros(1, RUN))
    with pytest.raises(ReadError, match=r"d\.npz"):
        redist.check_runs(tmp_path / "d.npz")
    with pytest.raises(ReadError, match="No such file"):
        redist.check_runs(tmp_path / "none.jsonl")
    np.savez(tmp_path / "e.npz", a=np.zeros(1))
    for name, why in (("none.npy", "No such file"), ("e.npz", "several arrays")):
        (tmp_path / "e.jsonl").write_text(json.dumps({"runs": name}))
        with pytest.raises(ReadError, match=f"{name}': .*{why}"):
            redist.check_runs(tmp_path / "e.jsonl")
    side = Boxes.of({}, [], [])
    with pytest.raises(WriteError, match="cannot write"):
        write_manifest(tmp_path / "none" / "m.jsonl", [], side, side)


W = {"w": (4, 6)}


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        ((0, "w", (0, 0), (4, 6), 0, (2, 2), 2), "its strides do not nest"),
        ((0, "w", (0, 0), (4, 6), 0, (12, -2), 2), "not inside its buffer"),
        ((0, "w", (0, 0), (4, 6), 0, (2**61, 2), 2), "not inside its buffer"),
        ((0, "w", (0, 0), (4, 6), 2**62, None, 2), "not inside its buffer"),
        ((0, "w", (2**62, 0), (4, 6), 0, None, 2), "not inside its tensor"),
        ((0, "w", (0, 0), (4, 6), 0, None, 0), "itemsize"),
        ((0, "w", (0, 0), (4, 2**70), 0, None, 2), "cannot use boxes"),
        ((0, "v", (0, 0), (4, 6), 0, None, 2), "there is no such tensor"),
    ],
)
def test_boxes_that_cannot_be_are_refused(box: BoxRow, reason: str) -> None:
    right = Boxes.of(W, [(0, "w", 48)], [(0, "w", (0, 0), (4, 6), 0, None, 2)])
    with pytest.raises(ArgumentError, match=reason):
        redist.check_runs([], Boxes.of(W, [(0, "w", 48)], [box]), right)


def test_two_names_of_one_place_need_two_buffers() -> None:
    one = (0, "w", (0, 0), (4, 6), 0, None, 2)
    side = Boxes.of(W, [(0, "w", 48)], [one, one])
    with pytest.raises(ArgumentError, match="another box begins at the same byte"):
        redist.check_runs([], side, side)


def test_runs_and_sides_that_cannot_be_are_refused() -> None:
    side = Boxes.of(W, [(0, "w", 48)], [(0, "w", (0, 0), (4, 6), 0, None, 2)])
    other = Boxes.of({"w": (6, 4)}, [(0, "w", 48)], [])
    for runs, reason in (
        ([(0, 1, 0, 0, 0, 48)], r"run 0, \(0, 1, 0, 0, 0, 48, 1, 0, 0\): the source has 1 buffers"),
        ([(0, 0, 0, -1, 0, 48)], "the target has 1 buffers"),
        ([(0, 0, 0, 0, 0, 0)], "bytes and count are 1 or more"),
        ([(0, 0, 0, 0, 0, 8, 0, 0, 0)], "bytes and count are 1 or more"),
        ([(0, 0, 0, 0, 0, 2**70)], "give rows of whole numbers"),
        ([0], "give rows of whole numbers"),
        (np.zeros(1, box_dtype(1)), "need whole numbers round, source"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            redist.check_runs(runs, side, side)
    with pytest.raises(ArgumentError, match=r"has shape \(4, 6\) at the source and \(6, 4\)"):
        redist.check_runs([], side, other)
    with pytest.raises(ArgumentError, match="cannot use int as a side"):
        redist.check_runs([], 1, side)


def test_what_is_no_list_of_runs() -> None:
    for given in ([(0, 0, 0, 0, 0, 48)], 7):
        with pytest.raises(ArgumentError, match="cannot judge runs without sides: give source and"):
            redist.check_runs(given)
    side = Boxes.of(W, [(0, "w", 48)], [(0, "w", (0, 0), (4, 6), 0, None, 2)])
    wide = np.zeros(1, [(name, "<u8") for name in FIELDS[:6]])
    wide["bytes"] = 2**63 + 48
    with pytest.raises(ArgumentError, match="bytes is beyond 63 bits"):
        redist.check_runs(wide, side, side)
    wide["bytes"] = 48
    assert redist.check_runs(wide, side, side).is_right


@pytest.mark.parametrize("seed", range(sample(60, of=6000)))
def test_files_with_a_bit_changed_are_refused_or_judged(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    side = Boxes.of(W, [(0, "w", 48)], [(0, "w", (0, 0), (4, 6), 0, None, 2)])
    path = tmp_path / rng.choice(["m.npz", "m.jsonl"])
    write_manifest(path, [(0, 0, 0, 0, 0, 24), (0, 0, 24, 0, 24, 24)], side, side)
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    with contextlib.suppress(ArgumentError, ReadError):
        str(redist.check_runs(path))
    gc.collect()  # a file that is left open is a warning, and so an error of the test that collects it


def test_a_side_may_be_an_object_that_makes_boxes() -> None:
    side = Boxes.of(W, [(0, "w", 48)], [(0, "w", (0, 0), (4, 6), 0, None, 2)])

    class Weights:
        def boxes(self) -> Boxes:
            return side

    assert redist.check_runs([(0, 0, 0, 0, 0, 48)], Weights(), Weights()).is_right


def test_arrays_map_to_what_rows_say() -> None:
    assert json.loads(LINES[7])["run"] == list(as_runs([(0, 0, 0, 0, 0, 24)])[0])[:6]
