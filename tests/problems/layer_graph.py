"""Layers of a language model as a graph of Einstein sums: attention and a gated MLP, forward."""

from __future__ import annotations

from redist.arrange.ein_graph import EinGraph, EinInput, EinNode


def layers(n: int, batch: int, length: int, d: int, heads: int, f: int) -> EinGraph:
    """So many layers, one after another, each with weights of its own.

    >>> graph = layers(2, 8, 16, 32, 4, 64)
    >>> len(graph.inputs), len(graph.nodes)
    (15, 44)
    """
    sizes = {"b": batch, "s": length, "t": length, "d": d, "h": heads, "e": d // heads, "f": f}
    weights = ("dhe", "dhe", "dhe", "hed", "df", "df", "fd")
    shapes = ["bsd", *(weights * n)]
    inputs = tuple(EinInput(tuple(sizes[label] for label in shape)) for shape in shapes)
    nodes: list[EinNode] = []

    def node(notation: str, *operands: int, join: str = "multiply", agg: str = "sum") -> int:
        nodes.append(EinNode(notation, operands, sizes, join, agg))
        return len(nodes) - 1

    def norm(x: int) -> int:
        return node("bsd,bs->bsd", x, node("bsd,bsd->bs", x, x), join="scale by root")

    x = ~0
    for number in range(n):
        wq, wk, wv, wo, w_up, w_gate, w_down = (~(1 + 7 * number + k) for k in range(7))
        h = norm(x)
        q, k, v = (node("bsd,dhe->bshe", h, w) for w in (wq, wk, wv))
        k, v = (node("bshe->bshe", one, join="copy") for one in (k, v))
        scores = node("bshe,bthe->bhst", q, k)
        most = node("bhst->bhs", scores, join="copy", agg="max")
        e = node("bhst,bhs->bhst", scores, most, join="exp of difference")
        total = node("bhst->bhs", e, join="copy")
        p = node("bhst,bhs->bhst", e, total, join="divide")
        o = node("bhst,bthe->bshe", p, v)
        x = node("bsd,bsd->bsd", x, node("bshe,hed->bsd", o, wo), join="add")
        y = norm(x)
        up, gate = node("bsd,df->bsf", y, w_up), node("bsd,df->bsf", y, w_gate)
        inside = node("bsf,bsf->bsf", up, gate, join="gate")
        x = node("bsd,bsd->bsd", x, node("bsf,fd->bsd", inside, w_down), join="add")
    return EinGraph(inputs, tuple(nodes))
