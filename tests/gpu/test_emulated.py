"""The CUDA kernels as plain C++, under the sanitizers, against the copies of the CPU."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from redist.layout.dtype import DType
from redist.runtime.copies.copy_list import BufferCopy
from redist.runtime.copies.strided import Strided, canonical
from redist.runtime.cuda.kernels import pieces
from redist.runtime.cuda.kernels.blocking import Tuning
from redist.runtime.cuda.kernels.launch import source
from redist.runtime.cuda.kernels.rounds import CudaReductionList, prelude_of
from redist.runtime.cuda.kernels.tables import Tables, tables_of
from redist.runtime.datatypes.type_copies import copies_of
from tests.problems.datatypes import Drawn
from tests.programs.gpu.lists import (
    SPREAD,
    Case,
    Reduction,
    as_file,
    far_case,
    random_case,
    random_reduction,
    same_values,
    spread_move,
)
from tests.tiers import sample

HERE = Path(__file__).parents[1] / "fakes"
WITHOUT_LEAKS = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
"""Kernels allocate nothing, and looking for leaks takes seconds of every run on some machines."""
TUNINGS = (
    Tuning(),
    Tuning(shared_below=1024),
    Tuning(loose_from=40),
)

MORE = pytest.mark.slow("more reductions, each compiled by itself")


def build(folder: Path, prelude: str = "") -> Path:
    """The kernels as a program of the host."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    out, kernels = folder / "emulate", folder / "kernels.h"
    kernels.write_text(prelude + source(), encoding="utf-8")
    command = [compiler, "-std=c++17", "-O0", "-g", "-w", "-fsanitize=address,undefined"]
    command += ["-ffp-contract=off", "-fno-sanitize-recover=all", f'-DKERNEL="{kernels}"']
    subprocess.run([*command, "-o", str(out), str(HERE / "emulate.cpp")], check=True)
    return out


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("emulated"))


def ran(
    program: Path,
    cases: list[Case],
    tables: list[list[Tables]],
    folder: Path,
    rng: Random,
    *spread: int,
) -> Any:
    """All buffers after all cases, one after another, run in one process."""
    blocks = [rng.choice([1, 3, 1000]) for _ in cases]
    (folder / "in").write_bytes(as_file(cases, tables, blocks))
    command = [str(program), str(folder / "in"), str(folder / "out"), *map(str, spread)]
    done = subprocess.run(command, capture_output=True, env=WITHOUT_LEAKS)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return np.fromfile(folder / "out", np.uint8)


def emulate(program: Path, cases: list[Case], tuning: Tuning, folder: Path, rng: Random) -> None:
    """Run all cases in one process and compare every byte of every buffer."""
    tables = [[tables_of(case.moves, case.phases, tuning)] for case in cases]
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
    cases = [random_case(rng) for _ in range(sample(8, of=100))]
    emulate(program, cases, TUNINGS[number], tmp_path, rng)


def test_random_datatypes(program: Path, tmp_path: Path) -> None:
    rng, cases = Random(3), []
    for seed in range(sample(12, of=200)):
        drawn = Drawn(seed)
        blocks = copies_of(drawn.datatype, drawn.count).blocks
        packs = [replace(one, src_offset=one.src_offset + drawn.offset) for one in blocks]
        buffers = [np.zeros(drawn.packed.size, np.uint8), drawn.memory]
        cases.append(Case(packs, buffers, [rng.choice((0, 5, 8)) for _ in buffers]))
        drawn.free()
    emulate(program, cases, Tuning(), tmp_path, rng)


def transposed(item: int, rows: int, columns: int, pad: int, start: int) -> Case:
    """A matrix and its transpose, whose rows are ``pad`` elements longer than needed."""
    to, of = (item, (rows + pad) * item), ((columns + pad) * item, item)
    form = canonical((rows, columns), item, to, of)
    random = np.random.default_rng(rows)
    sizes = (columns * to[1] + start, rows * of[0] + start)
    buffers = [random.integers(0, 256, size, np.uint8) for size in sizes]
    return Case([BufferCopy(0, start, 1, start, form)], buffers, [0, 0])


CELLS_OF_BYTES, CELLS_OF_HALVES = 1 << 19, 1 << 22


@pytest.mark.parametrize(
    ("item", "rows", "columns", "pad", "start", "kinds"),
    [
        (1, 128, 256, 0, 0, CELLS_OF_BYTES),
        (2, 96, 160, 4, 0, CELLS_OF_HALVES),
        (1, 131, 258, 0, 0, 1 << 1),  # rows of no whole words
        (1, 131, 258, 1, 0, CELLS_OF_BYTES | 1 << 1),  # words, and strips beside them
        (2, 63, 65, 1, 2, CELLS_OF_HALVES | 1 << 3),
        (1, 8, 256, 0, 0, 1 << 1),
    ],
)
def test_transposes_of_small_elements(
    program: Path,
    item: int,
    rows: int,
    columns: int,
    pad: int,
    start: int,
    kinds: int,
    tmp_path: Path,
) -> None:
    if pad == 1:
        pad = -rows % 4  # of the longer rows only
        columns += -(columns + pad) % 4
    case = transposed(item, rows, columns, pad, start)
    assert tables_of(case.moves, case.phases, Tuning()).kinds == kinds
    emulate(program, [case], Tuning(), tmp_path, Random(1))


def fan(n_targets: int) -> Case:
    """The columns of a matrix, to several buffers each."""
    form = Strided(256, ((10, 256, 1024),))
    moves = [
        BufferCopy(1 + target, 2560 * k, 0, 256 * k, form)
        for target in range(n_targets)
        for k in range(4)
    ]
    random = np.random.default_rng(1)
    buffers = [random.integers(0, 256, 10240, np.uint8) for _ in range(1 + n_targets)]
    return Case(moves, buffers, [0] * len(buffers))


