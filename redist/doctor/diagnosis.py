"""Diagnose how arrays would move here: facts about this process and ways between ranks, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redist.doctor.process import READS, Fact, facts
from redist.text.columns import one_line, table

if TYPE_CHECKING:
    from redist.doctor.among_ranks import Pairing
    from redist.runtime.ranks.world import Comm

# What ``redist doctor`` prints: tables of facts, of ways between ranks, and of reasons.


WAYS = ("between ranks", "arrays in memory", "arrays of GPUs")


def fact_lines(found: Sequence[Fact]) -> list[str]:
    """One line for each fact, in columns.

    >>> print(*fact_lines([Fact("CuPy", "not installed", "pip"), Fact("GPUs", "1")]), sep="\\n")
    CuPy   not installed   pip
    GPUs   1
    """
    return table([(fact.name, fact.found, one_line(fact.why)) for fact in found], left=range(3))


def likely_lines(ways: Sequence[tuple[str, str, str]]) -> list[str]:
    """The ways of moving arrays that a single process expects, in columns."""
    return table([WAYS, *ways], left=range(3))


def pairing_lines(done: Pairing) -> list[str]:
    """Three tables: the ranks, the ways of moving arrays between them, and the reasons."""
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


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found; ``print(diagnosis)`` shows it as ``redist doctor`` does.

    ``likely`` are the ways that this process alone expects; ``pairing`` is what the ranks of a communicator
    found out together (None without a communicator).
    """

    facts: tuple[Fact, ...]
    likely: tuple[tuple[str, str, str], ...] = ()
    pairing: Pairing | None = None

    @property
    def has_mpi(self) -> bool:
        """Whether MPI can be used."""
        return any(fact.name == "MPI" and fact.found != "no" for fact in self.facts)

    def __str__(self) -> str:
        lines = fact_lines(self.facts)
        if self.pairing is not None:
            lines += ["", *pairing_lines(self.pairing)]
        elif self.likely:
            lines += ["", *likely_lines(self.likely)]
        return "\n".join(lines)


def diagnose(comm: Comm | None = None, *, node_size: int | None = None) -> Diagnosis:
    """Find out what can move arrays here, and in which way they would move.

    >>> import redist
    >>> redist.diagnose().facts[0].name
    'redist'

    **Local** without ``comm``: reports what this process finds. **Collective over** ``comm`` otherwise:
    every pair of ranks is tried out as a first transfer would do it; ``node_size`` pretends that each node
    has that many ranks.
    """
    found = tuple(facts())
    local = Diagnosis(found)
    if not local.has_mpi:
        return local
    from redist.doctor.among_ranks import likely, pair_ranks
    from redist.runtime.ranks.waiting import TIMEOUT_S

    if comm is None or comm.size == 1:
        return Diagnosis(found, tuple(likely(found)))
    found = tuple(fact for fact in found if fact.name != READS)
    return Diagnosis(found, pairing=pair_ranks(comm, node_size, TIMEOUT_S))
