"""The program around the commands: help, version, signals, pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from redist.cli.main import COMMANDS
from redist.errors import CheckError
from tests.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}


def program(*argv: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-m", "redist.cli", *argv],
        env=ENV, text=True, timeout=60, stderr=subprocess.PIPE,
        **{"stdout": subprocess.PIPE, **options},
    )  # fmt: skip


def test_version(redist: Run) -> None:
    import redist as package

    done = redist("--version")
    assert (done.status, done.out) == (0, f"redist {package.__version__}\n")


@pytest.mark.parametrize(
    "argv", [("--help",), ("plan", "--help"), ("simulate", "-h"), ("check", "-h"), ("prove", "-h")]
)
def test_help_has_an_example(redist: Run, argv: tuple[str, ...]) -> None:
    done = redist(*argv)
    assert (done.status, done.err) == (0, "")
    assert "example" in done.out
    assert "  redist " in done.out


def test_no_command_is_short_help(redist: Run) -> None:
    done = redist()
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("usage: redist")


@pytest.mark.parametrize("argv", [("frob",), ("--frob",), ("Plan",), ("--", "plan2")])
def test_unknown_commands_are_one_line(redist: Run, argv: tuple[str, ...]) -> None:
    done = redist(*argv)
    assert done.status == 2
    if argv != ("--frob",):
        assert "plan" in done.one_line()


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 2, "too large"),
        (OverflowError("int too large"), 2, "too large"),
        (ZeroDivisionError("oops"), 70, "a bug in redist"),
        (CheckError(0, "it is wrong"), 70, "step 1 is rejected: it is wrong"),
        (ModuleNotFoundError("no", name="z3"), 2, "pip install z3"),
    ],
)
def test_nothing_becomes_a_traceback(
    redist: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, said: str
) -> None:
    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr("redist.cli.commands.plan.run", fail)
    done = redist("plan", "f32[8]", "f32[8]", "--mesh", "x=2")
    assert done.status == status
    assert said in done.one_line()


@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), CheckError(0, "it is wrong")])
def test_a_bug_shows_its_traceback_when_asked(
    redist: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr("redist.cli.commands.plan.run", fail)
    request = ("plan", "f32[8]", "f32[8]", "--mesh", "x=2")
    monkeypatch.delenv("REDIST_DEBUG", raising=False)
    assert redist(*request).one_line().endswith("; run again with REDIST_DEBUG=1 for the traceback")
    monkeypatch.setenv("REDIST_DEBUG", "1")
    done = redist(*request)
    assert done.status == 70
    *trace, last = done.err.splitlines()
    assert trace[0] == "Traceback (most recent call last):"
    assert last.startswith("redist: a bug in redist") and "REDIST_DEBUG" not in last


def test_every_command_is_one_file_with_parser_and_action() -> None:
    folder = ROOT / "redist" / "cli" / "commands"
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == set(COMMANDS)
    for name, command in COMMANDS.items():
        assert getattr(command, "__name__", "") == f"redist.cli.commands.{name}"
        assert callable(command.add_parser) and callable(command.run)


def test_program_runs_and_fails_with_its_status() -> None:
    done = program("plan", "f32[8{x}]", "f32[8]", "--mesh", "x=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "all_gather" in done.stdout
    done = program("plan", "f32[8{x}]", "f32[8]", "--mesh", "x=2", "--limit", "1")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1


def test_closed_pipe_is_silent() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = program("plan", "f32[8{x}]", "f32[8]", "--mesh", "x=2", stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_full_disk_is_one_line() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = program("plan", "f32[8{x}]", "f32[8]", "--mesh", "x=2", stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith("redist: cannot write the output")
    assert done.stderr.count("\n") == 1
