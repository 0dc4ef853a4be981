"""The graph of a program: its calls in the order they were written, and what each needs, makes and moves."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from redist.errors import PlanFormatError
from redist.text.columns import table
from redist.text.svg import write_if
from redist.text.units import count_of, format_bytes, format_time

FORMAT = "redist program 1"


@dataclass(frozen=True, slots=True)
class GraphMove:
    """A move made for a call: both types, the steps of its plan, and what became of it.

    ``received_bytes`` counts all devices together and ``time_ps`` is the modelled time; an exchange without
    a plan has no time.
    """

    source: str
    target: str
    steps: str
    received_bytes: int
    time_ps: int
    fate: str = ""

    @property
    def is_made(self) -> bool:
        """Whether the move happens in a call that keeps no copies."""
        return not self.fate.startswith(("made once", "not needed"))

    def __str__(self) -> str:
        fate = f" ({self.fate})" if self.fate else ""
        what = f"{self.source} -> {self.target}: {self.steps}, {format_bytes(self.received_bytes)}"
        return f"{what}, {format_time(self.time_ps)}{fate}" if self.time_ps else what + fate


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A call: its name and line, the type of its result, and the calls and arguments that it needs."""

    number: int
    name: str
    line: str
    code: str
    type: str
    needs: tuple[int, ...]
    arguments: tuple[int, ...]
    updates: bool
    moves: tuple[GraphMove, ...]


def grouped(moves: Sequence[GraphMove]) -> list[str]:
    """Moves as texts; equal moves in a row are shown as one.

    >>> move = GraphMove("f32[8{x}]", "f32[8]", "all_gather", 64, 2000000)
    >>> grouped([move, move])
    ['2 times f32[8{x}] -> f32[8]: all_gather, 64 B, 2 us']
    """
    runs = [(text, len(list(same))) for text, same in groupby(map(str, moves))]
    return [text if n == 1 else f"{n} times {text}" for text, n in runs]


@dataclass(frozen=True, slots=True)
class ProgramGraph:
    """A program for arguments of certain types: its calls, and figures about how they are run.

    ``print`` shows a table; :meth:`to_json`, :meth:`svg` and :meth:`html` give the same in other formats.
    """

    name: str
    mesh: str
    arguments: tuple[str, ...]
    nodes: tuple[GraphNode, ...]
    results: tuple[int, ...]
    figures: Mapping[str, int]
    memory: tuple[str, ...] = ()
    """Under a limit: how it is kept, line by line."""

    @property
    def moves(self) -> tuple[GraphMove, ...]:
        """All moves, in the order of the calls."""
        return tuple(move for node in self.nodes for move in node.moves)

    @property
    def received_bytes(self) -> int:
        """The bytes that all devices together receive in the moves that are made."""
        return sum(move.received_bytes for move in self.moves if move.is_made)

    @property
    def time_ps(self) -> int:
        """The modelled time of the moves that are made, one after another, in picoseconds."""
        return sum(move.time_ps for move in self.moves if move.is_made)

    def headline(self) -> str:
        """The program in one line."""
        made = sum(move.is_made for move in self.moves)
        text = f"{self.name}: {count_of(len(self.nodes), 'call')}, {count_of(made, 'move')}"
        if made != len(self.moves):
            text += f" instead of {len(self.moves)}"
        text += f", {format_bytes(self.received_bytes)}"
        if self.memory:  # its lines have the modelled time of all work
            return text
        return f"{text}, modelled {format_time(self.time_ps)}"

    def __str__(self) -> str:
        head = ("call", "line", "what", "makes", "needs")
        rows: list[tuple[str, ...]] = [head]
        for node in self.nodes:
            needs = [*(f"argument {i}" for i in node.arguments), *map(str, node.needs)]
            what = f"{node.name} in place" if node.updates else node.name
            rows.append((str(node.number), node.line, what, node.type, ", ".join(needs)))
        lines = table(rows, left=(1, 2, 3, 4), indent="  ")
        shown = [lines[0]]
        for node, line in zip(self.nodes, lines[1:], strict=True):
            shown.append(line)
            shown += [f"          moves {move}" for move in grouped(node.moves)]
        given = "; ".join(f"{i}: {t}" for i, t in enumerate(self.arguments))
        figures = ", ".join(f"{name} {n}" for name, n in self.figures.items())
        parts = [f"{self.headline()}      mesh {self.mesh}", *shown]
        parts += [f"arguments  {given}"] if given else []
        parts += [f"figures    {figures}"] if figures else []
        parts += self.memory
        return "\n".join(parts)

    def to_json(self) -> str:
        """The graph as JSON text; :meth:`from_json` reads it back."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str) -> ProgramGraph:
        """Read a graph from JSON text that :meth:`to_json` wrote."""
        data = json.loads(text)
        if data.pop("format", None) != FORMAT:
            raise PlanFormatError(f"cannot read a program: expected the format {FORMAT!r}")
        nodes = []
        for node in data["nodes"]:
            moves = tuple(GraphMove(**move) for move in node.pop("moves"))
            needs, arguments = tuple(node.pop("needs")), tuple(node.pop("arguments"))
            nodes.append(GraphNode(**node, moves=moves, needs=needs, arguments=arguments))
        return ProgramGraph(
            data["name"], data["mesh"], tuple(data["arguments"]), tuple(nodes),
            tuple(data["results"]), data["figures"], tuple(data.get("memory", ())),
        )  # fmt: skip

    def svg(self, path: str | os.PathLike[str] | None = None, title: str | None = None) -> str:
        """The graph as SVG, also written to ``path``: calls from top to bottom, moves in colour.

        Under a limit, lines below say how it is kept. ``title`` replaces :meth:`headline`.
        """
        from redist.graph.picture import draw_graph

        return write_if(draw_graph(self, title), path)

    def html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The graph as a self-contained page, also written to ``path``."""
        from redist.graph.picture import make_graph_page

        return write_if(make_graph_page(self), path)

    def _repr_html_(self) -> str:
        return self.svg()
