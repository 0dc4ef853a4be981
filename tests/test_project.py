"""The project as a whole: layers, imports and words; tests/docs has what documents show."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import pytest

from redist.text.extras import EXTRAS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "redist").rglob("*.py"))

LAYERS = (
    "errors version",
    "text",
    "layout",
    "names",
    "plan",
    "draw lower program",
    "synth check",
    "planner refits",
    "graph arrange offload",
    "launch",
    "runtime",
    "judge",
    "pgas",
    "jax torch spmd",
    "learn store",
    "measure",
    "doctor",
    "redist",
    "cli",
    "__main__",
)
"""Lowest first; units of one layer do not import each other. ``redist`` is the package's facade."""

FACADES = {
    *(("plan.plan", unit) for unit in ("draw", "lower", "jax", "torch")),
    *(("refits.plan", unit) for unit in ("runtime", "torch")),
    *(("refits.sources", unit) for unit in ("runtime", "jax", "torch")),
}
"""Methods that hand an object on to a layer above: ``plan.svg()`` draws, ``plan.to_torch()`` runs."""

RANK = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer.split()}
HOME_OF = {
    "z3": ("check",),
    "mpi4py": ("runtime", "measure", "doctor"),
    "cupy": ("runtime", "doctor"),
    "jax": ("jax",),
    "torch": ("torch", "launch"),
    "ray": ("launch", "pgas"),
    "dask": ("pgas",),
    "distributed": ("launch", "pgas"),
    "pyarrow": ("pgas",),
    "zarr": ("pgas", "store"),
    "h5py": ("pgas", "store"),
    "scipy": ("arrange", "learn"),
    "sklearn": ("learn",),
    "threadpoolctl": ("learn",),
}


def unit_of(module: str) -> str:
    """The unit a dotted module name belongs to.

    >>> unit_of("redist.plan.rules"), unit_of("redist.text.units"), unit_of("redist")
    ('plan', 'text', 'redist')
    """
    return module.split(".")[1] if "." in module else "redist"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@lru_cache(maxsize=1)
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Everything in a file; of the last one it is remembered, for the next question about it."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a file imports, also inside functions."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base != "redist":
                yield node.lineno, base
                continue
            for alias in node.names:
                inner = f"redist.{alias.name}"
                yield node.lineno, inner if unit_of(inner) in RANK else "redist"


def imports_must_point_down(path: Path) -> None:
    unit = unit_of(module_name(path))
    assert unit in RANK, f"{path.name} is in no layer: give {unit!r} a place in LAYERS"
    for line, name in imports_of(path):
        where = f"{path.relative_to(ROOT)}:{line} imports {name}"
        top = name.split(".")[0]
        assert unit in HOME_OF.get(top, (unit,)), f"{where}: only {HOME_OF[top]} may"
        assert top not in ("bench", "proofs", "tests"), f"{where}: it is no part of the package"
        if (module_name(path).removeprefix("redist."), unit_of(name)) in FACADES:
            continue
        if top == "redist" and unit_of(name) != unit:
            assert RANK[unit_of(name)] < RANK[unit], f"{where}: imports point down only"


def nothing_beside_the_package_is_named(path: Path) -> None:
    """Not by a string either: the installed package knows no ``bench``, ``proofs`` or ``tests``."""
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not re.match(r"(?:bench|proofs|tests)\.[a-z_.]+$", node.value), node.value


def test_search_and_judge_share_nothing_above_the_plan() -> None:
    assert RANK["synth"] == RANK["check"]
    for path in MODULES:
        unit, other = unit_of(module_name(path)), {"synth": "check", "check": "synth"}
        if unit in other:
            assert all(unit_of(name) != other[unit] for _, name in imports_of(path)), path


