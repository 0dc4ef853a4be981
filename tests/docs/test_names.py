"""Documents name packages, classes, files and words that exist."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from pathlib import Path

import pytest

from redist.cli.main import make_parser
from redist.measure.cases import KINDS
from tests.docs.documents import ROOT

PACKAGE = ROOT / "redist"
FROM_LAUNCHERS = {"RANK", "CC", "PATH"}
"""What launchers and build tools set, not users of redist."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def first_cells(text: str) -> list[str]:
    """What stands in code in the first cells of tables."""
    return re.findall(r"^\| `([^`|]+)` \|", text, re.MULTILINE)


def dotted(folder: Path) -> str:
    return ".".join(folder.relative_to(PACKAGE).parts)


def test_architecture_lists_every_package_and_no_other() -> None:
    packages = {dotted(path.parent) for path in PACKAGE.rglob("__init__.py")} - {""}
    text = text_of("docs/internals/architecture.md")
    listed = text[text.index("## Packages") : text.index("## The walk of the data")]
    assert set(first_cells(listed)) == packages


def test_files_that_are_named_exist() -> None:
    for name in ("CONTRIBUTING.md", "docs/internals/architecture.md"):
        for path in re.findall(r"`((?:redist|proofs|plan|synth|runtime)/[\w./]+)`", text_of(name)):
            assert (ROOT / path).exists() or (PACKAGE / path).exists(), f"{name} names {path}"
    kernels = "redist/runtime/cuda/kernels"
    text = text_of("docs/internals/gpu-copies.md")
    named = re.findall(r"`(\w+\.(?:py|cu))`", text[text.index("## Files") :])
    assert {path.name for path in (ROOT / kernels).iterdir() if path.suffix in (".py", ".cu")} == {
        *named,
        "__init__.py",
    }


def test_glossary_has_each_word_once_and_classes_that_exist() -> None:
    text = text_of("docs/glossary.md")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    words = [word.strip() for cell, _ in rows for word in cell.split(",") if cell != "word"]
    assert len(words) == len(set(words))
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    classes = set(re.findall(r"^class (\w+)", source, re.MULTILINE))
    named = set(re.findall(r"`([A-Z]\w+)`", text))
    assert named
    assert named <= classes, named - classes


def test_every_benchmark_table_is_a_marked_place() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs" / "benchmarks").glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        assert text.count("<!-- table: ") == text.count("<!-- end -->"), path.name
        if path.name not in ("README.md", "index.md"):
            outside = re.sub(r"<!-- table: .*?<!-- end -->", "", text, flags=re.DOTALL)
            assert not re.search(r"^\|", outside, re.MULTILINE), f"{path.name}: a typed table"


@pytest.mark.parametrize(
    "module", ["redist", "redist.pgas", "redist.pgas.linalg", "redist.pgas.fft"]
)
def test_reference_has_every_public_name(module: str) -> None:
    text = text_of("docs/reference/api.md") + text_of("docs/reference/pgas.md")
    text += text_of("docs/reference/errors.md")
    shown = set(re.findall(r"`(\w+)(?:\(\))?`", text)) | {"fft", "linalg", "random", "__version__"}
    shown |= {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)", text, re.MULTILINE)}
    shown |= set(re.findall(r"`redist\.(\w+)`", text))
    assert not set(import_module(module).__all__) - shown


def test_every_option_of_the_command_line_is_on_its_page() -> None:
    text = text_of("docs/reference/cli.md")
    (commands,) = (
        action.choices
        for action in make_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    options = {
        f"{name} {option}"
        for name, parser in commands.items()
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and option != "--help" and option not in text
    }
    assert len(commands) == 13 and not options
    assert all(f"`redist {name}`" in text for name in commands)
    assert f"lists {len(KINDS)} cases" in text


def test_every_environment_variable_is_on_its_page() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    used = set(re.findall(r"[\"'`](REDIST_[A-Z_]+)\b", source))
    used |= set(re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", source)) - FROM_LAUNCHERS
    shown = set(re.findall(r"`(\w+)(?:=\w+)?`", text_of("docs/reference/environment.md")))
    assert {"REDIST_PURE", "REDIST_EAGER"} <= used
    assert used <= shown, used - shown


def test_no_two_entries_of_the_site_have_one_name() -> None:
    nav = text_of("mkdocs.yml").partition("\nnav:\n")[2]
    names = re.findall(r'^ +- "?([^"\n]+?)"?:(?: \S+)?$', nav, re.MULTILINE)  # pages and sections
    assert len(names) > 50
    assert len(names) == len(set(names)), {name for name in names if names.count(name) > 1}
