"""The project as a whole: layers, imports, words, and a README whose every example runs."""

from __future__ import annotations

import ast
import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

from bench.problems.problems import problems
from redist.launch.launcher import environment, find_launcher
from redist.plan.request import Request
from redist.synth.find import find_plan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODULES = sorted((ROOT / "redist").rglob("*.py"))

LAYERS = (
    "errors",
    "units",
    "layout",
    "plan",
    "synth check",
    "planner",
    "runtime",
    "pgas",
    "redist",
    "measure",
    "cli",
    "__main__",
)
"""Lowest first; units of one layer do not import each other. ``redist`` is the package's facade."""

RANK = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer.split()}
HOME_OF = {"z3": ("check",), "mpi4py": ("runtime", "measure"), "cupy": ("runtime",)}


def unit_of(module: str) -> str:
    """The unit a dotted module name belongs to.

    >>> unit_of("redist.plan.rules"), unit_of("redist.text.units"), unit_of("redist")
    ('plan', 'units', 'redist')
    """
    return module.split(".")[1] if "." in module else "redist"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything a file imports, also inside functions."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_down(path: Path) -> None:
    unit = unit_of(module_name(path))
    assert unit in RANK, f"{path.name} is in no layer: give {unit!r} a place in LAYERS"
    for line, name in imports_of(path):
        where = f"{path.relative_to(ROOT)}:{line} imports {name}"
        top = name.split(".")[0]
        assert unit in HOME_OF.get(top, (unit,)), f"{where}: only {HOME_OF[top]} may"
        if top == "redist" and unit_of(name) != unit:
            assert RANK[unit_of(name)] < RANK[unit], f"{where}: imports point down only"


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


def test_script_and_version_are_where_pyproject_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, name = project["project"]["scripts"]["redist"].partition(":")
    assert callable(getattr(import_module(module), name))
    module, _, name = project["tool"]["setuptools"]["dynamic"]["version"]["attr"].rpartition(".")
    assert re.fullmatch(r"\d+\.\d+\.\d+", getattr(import_module(module), name))


# The README: what it shows is what happens.


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def shown_commands() -> list[tuple[str, str]]:
    """Every `$ redist` and `$ python` command of the README with the output shown below it."""
    found = []
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if command.startswith(("redist ", "python ")):
                found.append((command, output))
    return found


def without_times(text: str) -> str:
    """Text with measured times and trailing blanks made equal.

    >>> without_times("proved (z3, 9 ms)  ")
    'proved (z3, TIME)'
    """
    timeless = re.sub(r"(\([^()\n]*, )[\d.]+ (?:ns|us|ms|s)\)", r"\1TIME)", text)
    return "\n".join(line.rstrip() for line in timeless.splitlines()).strip()


@pytest.fixture
def shell_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder with the README's files, in which `redist` and `python` are those under test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in (("redist", "-m redist.cli"), ("python", "")):
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    folder = tmp_path / "here"
    (folder / "docs").mkdir(parents=True)
    for block in blocks("toml"):
        title = re.match(r"# (\S+\.toml)", block)
        if title is not None:
            (folder / title[1]).write_text(block, encoding="utf-8")
    monkeypatch.chdir(folder)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}


@pytest.mark.parametrize(("command", "output"), shown_commands(), ids=lambda text: text[:60])
def test_readme_commands_do_what_they_show(
    command: str, output: str, shell_env: dict[str, str]
) -> None:
    done = subprocess.run(
        ["sh", "-c", command],
        env=shell_env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    want, got = without_times(output), without_times(done.stdout)
    same = doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)
    assert not want or same, f"shown:\n{want}\n\nprinted:\n{got}"


def test_readme_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(blocks("python"))
    test = doctest.DocTestParser().get_doctest(text, {}, "README.md", "README.md", 0)
    assert test.examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert runner.run(test).failed == 0


def test_readme_program_runs_on_ranks(tmp_path: Path) -> None:
    (text,) = (block for block in blocks("python") if "mpirun -n 4" in block)
    program = tmp_path / "rows_to_columns.py"
    program.write_text(text, encoding="utf-8")
    command = find_launcher().command(3, [str(program)])
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("11 calls on 3 ranks\nstep ")


def test_readme_program_for_gpus_runs_on_ranks(tmp_path: Path) -> None:
    (text,) = (block for block in blocks("python") if block.startswith("# on_gpu.py"))
    program = tmp_path / "on_gpu.py"
    program.write_text(text, encoding="utf-8")
    command = find_launcher().command(2, [str(program)])
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("right on ")


def test_readme_shows_commands_and_links_that_exist() -> None:
    assert shown_commands()
    assert re.search(r"^make demo\b.*\nmake test\b", README, re.MULTILINE)
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), f"README links to {target}"


def test_readme_picture_is_the_one_drawn_today(shell_env: dict[str, str]) -> None:
    drawn = [command for command, _ in shown_commands() if "--svg docs/plan.svg" in command]
    assert len(drawn) == 1
    subprocess.run(["sh", "-c", drawn[0]], env=shell_env, check=True, capture_output=True)
    kept = (ROOT / "docs" / "plan.svg").read_text(encoding="utf-8")
    assert without_times(Path("docs/plan.svg").read_text(encoding="utf-8")) == without_times(kept)


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ("objective `bytes`", {"objective": "bytes"}),
        ("objective `time`", {"objective": "time"}),
        ("`bytes`, collectives only", {"objective": "bytes", "strategy": "collectives"}),
    ],
)
def test_readme_figures_of_redist_have_not_become_worse(row: str, options: dict[str, Any]) -> None:
    shown = next(line for line in README.splitlines() if f"**redist**, {row} |" in line)
    figures = [float(number) for number in re.findall(r"\d\.\d\d", shown)]
    assert len(figures) == 4
    for devices, mean in zip((8, 12, 16), figures, strict=False):
        ratios = []
        for problem in problems(120, seed=1, kinds=("even",), devices=(devices,)):
            plan = find_plan(Request(problem.source, problem.target, **options))
            if plan.lower_bound_bytes == 0:
                assert plan.received_bytes == 0
            else:
                ratios.append(plan.received_bytes / plan.lower_bound_bytes)
        assert round(geometric_mean(ratios), 2) <= mean
        assert round(max(ratios), 2) <= figures[3]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_alone_lists_the_targets() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("demo", "test", "format", "lint", "types", "bench", "clean"):
        assert re.search(rf"^make {target} +\S", done.stdout, re.MULTILINE), target


# Words.

SKIPPED = {"build", "dist", "results", "__pycache__"}
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
        yield from (Path(folder) / name for name in sorted(files))


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


INSIDE = [path for path in MODULES if path.name != "interop.py"]


@pytest.mark.parametrize("path", INSIDE, ids=module_name)
def test_one_word_for_one_thing(path: Path) -> None:
    """A layout is a *type*; other systems' words stay at the border to them."""
    other = re.compile(r"(?i)(?:^|_)(?:shardings?|specs?|placements?|distributions?)(?:$|_)")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = [node.name]
        elif isinstance(node, ast.arg):
            names = [node.arg]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names = [node.id]
        else:
            continue
        assert not [name for name in names if other.search(name)], f"{path}:{node.lineno} {names}"
