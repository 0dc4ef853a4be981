"""What is published agrees with itself: version, changelog, citation, addresses, extras."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import redist

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
CITATION = dict(
    re.findall(r"^([a-z-]+): (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.M)
)
SECTIONS = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", CHANGELOG, re.M)


def test_changelog_has_the_version_and_what_comes_after_it():
    names = [name for name, _ in SECTIONS]
    assert names[:2] == ["Unreleased", redist.__version__]
    assert SECTIONS[0][1] == ""
    assert all(date for _, date in SECTIONS[1:]), "a version has a date"
    assert [date for _, date in SECTIONS[1:]] == sorted((d for _, d in SECTIONS[1:]), reverse=True)


def test_citation_is_of_this_version():
    assert CITATION["version"] == redist.__version__
    assert CITATION["date-released"] == dict(SECTIONS)[redist.__version__]
    assert CITATION["license"] == PROJECT["license"]


def test_addresses_are_of_one_repository():
    source = PROJECT["urls"]["Source"]
    assert CITATION["repository-code"] == source
    assert all(address.startswith(source) for address in PROJECT["urls"].values())


def test_pages_point_at_files_of_the_repository():
    source = PROJECT["urls"]["Source"]
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    links = re.findall(r"https://github\.com/redist[^)\s#]*", text)
    assert links
    assert [link for link in links if not link.startswith(source)] == []
    named = [link.removeprefix(source).split("/main/")[1] for link in links if "/main/" in link]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_classifiers_name_every_python_from_the_oldest_on():
    named = re.findall(r"Python :: 3\.(\d+)", "\n".join(PROJECT["classifiers"]))
    oldest = int(PROJECT["requires-python"].removeprefix(">=3."))
    assert list(map(int, named)) == list(range(oldest, oldest + len(named)))
    assert sys.version_info[1] < oldest or str(sys.version_info[1]) in named


def test_extras_that_are_named_exist():
    known = set(PROJECT["optional-dependencies"])
    texts = [ROOT / "README.md", *(ROOT / "redist").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]
    named = {
        (path.name, extra)
        for path in texts
        for extras in re.findall(
            r"(?:redist|(?<!\.)\.)\[([a-z, ]+)\]", path.read_text(encoding="utf-8")
        )
        for extra in re.split(", ?", extras)
    }
    assert len(named) >= 4
    assert {pair for pair in named if pair[1] not in known} == set()
