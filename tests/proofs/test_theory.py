"""The note on the theory speaks of the theorems that there are, and of no others."""

from __future__ import annotations

import re
from pathlib import Path

from proofs.engine.run import theorems

THEORY = (Path(__file__).resolve().parents[2] / "proofs" / "THEORY.md").read_text(encoding="utf-8")


def test_every_theorem_is_stated_once() -> None:
    stated = re.findall(r"^\*\*Theorem \((\w+)\)\.\*\*", THEORY, re.MULTILINE)
    assert sorted(stated) == sorted(theorems())


def test_every_reference_is_cited_and_every_citation_has_one() -> None:
    body, _, references = THEORY.partition("## References")
    listed = re.findall(r"^(\d+)\. ", references, re.MULTILINE)
    assert sorted(set(re.findall(r"\[(\d)\]", body))) == listed
