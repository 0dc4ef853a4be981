"""Files of other people and broken files: every wrong header is refused, every changed byte is found."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redist
from redist import ReadError, pgas
from redist.store.header import MOST_HEADER
from tests.tiers import sample


def raw(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def row(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HOSTILE = {
    "overlaps": (raw({"a": row(), "b": row(offsets=(4, 12))}, bytes(12)), "overlaps"),
    "leaves a gap": (raw({"a": row(), "b": row(offsets=(12, 20))}, bytes(20)), "gap"),
    "begins late": (raw({"a": row(offsets=(4, 12))}, bytes(12)), "gap"),
    "ends early": (raw({"a": row()}, bytes(7)), "ends early"),
    "goes on": (raw({"a": row()}, bytes(9)), "goes on"),
    "huge header": ((MOST_HEADER + 1).to_bytes(8, "little") + bytes(99), "header"),
    "longer than the file": ((2**63).to_bytes(8, "little") + b"{}", "header"),
    "empty": (b"", "safetensors"),
    "seven bytes": (b"1234567", "safetensors"),
    "negative size": (raw({"a": row(shape=(-2,), offsets=(0, 8))}, bytes(8)), "sizes"),
    "negative offset": (raw({"a": row(offsets=(-8, 0))}), "sizes"),
    "offsets turned round": (raw({"a": row(offsets=(8, 0))}, bytes(8)), "needs"),
    "three offsets": (raw({"a": row(offsets=(0, 8, 9))}, bytes(9)), "sizes"),
    "sizes as text": (raw({"a": row(shape=("2",))}, bytes(8)), "sizes"),
    "sizes as floats": (raw({"a": row(shape=(2.0,))}, bytes(8)), "sizes"),
    "sizes as bools": (raw({"a": row(shape=(True, 2))}, bytes(8)), "sizes"),
    "sizes that overflow": (raw({"a": row(shape=(2**40, 2**40))}, bytes(8)), "needs"),
    "too few bytes": (raw({"a": row(shape=(3,))}, bytes(8)), "needs"),
    "unknown dtype": (raw({"a": row(dtype="F128")}, bytes(8)), "unknown"),
    "dtype as a list": (raw({"a": {**row(), "dtype": ["F32"]}}, bytes(8)), "unknown"),
    "no dtype": (raw({"a": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)), "no dtype"),
    "entry as a list": (raw({"a": []}), "no dtype"),
    "a list": (raw(b"[]"), "object"),
    "not JSON": (raw(b"{"), "not JSON"),
    "deep": (raw(b'{"a":' + b"[" * 100_000), "not JSON"),
    "not UTF-8": (raw(b'{"\xff": 1}'), "UTF-8"),
    "a key twice": (
        raw(b'{"a":' + json.dumps(row()).encode() + b',"a":' + json.dumps(row()).encode() + b"}", bytes(8)),
        "twice",
    ),
    "metadata of numbers": (raw({"__metadata__": {"a": 1}}), "texts"),
    "our sums, no crc": (raw({"__metadata__": {"redist": "1"}, "a": row()}, bytes(8)), "checksum"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused(name: str, tmp_path: Path) -> None:
    data, says = HOSTILE[name]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(ReadError, match=says):
        redist.stored(path)
    with pytest.raises(ReadError, match=says):
        redist.load(path)


def test_an_index_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside.safetensors").write_bytes(raw({}))
    folder = tmp_path / "folder"
    folder.mkdir()
    index = folder / "model.safetensors.index.json"
    for text, says in (
        ('{"weight_map": {"a": "../outside.safetensors"}}', "not a file of this folder"),
        ('{"weight_map": {"a": 1}}', "file names"),
        ("{}", "weight_map"),
        ("[", "weight_map"),
        ('{"weight_map": {"a": "missing.safetensors"}}', "No such file"),
    ):
        index.write_text(text, encoding="utf-8")
        with pytest.raises(ReadError, match=says):
            redist.stored(folder)


def test_files_of_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    values = np.arange(6, dtype="f4").reshape(2, 3)
    path.write_bytes(raw({"w": row(shape=(2, 3), offsets=(0, 24))}, values.tobytes()))
    assert (redist.load(path)["w"].gather() == values).all()
    assert not redist.stored(path).has_checksums


@pytest.fixture(name="whole")
def _whole(tmp_path: Path) -> Path:
    path = tmp_path / "w.safetensors"
    arrays = {"w": pgas.asarray(np.arange(12.0).reshape(3, 4)), "text": pgas.asarray(np.arange(5))}
    redist.save(path, arrays, meta={"step": 1})
    return path


def test_every_truncation_is_refused(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    short = tmp_path / "short.safetensors"
    for n in range(0, len(data), 1 if sample(1, of=2) == 2 else 37):
        short.write_bytes(data[:n])
        with pytest.raises(ReadError):
            redist.stored(short)


def test_every_changed_byte_is_found(whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    rng = random.Random(0)
    places = range(len(data)) if sample(1, of=2) == 2 else rng.sample(range(len(data)), 150)
    bad = tmp_path / "bad.safetensors"
    for at in {*places, *range(len(data) - 136, len(data), 7)}:
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        bad.write_bytes(changed)
        with pytest.raises(ReadError):
            redist.load(bad)


def test_a_change_in_the_name_of_the_format_is_found(whole: Path) -> None:
    """A header that no longer says whose it is still has our checksums, and must fit them."""
    data = whole.read_bytes()
    at = data.index(b'"redist":"1"')
    for place in range(at, at + 12):
        changed = bytearray(data)
        changed[place] ^= 1
        whole.write_bytes(changed)
        with pytest.raises(ReadError):
            redist.stored(whole)


def test_without_verify_changed_values_are_loaded(whole: Path) -> None:
    data = bytearray(whole.read_bytes())
    data[-1] ^= 1
    whole.write_bytes(data)
    assert {*redist.load(whole, verify=False)} == {"w", "text"}
    with pytest.raises(ReadError, match=r"block 0 of '(w|text)' has crc .*; the file was changed"):
        redist.load(whole)
