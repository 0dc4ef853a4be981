"""README.md and docs/: what they show is what happens. One item a command, a program, a page."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest

from redist.cli.main import main as redist_command
from redist.launch.launcher import environment, find_launcher
from tests.docs.documents import DOCUMENTS, LANGUAGES, ROOT, Command, Document, Program
from tests.programs.checks import Job, Run, items, must_hold
from tests.programs.launch import alone, one_worker
from tests.tiers import THOROUGH

IMAGES = ROOT / "docs" / "images"
PAGES = {page.name: page for page in DOCUMENTS}
COMMANDS = [command for page in DOCUMENTS for command in page.commands]
PROGRAMS = [
    program
    for page in DOCUMENTS
    for program in page.programs
    if not any(program.name in command.line for command in page.commands)
]
"""Programs that no command of their page runs."""

MPIRUN = """#!/bin/sh
test "$1" = -n && test "$3" = python || exit 99
n_ranks=$2
shift 3
exec {command} "$@"
"""


def title(shown: object) -> str:
    match shown:
        case Command(page, line):
            return f"{page}: {line[:60]}"
        case Program(page, name):
            return f"{page}: {name}"
        case Document():
            return shown.name
    return str(shown)


def is_first_half(shown: Command | Program, number: int) -> bool:
    """Whether ``make test`` starts it: of the jobs on how-to and tutorial pages, every second."""
    return not re.search("how-to|tutorial", shown.page) or number % 2 == 0


def marks(shown: Command | Program, needs_ranks: bool, number: int) -> list[pytest.MarkDecorator]:
    """Jobs run one after the other."""
    if not needs_ranks:
        return []
    half = pytest.mark.slow("the other half of the jobs that how-to and tutorial pages show")
    own = pytest.mark.slow("programs of pages in jobs of their own; they ran in one with others")
    if not is_first_half(shown, number):
        return [one_worker, half]
    return [one_worker] if isinstance(shown, Command) else [one_worker, own]


def missing_library(program: Program) -> tuple[str, str] | None:
    """What a program needs and is not here, and the target of make that has it."""
    for name, target in (("jax", "frameworks"), ("torch", "frameworks"), ("sklearn", "learn")):
        uses = rf"^(import|from) ({name}|redist\.{target})\b"
        if re.search(uses, program.text, re.MULTILINE) and find_spec(name) is None:
            return name, target
    for name in ("ray", "dask", "distributed"):
        if (
            re.search(rf"^(import|from) {name}\b", program.text, re.MULTILINE)
            and find_spec(name) is None
        ):
            return name, "launchers"
    if ".zarr" in program.text and find_spec("zarr") is None:
        return "zarr", "store"
    return None


def shared_jobs() -> Iterator[Job]:
    """Programs of pages, by their ranks; a Python for every rank of each would take longer than they do."""
    runs: dict[int, list[Run]] = {}
    for number, one in enumerate(PROGRAMS):
        if one.n_ranks > 1 and is_first_half(one, number) and missing_library(one) is None:
            name = f"{one.page}:{one.name}"
            runs.setdefault(one.n_ranks, []).append(Run("scripts", (name, "")))
    for ranks, several in runs.items():
        yield Job(ranks, tuple(several))


def without_times(text: str) -> str:
    """Text with measured times and trailing blanks made equal.

    >>> without_times("proved (z3, 9 ms)  ")
    'proved (z3, TIME)'
    """
    timeless = re.sub(r"(\([^()\n]*, )[\d.]+ (?:ns|us|ms|s)\)", r"\1TIME)", text)
    return "\n".join(line.rstrip() for line in timeless.splitlines()).strip()


def drawn_by(shown: Command) -> list[str]:
    """The pictures that a command draws; pages show them from docs/images.

    >>> drawn_by(Command("README.md", "redist plan A B --svg plan.svg", ""))
    ['plan.svg']
    """
    return re.findall(r"--svg (\S+)", shown.line)


@cache
def mpirun_line() -> str:
    """How a shell starts ``$n_ranks`` ranks of this Python; found once, not by every command."""
    counts = "1234567"
    words = find_launcher().command(int(counts), [])
    return " ".join('"$n_ranks"' if word == counts else shlex.quote(word) for word in words)


@pytest.fixture
def shell_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An empty folder, in which `redist`, `python` and `mpirun` are those under test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    scripts = {
        "redist": f'#!/bin/sh\nexec "{sys.executable}" -m redist.cli "$@"\n',
        "python": f'#!/bin/sh\nexec "{sys.executable}" "$@"\n',
        "mpirun": MPIRUN.format(command=mpirun_line()),
    }
    for name, text in scripts.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)
    env = environment()
    path = f"{programs}{os.pathsep}{env['PATH']}"
    return {**env, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}


HERE = ("plan", "prove", "simulate")
"""Commands of redist that ``make test`` runs without a shell and a new Python."""


def words_of(line: str) -> list[str]:
    """What ``redist`` is told by a line that needs no shell and no new process; empty if it does.

    >>> words_of('redist plan "f32[8{x=5;3}]" "f32[8]" --mesh x=2'), words_of("redist plan A B > plan")
    (['plan', 'f32[8{x=5;3}]', 'f32[8]', '--mesh', 'x=2'], [])
    """
    if "$" in line:
        return []
    program, *words = shlex.shlex(line, posix=True, punctuation_chars=True)
    is_plain = program == "redist" and words[0] in HERE and not {*"();<>|&"} & {w[0] for w in words}
    return shlex.split(line)[1:] if is_plain else []


def said_here(words: list[str]) -> tuple[int, str]:
    """The status of a command of redist that runs in this process, and what it prints."""
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            status = redist_command(words)
        except SystemExit as end:
            status = int(end.code or 0)
    return status, said.getvalue()


def said_by_shell(line: str, env: dict[str, str]) -> tuple[int, str]:
    """The same of a line that a shell runs."""
    with alone() if " -n " in line else nullcontext():
        done = subprocess.run(
            ["sh", "-c", line],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "shown",
    [pytest.param(one, marks=marks(one, " -n " in one.line, n)) for n, one in enumerate(COMMANDS)],
    ids=title,
)
def test_commands_do_what_they_show(
    shown: Command, shell_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if ".zarr" in shown.line and find_spec("zarr") is None:
        pytest.skip("needs zarr: make store has an environment with it")
    for name, text in PAGES[shown.page].files.items():
        Path(name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("COLUMNS", shell_env["COLUMNS"])
    words = [] if THOROUGH else words_of(shown.line)
    status, said = said_here(words) if words else said_by_shell(shown.line, shell_env)
    assert status == 0, said
    want, got = without_times(shown.output), without_times(said)
    same = doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)
    assert not want or same, f"shown:\n{want}\n\nprinted:\n{got}"
    for name in drawn_by(shown):
        drawn, kept = (path.read_text(encoding="utf-8") for path in (Path(name), IMAGES / name))
        assert without_times(drawn) == without_times(kept), name


def test_every_picture_is_drawn_by_a_command() -> None:
    drawn = {name for command in COMMANDS for name in drawn_by(command)}
    measured = {"trace.svg", "scale.svg"}  # of times: by redist.trace, by python -m bench scale
    learnt = {"clusters.svg"}  # by examples/cluster_shapes.py, which needs scikit-learn
    assert drawn == {path.name for path in IMAGES.iterdir()} - measured - learnt


@pytest.mark.parametrize(
    "program",
    [pytest.param(one, marks=marks(one, one.n_ranks > 1, n)) for n, one in enumerate(PROGRAMS)],
    ids=title,
)
def test_programs_run(program: Program, tmp_path: Path) -> None:
    missing = missing_library(program)
    if missing is not None:
        name, target = missing
        pytest.skip(f"needs {name}: make {target} has an environment with it")
    path = tmp_path / program.name
    path.write_text(program.text, encoding="utf-8")
    command = [sys.executable, str(path)]
    if "mpirun" in program.run:
        command = find_launcher().command(program.n_ranks, [str(path)])
    with alone() if program.n_ranks > 1 else nullcontext():
        done = subprocess.run(
            command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("job", "run", "check"), [*items(shared_jobs())])
def test_programs_run_one_after_another(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)


SESSIONS = [page for page in DOCUMENTS if any(">>> " in text for text in page.blocks("python"))]


@pytest.mark.parametrize("page", SESSIONS, ids=title)
def test_sessions_print_what_they_show(
    page: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in page.files.items():
        Path(name).write_text(text, encoding="utf-8")
    text = "\n".join(page.blocks("python"))
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, page.name, 0)
    assert test.examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert runner.run(test).failed == 0


@pytest.mark.parametrize("page", DOCUMENTS, ids=title)
def test_pages_show_only_what_is_run_and_link_to_what_exists(page: Document) -> None:
    assert set(page.languages) <= LANGUAGES, f"{page.name}: {set(page.languages) - LANGUAGES}"
    for block in page.blocks("python"):
        runs = ">>> " in block or re.match(r"# \w+\.py: ", block)
        assert runs, f"{page.name}: neither a session nor a program:\n{block}"
    for link in page.links:
        assert (page.path.parent / link).exists(), f"{page.name} links to {link}"
    for link in page.repository_links:
        assert (ROOT / link).exists(), f"{page.name} links to {link}"


def test_readme_is_short_and_names_the_first_commands() -> None:
    text = PAGES["README.md"].text
    assert text.count("\n") <= 170
    assert re.search(r"^make demo\b.*\nmake test\b", text, re.MULTILINE)
