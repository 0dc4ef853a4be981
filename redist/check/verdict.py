"""What was found about a list of runs: faults by name, figures by rank."""

from __future__ import annotations

from dataclasses import dataclass

from redist.text.columns import table
from redist.text.units import format_bytes

MOST_ROWS = 40
"""A printed table has no more ranks; the busiest are shown."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The first fault of a kind, at an element on a rank, and how many there are of ``of``, such as runs.

    ``tensor`` and ``index`` are None only if no element is near: a buffer without boxes.
    """

    kind: str
    rank: int
    tensor: str | None
    index: tuple[int, ...] | None
    bytes: int
    text: str
    count: int
    of: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text} ({_count_of(self.count, self.of)})"


@dataclass(frozen=True, slots=True)
class RankBytes:
    """What a rank receives, sends, and both in one round at most; what it must receive at least."""

    rank: int
    received_bytes: int
    sent_bytes: int
    peak_bytes: int
    lower_bound_bytes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a list of runs; ``print`` shows it as text.

    Copies within a rank are neither received nor sent. ``lower_bound_bytes`` is what no list can do
    without: elements that the receiving rank does not hold at the source.
    """

    n_runs: int
    n_boxes: int
    rounds: int
    faults: tuple[Fault, ...]
    ranks: tuple[RankBytes, ...]
    n_sources: int
    limit_bytes: int | None = None

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    @property
    def received_bytes(self) -> int:
        """By all ranks together."""
        return sum(one.received_bytes for one in self.ranks)

    @property
    def lower_bound_bytes(self) -> int:
        """For all ranks together."""
        return sum(one.lower_bound_bytes for one in self.ranks)

    @property
    def peak_bytes(self) -> int:
        """The most that a rank sends and receives in a round."""
        return max((one.peak_bytes for one in self.ranks), default=0)

    @property
    def balance(self) -> float:
        """Bytes of the busiest sender over the mean of all ranks of the source; 1.0 if none are sent."""
        sent = [one.sent_bytes for one in self.ranks]
        return max(sent) * self.n_sources / sum(sent) if any(sent) else 1.0

    def __str__(self) -> str:
        return "\n".join([*self.lines(), *self.figures(), "", *self.table()])

    def lines(self) -> list[str]:
        """The verdict: one line if it is right, else one a fault."""
        if self.is_right:
            runs, boxes = (
                _count_of(*one) for one in ((self.n_runs, "run"), (self.n_boxes, "target box"))
            )
            return [f"right      {runs} write each byte of {boxes} once, from a rank that has it"]
        return [f"wrong      {fault}" for fault in self.faults]

    def figures(self) -> list[str]:
        """Bytes received and their lower bound, senders, rounds."""
        least, received = self.lower_bound_bytes, self.received_bytes
        times = f" = {received / least:.2f} x lower bound" if least else ", the lower bound is 0"
        limit = "" if self.limit_bytes is None else f", limit {format_bytes(self.limit_bytes)}"
        most = f"at most {format_bytes(self.peak_bytes)} sent and received by a rank in one"
        return [
            f"received   {format_bytes(received)}{times}",
            f"senders    the busiest sends {self.balance:.2f} x the mean",
            f"rounds     {self.rounds}, {most}{limit}",
        ]

    def table(self) -> list[str]:
        """Figures by rank."""
        busiest = sorted(self.ranks, key=lambda one: (-one.peak_bytes, one.rank))[:MOST_ROWS]
        rows = [("rank", "received", "lower bound", "sent", "most in a round")]
        for one in sorted(busiest, key=lambda one: one.rank):
            figures = (one.received_bytes, one.lower_bound_bytes, one.sent_bytes, one.peak_bytes)
            rows.append((str(one.rank), *map(format_bytes, figures)))  # type: ignore[arg-type]
        out = table(rows, left=())
        left = len(self.ranks) - len(busiest)
        return [*out, f"and {left} ranks with no more in a round"] if left else out


def _count_of(n: int, noun: str) -> str:
    """A number of things in words.

    >>> _count_of(1, "run"), _count_of(2000, "target box")
    ('1 run', '2,000 target boxes')
    """
    more = "" if n == 1 else "es" if noun.endswith("x") else "s"
    return f"{n:,} {noun}{more}"
