"""``redist convert``: arrays of other files, byte for byte, and what it refuses."""

from __future__ import annotations

import json
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cli.conftest import Run

Arrays = dict[str, NDArray[Any]]
KINDS = {"F64": "f8", "F32": "f4", "I64": "i8", "I32": "i4", "I8": "i1", "BOOL": "?", "U8": "u1"}
BITS = {"BF16": "u2", "F8_E4M3": "u1"}


def read(path: Path) -> tuple[Arrays, dict[str, str]]:
    """A safetensors file in a few lines of NumPy: its arrays, and the texts of its header."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    told = header.pop("__metadata__", {})
    found = {}
    for name, row in header.items():
        low, high = row["data_offsets"]
        kind = (KINDS | BITS)[row["dtype"]]
        found[name] = np.frombuffer(data[start + low : start + high], kind)
        found[name] = found[name].reshape(row["shape"])
    return found, told


def write(path: Path, arrays: Arrays, told: dict[str, str]) -> None:
    """A safetensors file as others write it, its arrays at odd bytes."""
    header: dict[str, Any] = {"__metadata__": told}
    at, data = 0, b""
    names = {np.dtype(ours).str: theirs for theirs, ours in KINDS.items()}
    for name, array in arrays.items():
        n = array.nbytes
        offsets = [at, at + n]
        kind = names[array.dtype.str]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": offsets}
        at, data = at + n, data + array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    np.savez(path, **arrays)


def weights() -> Arrays:
    rng = np.random.default_rng(3)
    return {
        "layers.0.q": rng.standard_normal((6, 4)).astype("f4"),
        "layers.0.k": rng.standard_normal((2, 4)).astype("f4"),
        "norm": rng.standard_normal(4),
        "step": np.array(7),
        "none": np.zeros((0, 3), "f4"),
    }


def same(found: Arrays, wanted: Arrays) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].dtype == one.dtype.newbyteorder("=") and np.array_equal(found[name], one)
        for name, one in wanted.items()
    )


def test_npz_to_a_file_to_a_folder_and_back(redist: Run, tmp_path: Path) -> None:
    arrays = weights() | {"turned": np.asfortranarray(np.arange(6.0).reshape(2, 3))}
    arrays["swapped"] = np.arange(6, dtype=">i4")
    write_npz(tmp_path / "w.npz", arrays)
    one, folder = str(tmp_path / "w.safetensors"), str(tmp_path / "w")
    done = redist("convert", str(tmp_path / "w.npz"), one)
    assert (done.status, done.err) == (0, "")
    assert done.out == f"wrote      {one}: 7 arrays, 240 B, 1 file\n"
    assert same(read(Path(one))[0], arrays)

    done = redist("convert", one, folder + "/", "--shard-bytes", "100")
    assert done.status == 0 and "7 arrays, 240 B, 4 files" in done.out
    files = sorted(Path(folder).glob("*.safetensors"))
    assert len(files) == 4 and all(sum(a.nbytes for a in read(f)[0].values()) <= 100 for f in files)
    assert same({name: a for file in files for name, a in read(file)[0].items()}, arrays)

    again = tmp_path / "again.safetensors"
    assert redist("convert", folder, str(again)).status == 0
    assert again.read_bytes() == Path(one).read_bytes()


def test_a_file_of_others_keeps_its_texts(redist: Run, tmp_path: Path) -> None:
    """Its arrays begin at odd bytes, and what its header says beside them becomes meta."""
    arrays = {"flags": np.array([True, False, True]), **weights()}
    write(tmp_path / "theirs.safetensors", arrays, {"format": "pt", "license": "mit"})
    out = tmp_path / "ours.safetensors"
    assert redist("convert", str(tmp_path / "theirs.safetensors"), str(out)).status == 0
    found, told = read(out)
    assert same(found, arrays)
    assert json.loads(told["redist.meta"]) == {"license": "mit"}


def test_casts_and_names(redist: Run, tmp_path: Path) -> None:
    q, k = weights()["layers.0.q"], weights()["layers.0.k"]
    write_npz(tmp_path / "w.npz", {"layers.0.qk": np.concatenate([q, k]), "n": np.array(7)})
    rules = tmp_path / "rules.txt"
    rules.write_text("# fused\n*.qk[q|2, :] = *.q, *.k\n", encoding="utf-8")
    out = tmp_path / "w.safetensors"
    options = ("--dtype", "bf16", "--names", str(rules))
    assert redist("convert", str(tmp_path / "w.npz"), str(out), *options).status == 0
    found, _ = read(out)
    assert found["n"] == 7 and found["n"].dtype == np.int64
    for name, one in {"layers.0.q": q, "layers.0.k": k}.items():
        near = (found[name].astype("u4") << 16).view("f4")
        assert near.shape == one.shape and np.allclose(near, one, rtol=2**-8, atol=0)


def test_a_source_that_was_changed_is_refused(redist: Run, tmp_path: Path) -> None:
    write_npz(tmp_path / "w.npz", weights())
    path, out = tmp_path / "w.safetensors", tmp_path / "out.safetensors"
    assert redist("convert", str(tmp_path / "w.npz"), str(path)).status == 0
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = redist("convert", str(path), str(out))
    assert done.status == 2 and "has crc" in done.one_line() and not out.exists()


def test_nothing_is_unpickled(redist: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", a=np.ones(2), b=np.array([{}], dtype=object))
    out = tmp_path / "w.safetensors"
    done = redist("convert", str(tmp_path / "w.npz"), str(out))
    assert done.status == 2 and not out.exists()
    assert "cannot read 'b' of" in done.one_line() and "allow_pickle=False" in done.one_line()


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("no.safetensors", "w.safetensors", "cannot read"),
        ("no", "w.safetensors", "there is no such file or folder"),
        ("text.txt", "w.safetensors", "need a file that ends in .safetensors, .npz or .pt"),
        ("broken.npz", "w.safetensors", "cannot read"),
        ("w.npz", "w.pt", "need a name that ends in .safetensors, or a folder's"),
        ("w.npz", "no/w.safetensors", "there is no such folder"),
        ("empty.npz", "w.safetensors", "it has no arrays"),
        ("text.npz", "w.safetensors", "cannot read"),
    ],
)
def test_what_it_refuses(redist: Run, tmp_path: Path, source: str, target: str, said: str) -> None:
    (tmp_path / "text.txt").write_text("a", encoding="utf-8")
    (tmp_path / "text.npz").write_text("a", encoding="utf-8")
    write_npz(tmp_path / "w.npz", weights())
    np.savez(tmp_path / "empty.npz")
    (tmp_path / "broken.npz").write_bytes((tmp_path / "w.npz").read_bytes()[:-40])
    before = sorted(tmp_path.iterdir())
    done = redist("convert", str(tmp_path / source), str(tmp_path / target))
    assert done.status == 2 and said in done.one_line()
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("option", [("--shard-bytes", "0"), ("--shard-bytes", "many")])
def test_wrong_options(redist: Run, tmp_path: Path, option: tuple[str, str]) -> None:
    write_npz(tmp_path / "w.npz", weights())
    done = redist("convert", str(tmp_path / "w.npz"), str(tmp_path / "w"), *option)
    assert done.status == 2 and done.one_line().startswith("--shard-bytes: ")


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is here")
def test_pytorch_is_named_where_it_is_missing(redist: Run, tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(b"")
    done = redist("convert", str(tmp_path / "w.pt"), str(tmp_path / "w.safetensors"))
    assert done.status == 2 and "pip install 'torch>=" in done.err


def test_checksums_are_those_of_zlib(redist: Run, tmp_path: Path) -> None:
    write_npz(tmp_path / "w.npz", weights())
    out = tmp_path / "w.safetensors"
    assert redist("convert", str(tmp_path / "w.npz"), str(out)).status == 0
    found, told = read(out)
    sums = json.loads(told["redist.crc32"])
    for name, one in found.items():
        assert sums[name] == (f"{zlib.crc32(one.tobytes()):08x}" if one.size else "")