def test_import_redist_brings_only_numpy_along() -> None:
    code = (
        "import sys; before = set(sys.modules); import redist; "
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    stdlib = {*sys.stdlib_module_names, "tomli"}  # which is tomllib before Python 3.11
    assert set(done.stdout.split()) - stdlib == {"numpy", "redist"}


def test_messages_install_what_the_extras_of_pyproject_bring() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = {"test", "dev", "docs", "peers"}
    extras = {k: v for k, v in project["optional-dependencies"].items() if k not in ours}
    assert extras == {name: packages.split() for name, packages in EXTRAS.items()}
    for name in ("README.md", "docs/index.md"):
        shown = re.findall(
            r"^\| `(\w+)` \|", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE
        )
        assert set(extras) <= set(shown), f"{name} lacks {set(extras) - set(shown)}"


def test_nothing_is_said_to_come_from_pypi() -> None:
    """``pip install "redist[...]"`` fails: redist is not there."""
    for path in [*MODULES, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        assert not re.search(r"pip install .?redist", path.read_text(encoding="utf-8")), path


def test_script_and_version_are_where_pyproject_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, name = project["project"]["scripts"]["redist"].partition(":")
    assert callable(getattr(import_module(module), name))
    module, _, name = project["tool"]["setuptools"]["dynamic"]["version"]["attr"].rpartition(".")
    assert re.fullmatch(r"\d+\.\d+\.\d+", getattr(import_module(module), name))


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_alone_lists_the_targets() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("demo", "test", "format", "lint", "types", "bench", "docs", "clean"):
        assert re.search(rf"^make {target} +\S", done.stdout, re.MULTILINE), target


# Words.

SKIPPED = {"build", "dist", "site", "results", "__pycache__"}
FORBIDDEN = (
    (r"(?<![\w.~-])/(?:home|root|tmp|work|opt|mnt|Users)/", "an absolute path of one machine"),
    (r"(?:file:/{2}|extra-index-ur[l]|find-link[s])", "the address of a package mirror"),
    (r"(?i)\b(?:issue|ticket|pull request|session) ?#?\d", "a number only its author can look up"),
    (r"\b(?:TOD[O]|FIXM[E]|XX[X])\b", "an open end"),
)


def project_files() -> Iterator[Path]:
    for folder, names, files in os.walk(ROOT):
        hidden = {name for name in names if name.startswith(".") and name != ".ci"}
        names[:] = sorted(set(names) - hidden - SKIPPED - {n for n in names if "egg-info" in n})
        yield from (Path(folder) / name for name in sorted(files) if name != ".git")


def test_no_file_speaks_of_one_machine_or_place() -> None:
    wrong = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for pattern, what in FORBIDDEN:
            for found in re.finditer(pattern, text):
                line = text.count("\n", 0, found.start()) + 1
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {found[0]!r} is {what}")
    assert not wrong, "\n".join(wrong)


def test_no_module_is_named_after_nothing() -> None:
    vague = {"utils.py", "helpers.py", "common.py", "core.py", "base.py"}
    assert not [path for path in MODULES if path.name in vague]


BORDERS = {"torch", "jax"}
"""Packages that speak with another system in its own words."""
INSIDE = [
    p
    for p in MODULES
    if p.name != "specs_and_placements.py" and not BORDERS & set(p.relative_to(ROOT).parts)
]


def one_word_for_one_thing(path: Path) -> None:
    """A layout is a *type*; other systems' words stay at the border to them."""
    other = re.compile(r"(?i)(?:^|_)(?:shardings?|specs?|placements?|distributions?)(?:$|_)")
    for node in nodes_of(path):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = [node.name]
        elif isinstance(node, ast.arg):
            names = [node.arg]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names = [node.id]
        else:
            continue
        assert not [name for name in names if other.search(name)], f"{path}:{node.lineno} {names}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_imports_downwards_and_keeps_to_the_words(path: Path) -> None:
    imports_must_point_down(path)
    nothing_beside_the_package_is_named(path)
    if path in INSIDE:
        one_word_for_one_thing(path)


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_a_framework_that_is_missing_is_named_with_its_command(name: str) -> None:
    program = f"import sys; sys.modules[{name!r}] = None; import redist.{name}"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"ImportError: cannot import redist.{name}: "), done.stderr
    assert f"is not installed; pip install '{name}>=" in said
