"""Outcomes as text: a table for the terminal, and one for proofs/README.md."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from proofs.engine.run import Outcome
from proofs.engine.theorem import PROVED
from redist.text.columns import table_line

BEGIN = "<!-- the table below is written by: python -m proofs --write -->"
END = "<!-- end of the table -->"


def terminal_table(outcomes: Sequence[Outcome], width: int = 120) -> str:
    """Claim, verdict, seconds, and what is not covered; then the wrong variants, then trouble."""
    names = max([len("theorem"), *(len(o.theorem.name) for o in outcomes)])
    room = max(36, width - names - 8 - 8 - 4 * 3)
    claim_room, rest_room = room - room * 2 // 5, room * 2 // 5
    widths = (names, claim_room, 8, 7, rest_room)
    lines = [_row(("theorem", "claim", "verdict", "seconds", "not covered"), widths)]
    for o in outcomes:
        cells = (o.theorem.name, o.theorem.claim, o.verdict)
        lines.append(_row((*cells, f"{o.seconds:.1f}", o.theorem.not_covered), widths))
    lines += ["", "wrong variants, refuted; the command shows the counterexample:"]
    for o in outcomes:
        for finding in o.findings:
            if finding.kind == "twin" and finding.verdict == PROVED:
                lines += [f"  {o.theorem.name}: {finding.name}", f"      {finding.command}"]
                lines += [
                    f"      {line}" for line in textwrap.wrap(finding.text, max(24, width - 6))
                ]
    trouble = [
        f"{o.theorem.name}: {f.kind} {f.name!r} {f.verdict}: {f.text}"
        for o in outcomes
        for f in o.findings
        if f.verdict != PROVED
    ]
    empty = [
        f"{o.theorem.name}: has no {kind}"
        for o in outcomes
        for kind in ("obligation", "twin")
        if all(f.kind != kind for f in o.findings)
    ]
    return "\n".join([*lines, *(["", *trouble, *empty] if trouble or empty else [])])


def summary(outcomes: Sequence[Outcome]) -> str:
    """One line: how many theorems, obligations and wrong variants, and the time."""
    found = [f for o in outcomes for f in o.findings]
    proved = sum(o.verdict == PROVED for o in outcomes)
    obligations = [f for f in found if f.kind == "obligation"]
    twins = [f for f in found if f.kind == "twin"]
    return (
        f"{proved} of {len(outcomes)} theorems proved: "
        f"{sum(f.verdict == PROVED for f in obligations)} of {len(obligations)} obligations, "
        f"{sum(f.verdict == PROVED for f in twins)} of {len(twins)} wrong variants refuted, "
        f"{sum(o.seconds for o in outcomes):.0f} s"
    )


def readme_table(outcomes: Sequence[Outcome]) -> str:
    """The table in Markdown, without what changes from run to run."""
    lines = [
        "| theorem | claim, for all sizes | verdict | obligations | wrong variants refuted | not covered |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(readme_row, outcomes)])


def readme_row(o: Outcome) -> str:
    """The row of one theorem."""
    obligations = sum(f.kind == "obligation" for f in o.findings)
    refuted = [f.name for f in o.findings if f.kind == "twin" and f.verdict == PROVED]
    cells = (
        f"[{o.theorem.name}](theorems/{o.theorem.name}.py)",
        o.theorem.claim,
        o.verdict,
        str(obligations),
        "; ".join(refuted),
        o.theorem.not_covered,
    )
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def with_table(readme: str, table: str) -> str:
    """The README with a new table between its markers.

    >>> with_table(f"a\\n{BEGIN}\\nold\\n{END}\\nb", "new") == f"a\\n{BEGIN}\\nnew\\n{END}\\nb"
    True
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, "the README has lost the markers of its table"
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One row, its cells wrapped; names and verdicts on the first line."""
    columns = [
        textwrap.wrap(" ".join(cell.split()), width) or [""]
        for cell, width in zip(cells, widths, strict=True)
    ]
    height = max(map(len, columns))
    lines = []
    for i in range(height):
        parts = [c[i] if i < len(c) else "" for c in columns]
        lines.append(table_line(parts, widths, left=range(len(widths))))
    return "\n".join(lines)
