"""``redist inspect``: what a checkpoint holds, whether it is intact, what loading would take."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.cli.test_convert_command import write, write_npz

LISTED = """\
{path}: 3 arrays, 136 B, 1 file, with checksums
  array   dtype   shape   bytes   crc32
  n       i64        ()     8 B   {n}
  norm    f64         4    32 B   {norm}
  w       f32       6x4    96 B   {w}
"""


@pytest.fixture
def path(redist: Run, tmp_path: Path) -> str:
    arrays = {"w": np.arange(24, dtype="f4").reshape(6, 4), "norm": np.ones(4), "n": np.array(7)}
    write_npz(tmp_path / "w.npz", arrays)
    found = str(tmp_path / "w.safetensors")
    assert redist("convert", str(tmp_path / "w.npz"), found).status == 0
    return found


def test_arrays_and_checksums(redist: Run, path: str) -> None:
    sums = {
        name: one["crc32"][0]
        for name, one in json.loads(redist("inspect", path, "--json").out)["arrays"].items()
    }
    done = redist("inspect", path)
    assert (done.status, done.err) == (0, "")
    assert done.out == LISTED.format(path=path, **sums)
    done = redist("inspect", path, "--verify")
    assert done.status == 0
    assert done.out.endswith("\nintact     3 checksums compared, 136 B read\n")


def test_json(redist: Run, path: str) -> None:
    found = json.loads(redist("inspect", path, "--json").out)
    assert found["files"] == ["w.safetensors"] and found["meta"] is None
    one = found["arrays"]["w"]
    assert (one["dtype"], one["shape"], one["bytes"], one["file"]) == ("f32", [6, 4], 96, 0)
    data = Path(path).read_bytes()[one["begin"] : one["begin"] + 96]
    assert np.array_equal(np.frombuffer(data, "f4"), np.arange(24))


@pytest.mark.parametrize("name", ["w", "norm", "n"])
def test_every_changed_byte_is_found(redist: Run, path: str, name: str) -> None:
    one = json.loads(redist("inspect", path, "--json").out)["arrays"][name]
    data = bytearray(Path(path).read_bytes())
    data[one["begin"] + one["bytes"] - 1] ^= 0x10
    Path(path).write_bytes(data)
    done = redist("inspect", path, "--verify")
    assert done.status == 1 and f"wrong      block 0 of {name!r} has crc" in done.out
    assert "intact" not in done.out


def test_a_file_without_checksums_is_not_called_intact(redist: Run, tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    write(path, {"w": np.ones((2, 3), "f4")}, {})
    done = redist("inspect", str(path), "--verify")
    assert done.status == 4 and "unknown    the file has no checksums" in done.out
    assert "without checksums" in done.out and "crc32" not in done.out
    assert redist("inspect", str(path)).status == 0


def test_a_folder_names_its_files(redist: Run, path: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "folder")
    assert redist("convert", path, folder, "--shard-bytes", "50").status == 0
    done = redist("inspect", folder, "--verify")
    assert done.status == 0 and "2 files" in done.out and "intact     3 checksums" in done.out
    assert done.out.count("model-00001-of-00002.safetensors") == 2


def test_what_loading_would_take(redist: Run, path: str) -> None:
    options = ("--mesh", "x=2,y=2", "--types", "w={x}, {}", "--types", "n")
    done = redist("inspect", path, *options)
    assert done.status == 0
    assert done.out.partition("\n\n")[2] == (
        "  load   as             arrays   read\n"
        "  n      i64[]               1   slices\n"
        "  w      f32[6{x}, 4]        1   slices\n"
        "\n"
        "  ranks   reads   receives   holds\n"
        "  0-3      56 B        0 B    56 B\n"
        "  all     224 B        0 B   224 B\n"
        "\n"
        "reads      224 B = 2.15 x the 104 B in the files\n"
    )


def test_rules_make_one_array_of_several(redist: Run, tmp_path: Path) -> None:
    arrays = {
        f"layers.{n}.{x}": np.ones((size, 4), "f4")
        for n in range(3)
        for x, size in {"q": 8, "k": 2, "v": 2}.items()
    }
    path, rules = tmp_path / "w.safetensors", tmp_path / "rules.txt"
    write(path, arrays, {})
    rules.write_text("*.qkv[q|k|v, :] = *.q, *.k, *.v", encoding="utf-8")
    options = ("--mesh", "tp=2", "--types", "*.qkv=8{tp}+2*2{tp}, {}", "--names", str(rules))
    done = redist("inspect", str(path), *options)
    assert done.status == 0
    assert "  layers.*.qkv   f32[8{tp}+2*2{tp}, 4]        3   slices\n" in done.out
    assert "  0-1     288 B        0 B   288 B\n" in done.out
    assert "reads      576 B = 1.00 x the 576 B in the files" in done.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--types", "w={x}, {}"), "--types goes with --mesh"),
        (("--names", "rules"), "--names goes with --mesh"),
        (("--json", "--verify"), "--json prints the arrays alone"),
        (("--mesh", "x=2", "--types", "v={x}, {}"), "it matches none of 3 arrays"),
        (("--mesh", "x=2", "--types", "w={z}, {}"), "unknown axis 'z'"),
        (("--mesh", "x=2", "--types", "=w"), "need NAME=TYPE"),
        (("--mesh", "x=8192"), "8192 ranks; at most 4096 here"),
        (("--mesh", "x=2", "--names", "no"), "cannot read no"),
    ],
)
def test_wrong_requests(redist: Run, path: str, options: tuple[str, ...], said: str) -> None:
    done = redist("inspect", path, *options)
    assert done.status == 2 and said in done.one_line()


def test_what_is_no_checkpoint(redist: Run, tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_text("hello", encoding="utf-8")
    done = redist("inspect", str(tmp_path / "w.safetensors"))
    assert done.status == 2 and "it is not a safetensors file" in done.one_line()
