"""The layouts of a program as a value: the types of every call, moves, work and memory, with their bounds."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from redist.draw.picture import page_of
from redist.errors import PlanFormatError
from redist.graph.nodes import ProgramGraph, grouped
from redist.program.memory_graph import MemoryCertificate
from redist.text.columns import table
from redist.text.svg import write_if
from redist.text.units import count_of, format_bytes, format_time

FORMAT = "redist program plan 1"


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A call: its line, the types that its operands have for it, its result, and its work.

    ``work_ps`` is the computing time of the busiest device, ``even_ps`` what each device would take if all
    had the same work; 0 if that is not known.
    """

    node: int
    name: str
    line: str
    wanted: tuple[str, ...]
    made: tuple[str, ...]
    work_ps: int
    even_ps: int

    @property
    def balance(self) -> str:
        """The even share of the work, as a percentage of the busiest device's work."""
        return f"{100 * self.even_ps // self.work_ps} %" if self.even_ps and self.work_ps else "-"


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """The layouts of a program for arguments of some types, with figures and bounds.

    ``layouts`` is ``planned``, or ``as written`` with the reason in ``why``. ``time_ps`` is the modelled
    time of a call, and ``written_ps`` that of the layouts as written. If moves follow one another, no
    layouts take less than ``bound_ps`` at the same prices; no way of doing the program takes less than
    ``floor_ps``. ``compute_ps`` is the time for computing alone. ``peak_bytes`` is the most that tiles take
    at once on the fullest device. A figure that is not known is 0.

    Under a limit, ``time_ps`` and ``peak_bytes`` are those of the plan that runs: they include loads and
    stores, and ``peak_bytes`` is the most that any order of its work takes. ``unlimited_bytes`` is what
    tiles would take without the limit; ``loaded_bytes`` and ``stored_bytes`` are what this rank loads and
    stores in a call.
    """

    graph: ProgramGraph
    layouts: str
    why: str
    search: str
    rows: tuple[PlannedRow, ...]
    time_ps: int
    written_ps: int
    bound_ps: int
    floor_ps: int
    compute_ps: int
    peak_bytes: int
    certificate: MemoryCertificate | None = None
    """Under a limit: what was shown about the memory of this rank, in every order of its work."""
    least_bytes: int = 0
    """Under a limit: the least that would do on all ranks."""
    unlimited_bytes: int = 0
    loaded_bytes: int = 0
    stored_bytes: int = 0

    @property
    def received_bytes(self) -> int:
        """The bytes that all devices together receive in the moves that are made."""
        return self.graph.received_bytes

    def headline(self) -> str:
        """The plan in one line."""
        made = sum(move.is_made for move in self.graph.moves)
        text = (
            f"{self.graph.name}: {count_of(len(self.rows), 'call')}, {count_of(made, 'move')}, "
            f"{format_bytes(self.received_bytes)}, {self.layouts}"
        )
        return f"{text} ({self.why})" if self.why else text

    def figures(self) -> str:
        """Modelled times and memory in one line."""
        limited = self.certificate is not None
        parts = [
            f"modelled {format_time(self.time_ps)}{' within the limit' if limited else ''}",
            f"as written {format_time(self.written_ps)}{' without one' if limited else ''}",
        ]
        if self.bound_ps:
            bound = format_time(self.bound_ps)
            parts.append(f"{self.search}: no layouts can be below {bound}, moves one by one")
            parts.append(f"no way below {format_time(self.floor_ps)}")
            parts.append(f"computing alone {format_time(self.compute_ps)}")
            need = f"{format_bytes(self.unlimited_bytes or self.peak_bytes)} at once"
            parts.append(f"{need} without a limit" if self.unlimited_bytes else need)
        return "; ".join(parts)

    def __str__(self) -> str:
        head = ("call", "line", "what", "operands in", "makes", "work", "even")
        shown: list[tuple[str, ...]] = [head]
        for number, row in enumerate(self.rows):
            shown.append(
                (
                    str(number), row.line, row.name, ", ".join(row.wanted), ", ".join(row.made),
                    format_time(row.work_ps), row.balance,
                )
            )  # fmt: skip
        lines = table(shown, left=(1, 2, 3, 4), indent="  ")
        moves = [
            f"  {node.line:>12}  {text}"
            for node in self.graph.nodes
            for text in grouped(node.moves)
        ]
        parts = [f"{self.headline()}      mesh {self.graph.mesh}", self.figures(), *lines]
        parts += ["moves", *moves] if moves else []
        given = "; ".join(f"{i}: {t}" for i, t in enumerate(self.graph.arguments))
        parts += [f"arguments  {given}"] if given else []
        return "\n".join([*parts, *self.graph.memory])

    def to_json(self) -> str:
        """The plan as JSON; :meth:`from_json` reads it."""
        data = asdict(self) | {"graph": json.loads(self.graph.to_json())}
        return json.dumps({"format": FORMAT, **data}, indent=1)

    @staticmethod
    def from_json(text: str) -> ProgramPlan:
        """Read what :meth:`to_json` wrote."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise PlanFormatError(
                f"cannot read a plan of a program: expected the format {FORMAT!r}"
            )
        try:
            graph = ProgramGraph.from_json(json.dumps(data.pop("graph")))
            rows = tuple(PlannedRow(**_with_tuples(row)) for row in data.pop("rows"))
            shown = data.pop("certificate", None)
            known = None if shown is None else MemoryCertificate(**_with_tuples(shown))
            return ProgramPlan(graph=graph, rows=rows, certificate=known, **data)
        except (KeyError, TypeError, AttributeError) as problem:
            raise PlanFormatError(f"cannot read a plan of a program: {problem}") from None

    def svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """The plan as SVG, also written to ``path``: calls from top to bottom, moves in colour.

        Its title has the modelled time of the plan. Under a limit, lines below say how it is kept.
        """
        title = f"{self.headline()}, modelled {format_time(self.time_ps)}"
        return self.graph.svg(path, title if self.time_ps else None)

    def html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The plan as a self-contained page, also written to ``path``."""
        inner = (
            f"<p>{escape(self.headline())}</p>\n<p>{escape(self.figures())}</p>\n{self.svg()}\n"
            f"<h2>As text</h2>\n<pre>{escape(str(self))}</pre>"
        )
        return write_if(page_of(f"Layouts of {self.graph.name}", inner), path)

    def _repr_html_(self) -> str:
        return self.svg()


def _with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(one) if isinstance(one, list) else one for name, one in row.items()}
