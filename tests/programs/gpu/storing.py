"""Global arrays on GPUs saved and loaded: the files are those of the host, and tiles arrive on GPUs.

As in ``mpirun -n 2 python -m tests.programs.gpu.storing``; ``--without-gpu`` lets NumPy stand for CuPy.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import ArrayType, Mesh, pgas
from redist.pgas.tiles.tiled import tile_in
from redist.runtime.cuda.arrays import to_host
from tests.fakes import numpy_cupy
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
X: Any = pgas
FOLDER = Path()
DRAW = np.random.default_rng(1)
VALUES: dict[str, Any] = {
    "a": DRAW.normal(size=(37, 64)).astype("f4"),
    "b": DRAW.integers(0, 9, (64, 8, 12)),
    "s": np.float64(2.5),
    "h": DRAW.normal(size=(128, 256)).astype("f2"),
}
TYPES = {"a": "{x}, {}", "b": "{}, {}, {x}", "s": "", "h": "{}, {x}"}


def on_gpus() -> dict[str, Any]:
    return {
        name: X.asarray(one, type=TYPES[name]).to_device("cuda") for name, one in VALUES.items()
    }


def same_bytes() -> str | None:
    """A file shows nothing of where arrays lay."""
    redist.save(FOLDER / "gpu.safetensors", on_gpus())
    host = {name: X.asarray(one, type=TYPES[name]) for name, one in VALUES.items()}
    redist.save(FOLDER / "host.safetensors", host)
    files = [(FOLDER / f"{name}.safetensors").read_bytes() for name in ("gpu", "host")]
    return None if files[0] == files[1] else "other bytes than those of the host"


def loaded() -> str | None:
    for read in ("slices", "once"):
        found = redist.load(
            FOLDER / "gpu.safetensors", {"a": "{}, {x}", "*": None}, device="cuda", read=read
        )
        for name, one in found.items():
            if not one.device.startswith("cuda"):
                return f"{read}: {name} is on {one.device}"
            if not np.array_equal(to_host(one.gather()), VALUES[name]):
                return f"{read}: {name} has other values"
    return None


def fused() -> str | None:
    """Fused weights, cast on the way to the file and back."""
    p = COMM.size
    rule = f"qkv[{8 * p}|k, :] = q, k"
    t = ArrayType.parse(f"f32[{8 * p}{{x}}+{4 * p}{{x}}, 16]", Mesh(x=p))
    values = np.arange(12 * p * 16).reshape(12 * p, 16) % 99.0
    a = X.asarray(values.astype("f4")).to(t).to_device("cuda")
    redist.save(FOLDER / "f.safetensors", {"qkv": a}, names=rule, dtype="bf16")
    back = redist.load(FOLDER / "f.safetensors", {"qkv": t}, names=rule, device="cuda")["qkv"]
    if back.type != t or not back.device.startswith("cuda"):
        return f"{back.type} on {back.device}"
    return None if np.array_equal(to_host(tile_in(back)), to_host(tile_in(a))) else "other values"


def in_the_background() -> str | None:
    x = on_gpus()["a"]
    with redist.Saver(FOLDER / "run", keep=2) as saver:
        for step in range(1, 4):
            x = x + 1
            saver.save({"x": x}, step=step)
    found = saver.resume(device="cuda")
    if found is None or found[0] != 3 or not found[1]["x"].device.startswith("cuda"):
        return f"resumed {found}"
    same = np.array_equal(to_host(found[1]["x"].gather()), VALUES["a"] + np.float32(1) + 1 + 1)
    return None if same else "other values"


PROGRAMS = {
    "same bytes": same_bytes,
    "loaded": loaded,
    "fused": fused,
    "in the background": in_the_background,
}
CHECKS = tuple(PROGRAMS)


def program() -> int:
    """0 if everything holds."""
    global FOLDER
    parser = argparse.ArgumentParser()
    parser.add_argument("--without-gpu", action="store_true", help="where NumPy stands for CuPy")
    if parser.parse_args().without_gpu:
        numpy_cupy.install()
    with tempfile.TemporaryDirectory() as name:
        FOLDER = Path(COMM.bcast(name))
        status = run_named(PROGRAMS)
        COMM.Barrier()
    return status


if __name__ == "__main__":
    main(program)
