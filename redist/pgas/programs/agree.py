"""Make sure that all ranks have captured the same program, and agree on what they may leave out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from redist.errors import CaptureError
from redist.pgas.ghosts.tape import CapturedNode
from redist.runtime.ranks.waiting import TIMEOUT_S, gather
from redist.runtime.ranks.world import Comm

H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class RankReport:
    """What a rank says of its capture: the nodes as texts, or the error that ended it."""

    nodes: tuple[str, ...]
    error: str | None = None


def describe(node: CapturedNode) -> str:
    """A node as all ranks must have it."""
    moves = ", ".join(f"{move.source} to {move.target}" for move in node.moves)
    numbers = f" with {', '.join(node.numbers)}" if node.numbers else ""
    return f"{node}{numbers}{'; moves ' + moves if moves else ''}"


def agree_on_nodes(
    name: str, comm: Comm, nodes: Sequence[CapturedNode], error: BaseException | None
) -> None:
    """**Collective.** Raise on all ranks but those that failed if one did, or has other nodes."""
    own = RankReport(tuple(map(describe, nodes)), None if error is None else str(error))
    reports = _from_all(comm, own)
    if error is not None:
        return
    for rank, report in enumerate(reports):
        if report.error is not None:
            raise CaptureError(
                f"cannot run {name}: rank {rank} could not capture it: {report.error}"
            )
    if all(report == own for report in reports):
        return
    raise CaptureError(f"cannot run {name}: ranks disagree on the program; {_difference(reports)}")


def _difference(reports: Sequence[RankReport]) -> str:
    """The first node in which programs differ, and who has which."""
    at = 0
    while len({report.nodes[at : at + 1] for report in reports}) == 1:
        at += 1
    who: dict[str, list[int]] = {}
    for rank, report in enumerate(reports):
        said = report.nodes[at] if at < len(report.nodes) else "the end"
        who.setdefault(said, []).append(rank)
    parts = (f"{_ranks(ranks)}: node {at} {said}" for said, ranks in who.items())
    return "; ".join(parts)


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}"


def common_classes(comm: Comm, firsts: Sequence[int]) -> list[int]:
    """**Collective.** Of moves, the first that each equals on all ranks alike.

    >>> class Alone:
    ...     size = 1
    >>> common_classes(Alone(), [0, 0, 2])
    [0, 0, 2]
    """
    everyone = _from_all(comm, list(firsts))
    first: dict[tuple[int, ...], int] = {}
    return [first.setdefault(one, i) for i, one in enumerate(zip(*everyone, strict=True))]


def most_of(comm: Comm, numbers: Sequence[int]) -> list[int]:
    """**Collective.** Place by place, the largest number of all ranks."""
    return [max(several) for several in zip(*_from_all(comm, list(numbers)), strict=True)]


def same_or_unknown(comm: Comm, numbers: Sequence[int | None]) -> list[int | None]:
    """**Collective.** Place by place, the number that all ranks have which know it; None if they differ."""
    found = []
    for several in zip(*_from_all(comm, list(numbers)), strict=True):
        known = {one for one in several if one is not None}
        found.append(known.pop() if len(known) == 1 else None)
    return found


def union_of(comm: Comm, things: Sequence[H]) -> list[H]:
    """**Collective.** What at least one rank has, in order."""
    return sorted({one for some in _from_all(comm, list(things)) for one in some})  # type: ignore[type-var]


def _from_all(comm: Comm, thing: H) -> list[H]:
    """**Collective.** What every rank says."""
    return gather(comm, thing, TIMEOUT_S) if comm.size > 1 else [thing]
