"""Faults of runs in words: where it is, byte by buffer, and which element that is."""

from __future__ import annotations

from collections.abc import Callable

from redist.check.box_places import Places
from redist.check.follow import OUT, READS_NOBODY, WRITES_NOBODY, Event
from redist.check.verdict import Fault
from redist.check.writes import Place

Near = tuple["str | None", "tuple[int, ...] | None"]
"""Tensor and index, if an element is there."""
NOTHING: Near = (None, None)


class Namer:
    """Makes faults of addresses; ``row`` returns the fields of a run."""

    def __init__(
        self, source: Places, target: Places, row: Callable[[int], dict[str, int]]
    ) -> None:
        self.source, self.target, self.row = source, target, row

    def event(self, kind: str, event: Event) -> Fault:
        """A fault of a run."""
        if kind == OUT:
            return self._out(event)
        rank, to, near = _spot(self.target, event.target)
        text, n_bytes = f"{to} is written by run {event.run}", event.n_bytes
        if event.source >= 0:
            _, come, read = _spot(self.source, event.source)
            text = f"{to}, comes from {come}"
            if kind == READS_NOBODY:
                text += ", where no tensor is"
            elif kind == WRITES_NOBODY:
                text, near = f"{to}, where no tensor is, gets {come}", read
            elif near == read:
                text += ", but its bytes are not whole elements, in order"
        return Fault(kind, rank, *near, n_bytes, text, event.count, "run")

    def place(self, kind: str, place: Place, more: str = "") -> Fault:
        """A fault at a place of the target."""
        rank, text, near = _spot(self.target, place.start)
        text = f"{text}, {place.n_bytes} bytes{more}"
        return Fault(kind, rank, *near, place.n_bytes, text, place.count, "box")

    def run(self, kind: str, number: int, rank: int, n_bytes: int, words: str, count: int) -> Fault:
        """A fault that a run completes: it is named by the element that the run begins with."""
        row = self.row(number)
        near = self._element("target", row)
        text = f"{words}; run {number}, {_element_text(near)}, goes beyond"
        return Fault(kind, rank, *near, n_bytes, text, count, "round")

    def _element(self, side: str, row: dict[str, int]) -> Near:
        """What lies where a run begins."""
        places = self.source if side == "source" else self.target
        offset = row[f"{side}_offset"]
        if not 0 <= offset < places.side.sizes[row[side]]:
            return NOTHING
        return places.element(int(places.base[row[side]]) + offset) or NOTHING

    def _out(self, event: Event) -> Fault:
        row = self.row(event.run)
        side = verb = ""
        for side, verb in (("target", "writes"), ("source", "reads")):  # noqa: B007
            places, number = (self.source if side == "source" else self.target), row[side]
            begin, step = row[f"{side}_offset"], row[f"{side}_step"]
            last = begin + (row["count"] - 1) * step
            low, high = min(begin, last), max(begin, last) + row["bytes"]
            size = int(places.side.sizes[number])
            if low < 0 or high > size:
                break
        else:
            side, verb, places, number = "target", "casts", self.target, row["target"]
            size = int(places.side.sizes[number])
        near = self._element(side, row)
        if near == NOTHING:
            near = self._element("source" if side == "target" else "target", row)
        rank, name = int(places.side.ranks[number]), places.side.names[number]
        text = f"run {event.run} {verb} bytes {low} to {high} of {name!r} on rank {rank}, which has {size}"
        return Fault(
            OUT,
            rank,
            *near,
            row["bytes"],
            f"{text}; it begins at {_element_text(near)}",
            event.count,
            "run",
        )


def _spot(places: Places, at: int) -> tuple[int, str, Near]:
    """Rank, words and element of an address."""
    rank, name, byte, _ = places.where(at)
    near = places.element(at) or NOTHING
    words = f"byte {byte} of {name!r} on rank {rank}"
    return rank, words if near == NOTHING else f"{words}, {_element_text(near)}", near


def _element_text(near: Near) -> str:
    name, index = near
    if name is None or index is None:
        return "no element"
    return f"{name}[{', '.join(map(str, index))}]" if index else name
