"""The CUDA kernels as plain C++, under the sanitizers, against the copies of the CPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from redist.layout.dtype import DType
from redist.runtime.cuda_combine import least_word, prelude_of
from redist.runtime.cuda_launch import source
from redist.runtime.cuda_rows import Tables, tables_of
from redist.runtime.cuda_tiles import Tuning
from tests.gpu.lists import Case, as_file, combined, random_case, same_values

HERE = Path(__file__).parent
TUNINGS = (
    Tuning(),
    Tuning(shared_below=1024),
    Tuning(loose_from=40),
)


def build(folder: Path, prelude: str = "") -> Path:
    """The kernels as a program of the host."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    out, kernels = folder / "emulate", folder / "kernels.h"
    kernels.write_text(prelude + source(), encoding="utf-8")
    command = [compiler, "-std=c++17", "-O1", "-g", "-w", "-fsanitize=address,undefined"]
    command += ["-ffp-contract=off", "-fno-sanitize-recover=all", f'-DKERNEL="{kernels}"']
    subprocess.run([*command, "-o", str(out), str(HERE / "emulate.cpp")], check=True)
    return out


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("emulated"))


def ran(program: Path, cases: list[Case], tables: list[Tables], folder: Path, rng: Random) -> Any:
    """All buffers after all cases, one after another, run in one process."""
    blocks = [rng.choice([1, 3, 1000]) for _ in cases]
    (folder / "in").write_bytes(as_file(cases, tables, blocks))
    done = subprocess.run([str(program), folder / "in", folder / "out"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return np.fromfile(folder / "out", np.uint8)


def emulate(program: Path, cases: list[Case], tuning: Tuning, folder: Path, rng: Random) -> None:
    """Run all cases in one process and compare every byte of every buffer."""
    tables = [tables_of(case.moves, case.phases, tuning) for case in cases]
    got = ran(program, cases, tables, folder, rng)
    at = 0
    for k, case in enumerate(cases):
        for number, want in enumerate(case.wanted()):
            assert np.array_equal(got[at : at + want.size], want), (k, number, case.moves)
            at += want.size
    assert at == got.size


@pytest.mark.parametrize("number", range(len(TUNINGS)))
def test_random_lists(program: Path, number: int, tmp_path: Path) -> None:
    rng = Random(number)
    cases = [random_case(rng) for _ in range(100)]
    emulate(program, cases, TUNINGS[number], tmp_path, rng)


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("sum", "bf16"),
        ("prod", "c64"),
        ("max", "f16"),
        ("min", "i8"),
        ("prod", "u16"),
        ("sum", "c128"),
    ],
)
def test_random_reductions(op: str, name: str, tmp_path: Path) -> None:
    dtype = DType.named(name)
    rng = Random(op + name)
    program = build(tmp_path, prelude_of(op, dtype))
    cases = [random_case(rng, 5000, dtype.itemsize) for _ in range(40)]
    least = least_word(op, dtype)
    tables = [tables_of(case.moves, case.phases, Tuning(), least) for case in cases]
    got = ran(program, cases, tables, tmp_path, rng)
    at = 0
    for case in cases:
        for want in combined(case, op, dtype):
            assert same_values(got[at : at + want.size], want, dtype)
            at += want.size