def test_what_goes_to_several_places_is_read_once() -> None:
    case = fan(5)
    tables = tables_of(case.moves, case.phases, Tuning())
    assert tables.fans_out and [int(row["n_members"]) for row in tables.rows] == [5, 5, 5, 5, 0]


def test_reductions_do_not_fan_out() -> None:
    case = fan(5)
    tables = tables_of(case.moves, case.phases, Tuning(), folds=True)
    assert not tables.fans_out and len(tables.rows) == 21


def test_reductions_have_no_cells() -> None:
    case = transposed(1, 128, 256, 0, 0)
    assert tables_of(case.moves, case.phases, Tuning(), folds=True).kinds == 1 << 1


def test_what_goes_to_several_places_arrives(program: Path, tmp_path: Path) -> None:
    emulate(program, [fan(n) for n in (1, 2, 5, 70)], Tuning(), tmp_path, Random(1))


@pytest.mark.parametrize(("rows", "is_ragged"), [(1024, False), (1023, True), (63, False)])
def test_tiles_that_write_parts_of_sectors_are_told(rows: int, is_ragged: bool) -> None:
    case = transposed(4, rows, 128, 0, 0)
    assert tables_of(case.moves, case.phases, Tuning()).is_ragged == is_ragged


def test_runs_longer_than_a_loose_one_may_be(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "MAX_LOOSE", 1000)
    runs = [Strided(n, ()) for n in (999, 1000, 1001, 2500, 4000)]
    moves = [BufferCopy(2 * k, 0, 2 * k + 1, 3, form) for k, form in enumerate(runs)]
    random = np.random.default_rng(1)
    buffers = [random.integers(0, 256, run.block + 3, np.uint8) for run in runs for _ in range(2)]
    tuning = Tuning(loose_from=40)
    case = Case(moves, buffers, [0] * len(buffers))
    assert len(tables_of(moves, case.phases, tuning).rows) == 1 + 1 + 2 + 3 + 4 + 1
    emulate(program, [case], tuning, tmp_path, Random(1))


def test_far_apart(program: Path, tmp_path: Path) -> None:
    rng = Random(7)
    cases = [far_case(rng) for _ in range(sample(8, of=60))]
    tuning = Tuning(loose_from=40)
    tables = [[tables_of(map(spread_move, case.moves), case.phases, tuning)] for case in cases]
    got = ran(program, cases, tables, tmp_path, rng, SPREAD)
    wanted = np.concatenate([buffer for case in cases for buffer in case.wanted()])
    assert np.array_equal(got, wanted)


def agree(
    program: Path, reductions: list[Reduction], op: str, dtype: DType, folder: Path, rng: Random
) -> int:
    """Compare every byte of every buffer after reductions; how many partial values were chained."""
    tuning = rng.choice([None, Tuning(shared_below=1024)])
    made = [
        CudaReductionList.of(one.case.moves, op, dtype, tuning, one.copies) for one in reductions
    ]
    cases = [
        one.after_copies({chain.move for chain in combine.chains})
        for one, combine in zip(reductions, made, strict=True)
    ]
    tables = [
        combine.tables(one.case.phases) for one, combine in zip(reductions, made, strict=True)
    ]
    got = ran(program, cases, tables, folder, rng)
    at = 0
    for k, one in enumerate(reductions):
        for number, want in enumerate(one.wanted(op, dtype)):
            same = same_values(got[at : at + want.size], want, dtype)
            assert same, (k, number, one.copies[:3], one.case.moves[:3])
            at += want.size
    assert at == got.size
    return sum(len(chain.more) for combine in made for chain in combine.chains)


@MORE
def test_sources_of_a_chain_that_lie_further_apart_than_others(tmp_path: Path) -> None:
    dtype = DType.parse("f64")
    form = Strided(8, ((4, 64, 64),))
    copies = [BufferCopy(0, 8 * k, 1, 8 * k, form) for k in range(3)]
    more = [BufferCopy(0, 8 * k, 2, 16 * k, form) for k in range(3)]
    random = np.random.default_rng(1)
    buffers = [random.random(32).view(np.uint8) for _ in range(3)]
    program = build(tmp_path, prelude_of("sum", dtype))
    one = Reduction(Case(more, buffers, [0] * 3), copies)
    assert agree(program, [one], "sum", dtype, tmp_path, Random(1)) == 3


REDUCTIONS = (
    ("sum", "bf16"),
    ("prod", "c64"),
    ("max", "f16"),
    ("min", "i8"),
    ("prod", "u16"),
    ("sum", "c128"),
    ("max", "bool"),
    ("min", "f64"),
    ("sum", "f8e4m3fn"),
    ("prod", "f8e5m2fnuz"),
)


@pytest.mark.parametrize(
    ("op", "name"),
    [pytest.param(*one, marks=MORE if k else ()) for k, one in enumerate(REDUCTIONS)],
)
def test_random_reductions(op: str, name: str, tmp_path: Path) -> None:
    dtype = DType.parse(name)
    if dtype.extended_name:
        pytest.importorskip("ml_dtypes", reason="needs ml_dtypes")
    rng = Random(op + name)
    program = build(tmp_path, prelude_of(op, dtype))
    several = [random_reduction(rng, 3000, dtype) for _ in range(sample(10, of=40))]
    assert agree(program, several, op, dtype, tmp_path, rng) > 5 * len(several)
    alone = [Reduction(random_case(rng, 5000, dtype.itemsize), []) for _ in range(sample(5, of=20))]
    assert agree(program, alone, op, dtype, tmp_path, rng) == 0
