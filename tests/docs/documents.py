"""What README.md and docs/**/*.md show: commands with their output, programs, sessions, files, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

REPOSITORY = "https://github.com/redist-dev/redist"

LANGUAGES = {"c", "console", "json", "make", "python", "sh", "text", "toml", "yaml"}
"""Blocks that may be shown. ``console`` and ``python`` are run, with files of ``c`` and ``toml`` beside them;
``sh`` is for what a test cannot run."""


@dataclass(frozen=True)
class Command:
    """A line after ``$`` in a console block, and the output shown below it."""

    page: str
    line: str
    output: str


@dataclass(frozen=True)
class Program:
    """A block of Python whose first line is ``# name.py: how to run it``."""

    page: str
    name: str
    run: str
    text: str

    @property
    def n_ranks(self) -> int:
        """How many ranks run it.

        >>> Program("README.md", "a.py", "mpirun -n 4 python a.py", "").n_ranks
        4
        """
        ranks = re.search(r"mpirun -n (\d+)", self.run)
        return int(ranks[1]) if ranks else 1


@dataclass(frozen=True)
class Document:
    """A Markdown file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def blocks(self, language: str) -> list[str]:
        """The contents of all code blocks in one language."""
        return re.findall(rf"^```{language}[^\n]*\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)

    @property
    def languages(self) -> list[str]:
        """The languages of its code blocks, in order."""
        fences = re.findall(r"^ *```(.*)$", self.text, re.MULTILINE)
        return [fence.split(" ")[0] for fence in fences[::2]]

    @property
    def commands(self) -> list[Command]:
        """Every command of its console blocks."""
        found = []
        for block in self.blocks("console"):
            for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
                line, _, output = part.partition("\n")
                found.append(Command(self.name, line, output))
        return found

    @property
    def programs(self) -> list[Program]:
        """Every program that it shows."""
        found = []
        for block in self.blocks("python"):
            title = re.match(r"# (\w+\.py): (.+)\n", block)
            if title is not None:
                found.append(Program(self.name, title[1], title[2], block))
        return found

    @property
    def files(self) -> dict[str, str]:
        """The files that its commands find: programs, and blocks that begin ``# a.toml`` or ``/* a.c``."""
        found = {program.name: program.text for program in self.programs}
        for block in [*self.blocks("toml"), *self.blocks("c")]:
            title = re.match(r"(?:#|/\*) (\w+\.(?:toml|c))\b", block)
            if title is not None:
                found[title[1]] = block
        return found

    @property
    def links(self) -> list[str]:
        """What it links to inside the project, without anchors."""
        prose = re.sub(r"^```.*?^```$", "", self.text, flags=re.MULTILINE | re.DOTALL)
        prose = re.sub(r"`[^`\n]*`", "", prose)
        return [link for link in re.findall(r"\]\(([^)#: ]+)(?:#[^)]*)?\)", prose) if link]

    @property
    def repository_links(self) -> list[str]:
        """The paths of this repository to which it links on the web."""
        return re.findall(rf"\]\({REPOSITORY}/(?:blob|tree)/main/([^)#]+)", self.text)


DOCUMENTS = [Document(ROOT / "README.md")]
DOCUMENTS += [Document(path) for path in sorted((ROOT / "docs").rglob("*.md"))]
