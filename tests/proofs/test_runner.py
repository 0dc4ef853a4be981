"""Every theorem is proved, every wrong variant refuted, and the runner says so by its exit status."""

from __future__ import annotations

import doctest
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import z3

from proofs import __main__ as program
from proofs.engine.run import Finding, Outcome, check_assumptions, settle, theorems
from proofs.engine.table import BEGIN, END, readme_row, terminal_table, with_table
from proofs.engine.theorem import (
    PROVED,
    REFUTED,
    UNKNOWN,
    Obligation,
    Settled,
    Shown,
    Theorem,
    Twin,
)
from redist.text.progress import Progress

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "proofs" / "README.md").read_text(encoding="utf-8")
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "proofs").rglob("*.py")
    if path.stem[0] != "_"
)
KNOWN = theorems()
LONG = "tiles factors rewrites allocations rules senders pairing rounds memory exchange normal_form".split()
WIDE = ("rewrites", "allocations")
"""Those with functions of so many branches that writing their obligations down takes seconds."""
LIMIT_S = 300.0
"""For all theorems together; the table says how long they really take."""


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment in which ``redist`` is the one under test."""
    script = tmp_path / "redist"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m redist.cli "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def marked(name: str) -> Any:
    why = "seconds each; make prove settles all theorems"
    return pytest.param(name, marks=pytest.mark.slow(why, full=True) if name in LONG else ())


@pytest.mark.parametrize("name", [*map(marked, KNOWN)])
def test_theorem_is_proved_and_its_twins_are_refuted(name: str, shell: dict[str, str]) -> None:
    """Proved, not vacuous, refuted where wrong, in the table; commands can be typed."""
    (outcome,) = settle([KNOWN[name]])
    trouble = [(f.kind, f.name, f.verdict, f.text) for f in outcome.findings if f.verdict != PROVED]
    assert not trouble
    assert outcome.verdict == PROVED
    assert outcome.seconds < LIMIT_S
    kinds = [finding.kind for finding in outcome.findings]
    assert kinds.count("assumptions") == kinds.count("obligation") >= 1
    assert readme_row(outcome) in README.splitlines(), "python -m proofs --write"
    names = [f.name for f in outcome.findings if f.kind == "obligation"]
    assert len(set(names)) == len(names)
    for finding in outcome.findings:
        if finding.kind == "twin":
            _type(finding.command, shell)


def _type(command: str, shell: dict[str, str]) -> None:
    """Run what a reader is told to type: it judges a plan, right or wrong, and does not stumble."""
    if command.startswith(
        "python -m proofs "
    ):  # about programs, which no plan shows: it is run here
        return
    assert "redist simulate" in command
    done = subprocess.run(
        ["sh", "-c", command], env=shell, capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, 1), f"{command}: {done.stderr}"
    assert "result " in done.stdout and "redist: " not in done.stderr, f"{command}: {done.stderr}"


def test_table_lists_every_theorem_once() -> None:
    table = README.partition(BEGIN)[2].partition(END)[0]
    rows = [line for line in table.splitlines() if line.startswith("| [")]
    assert [row[3 : row.index("]")] for row in rows] == list(KNOWN)
    for name in KNOWN:
        assert f"proofs.theorems.{name}" in MODULES


@pytest.mark.parametrize("name", [*(marked(n) if n in WIDE else n for n in KNOWN)])
def test_table_has_the_claim_and_the_counts_of_a_theorem(name: str) -> None:
    """As if it were proved: whether it is, the first test says."""
    kinds = [("obligation", each.name) for each in KNOWN[name].obligations()]
    kinds += [("twin", twin.name) for twin in KNOWN[name].twins]
    found = tuple(Finding(kind, each, PROVED, "", 0.0) for kind, each in kinds)
    assert readme_row(Outcome(KNOWN[name], found)) in README.splitlines(), (
        "python -m proofs --write"
    )


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_proofs_run(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0


# The runner, on made-up theorems.

n, m, k = z3.Ints("n m k")


class Hard(Obligation):
    """One that Z3 gives up at once."""

    def settle(self, timeout_s: float = 0.02) -> Settled:
        return Obligation.settle(self, 0.02)


TRUE = Obligation("n + 1 > n", (n >= 0, n + 1 <= n), (n,))
FALSE = Obligation("n < 7", (n >= 0, n >= 7), (n,))
CUBES = Hard("no cube is the sum of two", (n > 0, m > 0, k > 0, n**3 + m**3 == k**3), (n, m, k))
VACUOUS = Obligation("n is 1 and 2", (n == 1, n == 2, n != 3), (n,))


def made_up(*claims: Obligation, wrong: Obligation = FALSE, shown: bool = True) -> Theorem:
    def obligations() -> Iterator[Obligation]:
        yield from claims

    twin = Twin(
        "a twin", lambda: wrong, lambda values: Shown("redist simulate", shown, str(values))
    )
    return Theorem("made_up", "a claim", "nothing", "much", obligations, (twin,))


@pytest.mark.parametrize(
    ("theorem", "status", "says"),
    [
        (made_up(TRUE), 0, "1 of 1 theorems proved: 1 of 1 obligations, 1 of 1 wrong variants"),
        (made_up(TRUE, FALSE), 1, "obligation 'n < 7' refuted: n = 7"),
        (made_up(TRUE, CUBES), 2, "'no cube is the sum of two' unknown"),
        (made_up(CUBES, FALSE), 1, "0 of 1 theorems proved"),
        (made_up(VACUOUS), 1, "assumptions 'n is 1 and 2' refuted: the assumptions are impossible"),
        (made_up(TRUE, wrong=TRUE), 1, "a wrong variant was not refuted"),
        (made_up(TRUE, wrong=CUBES), 2, "twin 'a twin' unknown"),
        (made_up(TRUE, shown=False), 1, "the simulator does not confirm: {'n': 7}"),
        (made_up(), 1, "made_up: has no obligation"),
    ],
)
def test_exit_status_and_reason(
    theorem: Theorem, status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([], {"made_up": theorem}) == status
    out, err = capsys.readouterr()
    assert says in out
    assert err == ""


def test_one_bad_theorem_among_good_ones_counts(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"good": made_up(TRUE), "bad": made_up(FALSE), "hard": made_up(CUBES)}
    assert program.main([], known) == 1
    assert program.main(["good", "hard"], known) == 2
    assert program.main(["good", "good"], known) == 0
    assert "1 of 1 theorems" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tails"], "proofs: there is no theorem 'tails'; known: made_up\n"),
        (["--fast"], "proofs: unrecognized arguments: --fast; "),
        (["made_up", "--write"], "proofs: --write needs all theorems; give no names with it\n"),
    ],
)
def test_wrong_command_lines_are_no_verdict(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = program.main(arguments, {"made_up": made_up(TRUE)})
    except SystemExit as stop:
        status = int(str(stop.code))
    out, err = capsys.readouterr()
    assert status == program.USAGE and status not in (0, 1, 2)
    assert out == "" and err.startswith(says) and err.count("\n") == 1


def test_no_theorems_are_no_success() -> None:
    assert program.main([], {}) == program.USAGE


def test_write_renews_the_table_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"# Proofs\n\n{BEGIN}\nold\n{END}\n\nmore\n", encoding="utf-8")
    monkeypatch.setattr(program, "README", readme)
    assert program.main(["--write"], {"made_up": made_up(TRUE)}) == 0
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"# Proofs\n\n{BEGIN}\n| theorem |") and text.endswith(
        f"{END}\n\nmore\n"
    )
    assert "| [made_up](theorems/made_up.py) | a claim | proved | 1 | a twin | much |" in text
    with pytest.raises(AssertionError, match="markers"):
        with_table("# Proofs\n", "table")


def test_a_witness_helps_to_find_an_example_and_cannot_hide_a_contradiction() -> None:
    helped = Obligation("n n > 8", (n * n > 8, n != n), (n,), (n == 3,))
    assert check_assumptions(helped).verdict == PROVED
    assert (
        check_assumptions(Obligation("n", (n == 1, n == 2, n == 3), (n,), (m == 3,))).verdict
        == REFUTED
    )
    assert UNKNOWN not in (PROVED, REFUTED)


def test_progress_is_a_bar_on_a_terminal_and_silent_elsewhere() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    seen = []
    (outcome,) = settle([made_up(TRUE)], lambda *told: seen.append(told))
    assert [(done, total) for done, total, _ in seen] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert seen[2][2] == "made_up: wrong: a twin"
    bar, plain = Terminal(), io.StringIO()
    for told in seen:
        Progress("proofs", bar)(*told)
        Progress("proofs", plain)(*told)
    assert "0/3 made_up: n + 1 > n" in bar.getvalue() and bar.getvalue().endswith("\r\x1b[K")
    assert plain.getvalue() == ""
    assert isinstance(outcome, Outcome)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_table_fits_the_terminal(width: int) -> None:
    outcomes = list(settle([made_up(TRUE), made_up(FALSE)]))
    lines = terminal_table(outcomes, width).splitlines()
    assert lines[0].split() == "theorem claim verdict seconds not covered".split()
    assert "proved" in lines[1] and "refuted" in lines[2]
    assert max(map(len, lines[:3])) <= max(width, 72)


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proofs", "senders"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "1 of 1 theorems proved" in done.stdout
