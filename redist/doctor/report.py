"""What ``redist doctor`` prints: tables of facts, of ways between ranks, and of reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redist.doctor.process import Fact
from redist.text.columns import one_line, table

if TYPE_CHECKING:
    from redist.doctor.pairs import Pairing

WAYS = ("between ranks", "arrays in memory", "arrays of GPUs")


def fact_lines(found: Sequence[Fact]) -> list[str]:
    """One line for each fact, in columns.

    >>> print(*fact_lines([Fact("CuPy", "not installed", "pip"), Fact("GPUs", "1")]), sep="\\n")
    CuPy   not installed   pip
    GPUs   1
    """
    return table([(fact.name, fact.found, one_line(fact.why)) for fact in found], left=range(3))


def likely_lines(ways: Sequence[tuple[str, str, str]]) -> list[str]:
    """The ways that one process expects, in columns."""
    return table([WAYS, *ways], left=range(3))


def pairing_lines(done: Pairing) -> list[str]:
    """Three tables: the ranks, the ways between them, and why."""
    ranks = [("rank", "machine", "GPU")]
    ranks += [(str(k), *where) for k, where in enumerate(done.ranks)]
    ways = [WAYS, *((way.shown, way.in_memory, way.on_gpus or "-") for way in done.ways)]
    why = [("found among the ranks", ""), *done.why]
    return [
        *table(ranks, left=range(3)),
        "",
        *table(ways, left=range(3)),
        "",
        *table(why, left=(0, 1)),
    ]
