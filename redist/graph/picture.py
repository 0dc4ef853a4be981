"""Draw the graph of a program: a row for every call, lines to the calls it needs, moves in colour."""

from __future__ import annotations

from html import escape

from redist.draw.picture import page_of
from redist.graph.nodes import GraphMove, GraphNode, ProgramGraph, grouped
from redist.text.svg import MONO, Figure, document, line, rect, text, with_title
from redist.text.units import format_bytes, format_time

ROW, MOVE, LEFT, TOP, LANE = 26.0, 19.0, 20.0, 62.0, 9.0
MOST_LANES = 12
SIZE = 11.5
MADE, LEFT_OUT, EARLY = "#c05621", "#8a8f98", "#2f855a"
"""Colours of moves: made, not made, begun early."""


def draw_graph(graph: ProgramGraph, title: str | None = None) -> str:
    """Draw a graph as the text of an SVG file; how it keeps a limit is written below.

    >>> draw_graph(ProgramGraph("step", "x=2", (), (), (), {}))[:4]
    '<svg'
    """
    places = _places(graph)
    lanes = min(MOST_LANES, max((len(node.needs) for node in graph.nodes), default=0) + 4)
    names_at = LEFT + lanes * LANE + 16
    width = _width(graph, names_at)
    below = TOP + sum(_height(node) for node in graph.nodes) + 24
    height = below + MOVE * len(graph.memory)
    head = title or graph.headline()
    body = [
        text(16, 24, head, 14, weight=700),
        text(16, 44, f"mesh {graph.mesh}; " + _legend(graph), 11, "soft"),
    ]
    for number, node in enumerate(graph.nodes):
        body += _needs(node, places, number, lanes)
    for node in graph.nodes:
        body.append(_row(node, places[node.number], names_at))
    for number, said in enumerate(graph.memory):
        body.append(text(16, below + number * MOVE, said, SIZE - 1, "mono soft"))
    return document(Figure(width, height, "".join(body)), head)


def make_graph_page(graph: ProgramGraph) -> str:
    """Write a graph as a page: its picture, and the same information as text."""
    inner = f"{draw_graph(graph)}\n<h2>As text</h2>\n<pre>{escape(str(graph))}</pre>"
    return page_of(f"Program {graph.name}", inner)


def _places(graph: ProgramGraph) -> dict[int, float]:
    """The height at which every call stands."""
    y, found = TOP, {}
    for node in graph.nodes:
        found[node.number] = y
        y += _height(node)
    return found


def _height(node: GraphNode) -> float:
    return ROW + MOVE * len(grouped(node.moves))


def _width(graph: ProgramGraph, names_at: float) -> float:
    rows = [len(_label(node)) + 4 for node in graph.nodes]
    rows += [len(str(move)) + 6 for move in graph.moves]
    below = max((len(said) for said in graph.memory), default=0) * (SIZE - 1) * MONO + 32
    return max(760.0, names_at + max(rows, default=0) * SIZE * MONO + 24, below)


def _legend(graph: ProgramGraph) -> str:
    said = [f"argument {i} {t}" for i, t in enumerate(graph.arguments)]
    return "; ".join(said) if len(said) <= 4 else f"{len(said)} arguments"


def _needs(node: GraphNode, places: dict[int, float], number: int, lanes: int) -> list[str]:
    """Lines from the calls that a call needs, each in a lane of its own."""
    y = places[node.number] + 13
    out = []
    for k, other in enumerate(node.needs):
        lane = LEFT + LANE * ((number + k) % lanes)
        start = places[other] + 13
        right = LEFT + lanes * LANE + 6
        out.append(line(right, start, lane, start, "softline", stroke_width="1"))
        out.append(line(lane, start, lane, y, "softline", stroke_width="1"))
        out.append(line(lane, y, right, y, "softline", stroke_width="1"))
    return out


def _row(node: GraphNode, y: float, x: float) -> str:
    """One call: a dot, what it is, and its moves below it."""
    updates = node.updates
    dot = (
        f'<circle cx="{x - 8:.1f}" cy="{y + 13:.1f}" r="4" class="{"cell" if updates else "dot"}"/>'
    )
    parts = [
        dot,
        text(x, y + 17, _label(node), SIZE, "mono ink", weight=600 if node.moves else 400),
    ]
    by_text = {str(move): move for move in node.moves}
    for k, said in enumerate(grouped(node.moves)):
        move = next(one for text_, one in by_text.items() if said.endswith(text_))
        parts.append(_move(move, said, x + 14, y + ROW + k * MOVE))
    needs = ", ".join(map(str, node.needs)) or "nothing"
    return with_title(
        "".join(parts), f"call {node.number} at {node.line}: {node.code}; needs {needs}"
    )


def _label(node: GraphNode) -> str:
    what = f"{node.name} in place" if node.updates else node.name
    return f"{node.number:>3} {what:<14} {node.type:<34} {node.line}"


def _move(move: GraphMove, said: str, x: float, y: float) -> str:
    colour = EARLY if "early" in move.fate else MADE if move.is_made else LEFT_OUT
    bar = rect(x - 8, y + 2, 3, MOVE - 4, fill=colour)
    label = text(x, y + 13, said, SIZE - 1, "mono", fill=colour)
    more = f"{format_bytes(move.received_bytes)} in all, modelled {format_time(move.time_ps)}"
    return with_title(bar + label, more)
