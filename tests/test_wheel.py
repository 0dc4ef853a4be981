"""What is published can be installed: sdist and wheel, in an environment that has nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow("builds a wheel and environments of their own"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]
ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("redist", "pyproject.toml", "setup.py", "README.md", "LICENSE")
LIBRARY = "redist/runtime/copies/_kernels.so"
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
REQUEST = ("f32[4096{x}, 4096{y}]", "f32[4096{y}, 4096{x}]", "--mesh", "x=2,y=4")
MOVE = """
import sys
import numpy as np
import redist
from mpi4py import MPI
from redist.runtime.copies.kernels import kernels
assert (kernels() is not None) == (sys.argv[1] == "compiled")
comm = MPI.COMM_WORLD
rows = np.arange(50.0).reshape(5, 10) + 50 * comm.rank
out = redist.redistribute(rows, "f64[10{x}, 10]", "f64[10, 10{x}]", comm, mesh=redist.Mesh(x=2))
whole = np.arange(100.0).reshape(10, 10)
assert np.array_equal(out, whole[:, 5 * comm.rank :][:, :5])
print("moved by", redist.__file__)
"""


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """Run a command outside the checkout; return what it prints."""
    hidden = ("PYTHON", "COVERAGE")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The sdist, and beside it the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    source = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--outdir", folder, source, folder=source)
    (found,) = folder.glob("redist-*.tar.gz")
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory, sdist):
    """Python of an environment in which the wheel was installed."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    found = folder / "bin" / "python"
    (wheel,) = sdist.parent.glob("*.whl")
    run(found, *PIP, "install", f"{wheel}[mpi]", folder=folder)
    return found


def test_wheel_is_for_every_python_of_this_platform(sdist):
    (wheel,) = sdist.parent.glob("*.whl")
    assert "-py3-none-" in wheel.name and not wheel.name.endswith("-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert LIBRARY in names
    assert "redist/py.typed" in names
    assert any(name.endswith(".cu") for name in names)
    assert not [name for name in names if not name.startswith(("redist/", "redist-"))]


def test_wheel_works_where_nothing_else_is(python, tmp_path):
    where = run(python, "-c", "import redist; print(redist.__file__)", folder=tmp_path)
    assert str(python.parent.parent) in where
    assert "exchange" in run(python.with_name("redist"), "plan", *REQUEST, folder=tmp_path)
    assert "compiled kernels" in run(python.with_name("redist"), "doctor", folder=tmp_path)
    assert _moved(python, tmp_path, "compiled").count(str(python.parent.parent)) == 2


def test_sdist_installs_without_a_compiler(python, sdist, tmp_path):
    given = ("install", "--no-deps", "--force-reinstall", "--no-cache-dir", sdist)
    run(python, *PIP, *given, folder=tmp_path, CC="false")
    assert "not built" in run(python.with_name("redist"), "doctor", folder=tmp_path)
    assert _moved(python, tmp_path, "NumPy").count("moved by") == 2


def _moved(python: Path, folder: Path, how: str) -> str:
    """Move an array between two ranks in that environment."""
    program = folder / "move.py"
    program.write_text(MOVE, encoding="utf-8")
    return run(python.with_name("mpirun"), "-n", "2", python, program, how, folder=folder)
