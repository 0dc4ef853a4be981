"""Files of PyTorch as safetensors files, byte for byte."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from redist.cli.main import main
from redist.launch.launcher import environment, find_launcher
from tests.cli.test_convert_command import read
from tests.programs.launch import default_mpi, one_worker
from tests.programs.torch.launch import needs_torch

pytestmark = needs_torch
if find_spec("torch") is not None:
    import torch


def tensors() -> dict[str, Any]:
    kinds = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.bool)
    made = {str(kind)[6:]: torch.arange(12.0).reshape(3, 4).to(kind) for kind in kinds}
    turned = torch.arange(12.0).reshape(3, 4).t()
    return made | {"turned": turned, "part": torch.arange(9)[2:7], "one": torch.tensor(2.5)}


def converted(source: Path, out: Path) -> dict[str, NDArray[Any]]:
    assert main(["convert", str(source), str(out)]) == 0
    return read(out)[0]


def same(found: dict[str, NDArray[Any]], wanted: dict[str, Any]) -> bool:
    """The same shapes and bytes."""
    return found.keys() == wanted.keys() and all(
        found[name].shape == one.shape
        and found[name].tobytes()
        == one.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        for name, one in wanted.items()
    )


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_state_dict(tmp_path: Path, is_zip: bool, capsys: pytest.CaptureFixture[str]) -> None:
    path, state = tmp_path / "w.pt", tensors()
    if not is_zip:
        del state["float8_e4m3fn"]  # PyTorch itself cannot read it from the old form
    torch.save(state, path, _use_new_zipfile_serialization=is_zip)
    assert same(converted(path, tmp_path / "w.safetensors"), state)
    assert f"PyTorch unpickles {path} with weights_only=True" in capsys.readouterr().err


def test_nested_dicts_lists_and_numbers(tmp_path: Path) -> None:
    from redist.store.stored import stored

    state = {"model": {"w": torch.ones(2)}, "moments": [torch.zeros(3), torch.ones(3)], "step": 5}
    torch.save(state | {"note": None, "size": torch.Size([2])}, tmp_path / "w.pt")
    found = converted(tmp_path / "w.pt", tmp_path / "w.safetensors")
    wanted = {"model.w": torch.ones(2), "moments.0": torch.zeros(3), "moments.1": torch.ones(3)}
    assert same(found, wanted)
    assert stored(tmp_path / "w.safetensors").meta == {"step": 5, "note": None}


def test_a_distributed_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch.distributed.checkpoint as dcp

    state = {"model": tensors(), "step": 7}
    dcp.save(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    found = converted(tmp_path / "dcp", tmp_path / "w.safetensors")
    assert same(found, {f"model.{name}": one for name, one in tensors().items()})
    said = capsys.readouterr()
    assert "/dcp/.metadata, which can run any code" in said.err
    assert "left out   'step': no tensor" in said.out


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "module",
            "it has more than weights (torch.nn.modules.linear.Linear); save its state_dict",
        ),
        ("twins", "two values have the name 'a.b'"),
        ("sparse", "cannot read 'w' of"),
        ("cut", "cannot read"),
        ("missing", "cannot read"),
        ("metadata", "cannot read"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, said: str
) -> None:
    path = tmp_path / "w.pt"
    match what:
        case "module":
            torch.save(torch.nn.Linear(2, 2), path)
        case "twins":
            torch.save({"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}, path)
        case "sparse":
            torch.save({"w": torch.eye(3).to_sparse()}, path)
        case "cut":
            torch.save(tensors(), path)
            path.write_bytes(path.read_bytes()[:500])
        case "metadata":
            path = tmp_path / "dcp"
            path.mkdir()
            (path / ".metadata").write_bytes(b"hello")
    out = tmp_path / "w.safetensors"
    assert main(["convert", str(path), str(out)]) == 2
    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err and "a bug in redist" not in err
    assert not out.exists()


@one_worker
@pytest.mark.skipif(default_mpi() is None, reason="needs mpirun")
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_dtensors_are_saved_and_loaded(ranks: int) -> None:
    command = find_launcher().command(ranks, ["-m", "tests.programs.torch.saved"])
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.count("saved and loaded") == ranks, done.stderr
