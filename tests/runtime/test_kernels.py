"""What Python and C tell each other: the same numbers, the same structures, never an old library."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from redist.launch.launcher import environment
from redist.runtime.copies import kernels, script

HEADER = (kernels.LIBRARY.parent / "native" / "kernels.h").read_text(encoding="utf-8")
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def test_numbers_are_those_of_the_header():
    for name in ("ABI", "MAX_DIMS"):
        (value,) = re.findall(rf"^#define {name} (\d+)$", HEADER, re.MULTILINE)
        assert int(value) == getattr(kernels, name)
    answers, kinds = (names.split(", ") for names in re.findall(r"^enum { (.*) };$", HEADER, re.M))
    assert [getattr(kernels, name) for name in answers] == list(range(len(answers)))
    assert [(kind.name, kind.value) for kind in script.OperationKind] == [
        (k, i) for i, k in enumerate(kinds)
    ]


@pytest.mark.parametrize("structure", [script.Operation, script.Script])
def test_structures_have_the_size_of_the_header(structure):
    name = {"Operation": "operation", "Script": "script"}[structure.__name__]
    (words,) = re.findall(rf"sizeof\({name}\) == 8 \* (\d+)", HEADER)
    assert ctypes.sizeof(structure) == 8 * int(words)


def build(path: Path, code: str) -> Path:
    """Compile a library from a line of C."""
    source = path.with_suffix(".c")
    source.write_text(code, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source], check=True)
    return path


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("int redist_copy;", 0),
        (f"long long redist_abi(void) {{ return {kernels.ABI + 1}; }}", kernels.ABI + 1),
    ],
)
def test_library_of_another_version_is_refused(tmp_path, code, number):
    answer = kernels.load_kernels(build(tmp_path / "_kernels.so", code))
    assert isinstance(answer, str)
    assert f"number {number}, not {kernels.ABI}" in answer


def test_what_is_no_library_is_refused(tmp_path):
    path = tmp_path / "_kernels.so"
    assert "not built" in str(kernels.load_kernels(path))
    path.write_text("no library", encoding="utf-8")
    assert "cannot be loaded" in str(kernels.load_kernels(path))


@NEEDS_COMPILER
def test_doctor_says_why_the_library_is_refused(tmp_path):
    path = build(tmp_path / "_kernels.so", "int redist_copy;")
    code = (
        "import sys, pathlib; from redist.runtime.copies import kernels; "
        "kernels.LIBRARY = pathlib.Path(sys.argv[1]); "
        "from redist.doctor.process import facts; "
        "print(*((f.found, f.why) for f in facts() if f.name == 'compiled kernels'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=120
    )
    assert "'no'" in done.stdout and "built for another redist" in done.stdout, done.stderr


@pytest.mark.parametrize("module", ["runtime.copies.kernels", "learn.kernels.library"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_checkout_without_kernels_warns_once_and_names_the_command(tmp_path, module, rank):
    """Slow moves are not silent: rank 0 says what builds the kernels; REDIST_PURE=1 is an answer."""
    pytest.importorskip("sklearn" if "learn" in module else "numpy")
    loads = "kernels" if "runtime" in module else "library"
    code = (
        f"import pathlib; from redist.{module} import {loads} as load; import redist.{module} as m; "
        f"m.LIBRARY = pathlib.Path({str(tmp_path / 'none.so')!r}); print(load(), load())"
    )
    for pure in ("0", "1"):
        env = {**environment(), "REDIST_PURE": pure, "RANK": str(rank)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout == "None None\n"
        speaks = int(pure == "0" and rank == 0)
        assert done.stderr.count("runs without its compiled kernels") == speaks
        assert done.stderr.count(f"pip install -e {kernels.PACKAGE.parent}") == speaks
