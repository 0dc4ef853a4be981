"""Results as text: a table for each size, and below it who wins and who loses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from redist.measure.results.results import OURS, Entry, Outcome, Results
from redist.measure.timing import Times
from redist.text.columns import table_line, widths
from redist.text.units import count_of, format_bytes

COLUMNS = ("contender", "ms", "quartiles", "of floor", "x redist", "peak", "planned")
INDENT = "    "


def as_text(results: Results) -> str:
    """Everything that a terminal shows."""
    return "\n\n".join([_heading(results), *(_part(results, size) for size in results.sizes)])


def _heading(results: Results) -> str:
    m = results.machine
    where = f"{m['cores']} {'core' if m['cores'] == 1 else 'cores'}"
    return "\n".join(
        (
            f"machine    {results.n_ranks} ranks on {where}, {m['processor']}, {m['system']}",
            f"software   {results.mpi}, Python {m['python']}, NumPy {m['numpy']}",
            f"times      median of {results.repeats} and quartiles, contenders in turn; "
            "results checked before and after",
            "floor      the fastest contiguous copy, by every rank, of its tile of the target, all together",
            "x redist   time as a multiple of redist's; below 1 is quicker than redist",
            "peak       memory of the rank that needs most, with source and target",
        )
    )


def _part(results: Results, size_bytes: int) -> str:
    outcomes = [o for o in results.outcomes if o.size_bytes == size_bytes]
    blocks = [(outcome, list(_rows(outcome))) for outcome in outcomes]
    full = [COLUMNS, *(row for _, rows in blocks for row in rows if len(row) == len(COLUMNS))]
    sizes = widths(full)
    sizes[0] = max([sizes[0], *(len(row[0]) for _, rows in blocks for row in rows)])
    lines = [f"{format_bytes(size_bytes)} in all", table_line(COLUMNS, sizes, indent=INDENT)]
    for outcome, rows in blocks:
        lines.append(f"  {outcome.name}: {outcome.note or outcome.text}")
        for row in rows:
            left = (0, 1) if len(row) == 2 else (0,)
            lines.append(table_line(row, sizes, left, INDENT))
    return "\n".join([*lines, *_summary(outcomes)])


def _rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """Cells for each contender; a remark instead of figures where there are none."""
    if outcome.floor is not None:
        yield "fastest copy", *_time_cells(outcome.floor), *[""] * 4
    for entry in outcome.entries:
        yield (
            (entry.label, entry.note)
            if entry.times is None
            else _cells(outcome, entry, entry.times)
        )


def _cells(outcome: Outcome, entry: Entry, times: Times) -> tuple[str, ...]:
    share, ratio = outcome.share(entry.key), outcome.ratio(entry.key)
    return (
        entry.label,
        *_time_cells(times),
        "-" if share is None else f"{share * 100:.0f} %",
        "-" if ratio is None else f"{ratio:.2f}",
        "-" if entry.peak_bytes is None else format_bytes(max(0, entry.peak_bytes)),
        "-" if entry.planned_bytes is None else format_bytes(entry.planned_bytes),
    )


def _time_cells(times: Times) -> tuple[str, str]:
    return _ms(times.median_s), f"{_ms(times.low_s)} - {_ms(times.high_s)}"


def _summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """For each contender: how many times as long as redist, over all cases; losses by name."""
    for key in dict.fromkeys(e.key for o in outcomes for e in o.entries if e.key != OURS):
        ratios = {o.name: r for o in outcomes if (r := o.ratio(key)) is not None}
        if not ratios:
            continue
        mean = math.exp(sum(math.log(r) for r in ratios.values()) / len(ratios))
        least, most = min(ratios.values()), max(ratios.values())
        cases = count_of(len(ratios), "case")
        line = f"  {key:<12} {mean:.2f} x redist ({least:.2f} to {most:.2f}, {cases})"
        lost = ", ".join(name for name, r in ratios.items() if r < 1)
        yield f"{line}; quicker than redist: {lost}" if lost else line


def _ms(seconds: float) -> str:
    """Milliseconds in three digits.

    >>> _ms(0.0123456), _ms(1.5), _ms(0.00001234)
    ('12.3', '1500', '0.0123')
    """
    ms = seconds * 1e3
    digits = 2 if ms <= 0 else max(0, 2 - math.floor(math.log10(ms)))
    return f"{ms:.{min(digits, 6)}f}"
