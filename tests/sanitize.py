"""Run the compiled kernels under the address and undefined-behaviour sanitizers.

``python -m tests.sanitize`` (or ``make sanitize``) copies the package and its tests to a temporary
folder, builds the kernels there with every warning an error, and runs what reaches them: copies,
reductions, process reads, and meetings and replay between ranks; the steps of clustering beside
their NumPy twins. First it makes three mistakes on purpose, which must be noticed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
COMPILER = os.environ.get("CC", "cc")
WARNINGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")
SANITIZED = (
    *("-g", "-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
)
TESTS = (
    "tests/runtime/test_kernels.py",
    "tests/runtime/test_moves.py",
    "tests/runtime/test_reduce.py",
    "tests/learn/test_sums.py",
)
NATIVE = {
    "redist/runtime/copies": (),
    "redist/runtime/files": (),
    "redist/learn/kernels": ("-ffp-contract=off", "-Wno-psabi"),
}
"""Folders with kernels, and what they are compiled with besides."""
STAND_IN = """
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

__version__ = "not installed"

class Anything:
    def __init__(self, *args, **options): pass
    def __call__(self, thing): return thing

class Loader:
    def find_spec(self, name, path, target=None):
        return ModuleSpec(name, self, is_package=True) if name.startswith("sklearn.") else None
    def create_module(self, spec):
        module = ModuleType(spec.name)
        module.__getattr__ = self.found
        return module
    def found(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything
    def exec_module(self, module): pass

__path__ = []
sys.meta_path.append(Loader())
"""
"""What modules beside the kernels import of scikit-learn, where it is not installed."""
JOB = """
from tests.programs.launch import run
done = run("fuzz", 3, "--n", "18", limit_s=600)
print(done.output)
raise SystemExit(done.status)
"""

SUPPRESSED = "interceptor_via_lib:libmpi\n"
"""MPICH reads beyond a text of its own when it starts (seen on aarch64): not ours to mend."""

CALL = """
import numpy as np
from redist.runtime.copies.copy_list import CopyList, address_of
from redist.runtime.copies.kernels import kernels
k = kernels()
assert k is not None
row = np.zeros((2, 24), np.int64)
row[0, :6] = 0, 0, 1, 0, {block}, 0
room = [np.zeros(64, np.uint8), np.zeros(64, np.uint8)]
bases = np.array([address_of(a) for a in room], np.uintp)
k.copy(address_of(row) + {shift}, 1, address_of(bases), 0)
"""
CLUSTERING = """
import ctypes
import numpy as np
from redist.spmd import ExactGrid
from redist.learn.kernels.library import address, library
assert library() is not None
rows, sums = np.ones((5, 3)), np.zeros((2, 3))
steps = map(ctypes.c_double, ExactGrid.for_sum(1.0, 9).steps)
counts = map(ctypes.c_int64, ({n}, 3, 0))
library().redist_columns_f64(address(rows), *counts, *steps, address(sums))
"""
MISTAKES = (
    (CLUSTERING.format(n=6), "AddressSanitizer: heap-buffer-overflow"),
    (CALL.format(block=65, shift=0), "AddressSanitizer: heap-buffer-overflow"),
    (CALL.format(block=64, shift=1), "runtime error: member access within misaligned address"),
)


def build(native: Path, library: Path, options: tuple[str, ...] = ()) -> None:
    """Build the kernels for users with every warning an error, then with sanitizers to ``library``."""
    sources = sorted(map(str, native.glob("*.c")))
    command = [COMPILER, *WARNINGS, *options, f"-I{ROOT / 'redist/spmd'}"]
    subprocess.run([*command, "-O3", "-shared", "-fPIC", "-o", library, *sources], check=True)
    subprocess.run([*command, *SANITIZED, "-o", library, *sources], check=True)


def environment(folder: Path) -> dict[str, str]:
    """Return variables under which Python loads the sanitizers first and allocates by malloc."""
    asked = [COMPILER, "-print-file-name=libasan.so"]
    runtime = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    suppressed = folder / "suppressed"
    suppressed.write_text(SUPPRESSED, encoding="ascii")
    return {
        **os.environ,
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": f"detect_leaks=0:suppressions={suppressed}",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(folder),
    }


def main() -> int:
    """0 if all mistakes are noticed and nothing else is."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("redist", "tests", "bench"):
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(ROOT / part, folder / part, ignore=ignored)
        for file in ("pyproject.toml", "setup.py"):  # as in a checkout
            shutil.copy(ROOT / file, folder)
        for place, options in NATIVE.items():
            build(folder / place / "native", folder / place / "_kernels.so", options)
        if (
            find_spec("sklearn") is None
        ):  # the kernels do not need it, modules beside them import it
            (folder / "sklearn.py").write_text(STAND_IN)
        env = environment(folder)
        for code, sign in MISTAKES:
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
            if done.returncode == 0 or sign not in done.stderr:
                print(f"a mistake was not noticed ({sign}):\n{done.stdout}{done.stderr}")
                return 1
        print(f"{len(MISTAKES)} mistakes on purpose were noticed")
        for words in (["-m", "pytest", "--quiet", *TESTS], ["-c", JOB]):
            status = subprocess.run([sys.executable, *words], cwd=folder, env=env).returncode
            if status:
                return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
