"""Loaders as engines write them, recorded: as declared types and rules say, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import redist
from redist import Mesh, Weights
from redist.errors import ConversionError
from redist.layout.tiles import tile_shapes
from redist.refits.held import Held, _key
from tests.problems.refits import Machine
from tests.programs.torch.launch import needs_torch, one_worker

pytestmark = [needs_torch, one_worker]
Loaded = Iterable[tuple[str, Any]]

Q, KV, D, M, F, EXPERTS, VOCAB, PADDED = 8, 2, 4, 6, 8, 4, 30, 32
"""Heads of queries and keys, their size, hidden size, size of experts, experts, rows of vocabularies."""
NAMED = {
    "l.q_proj": (Q * D, M), "l.k_proj": (KV * D, M), "l.v_proj": (KV * D, M), "l.o_proj": (M, Q * D),
    **{f"l.experts.{e}.{w}": (F, M) for e in range(EXPERTS) for w in ("gate", "up")},
    **{f"l.experts.{e}.down": (M, F) for e in range(EXPERTS)},
    "embed": (VOCAB, M), "norm": (M,), "head": (M, VOCAB + 2), "scale": (), "q3": (2, 3, 4),
}  # fmt: skip
RULES = f"""
    *.qkv[{Q * D}|{KV * D}|{KV * D}, :] = *.q_proj, *.k_proj, *.v_proj
    *.w13[e, f|f, :] = *.experts.{{e}}.gate, *.experts.{{e}}.up
    *.w2[e, :, :] = *.experts.{{e}}.down
    embedding[{VOCAB}|_{PADDED - VOCAB}, :] = embed
    lm_head[v, m] = head[m, v]
    small[a, b, c] = q3[a, b, c]
"""


def types(tp: int) -> dict[str, str]:
    """The engine's types: keys on several ranks where there are more ranks than heads of keys."""
    kv = f"{KV * D}{{tp:(1){min(tp, KV)}}}" if tp > 1 else f"{KV * D}"
    return {
        "l.qkv": f"f32[{Q * D}{{tp}}+2*{kv}, {M}]", "l.o_proj": f"f32[{M}, {Q * D}{{tp}}]",
        "l.w13": f"f32[{EXPERTS}, 2*{F}{{tp}}, {M}]", "l.w2": f"f32[{EXPERTS}, {M}, {F}{{tp}}]",
        "embedding": f"f32[{PADDED}{{tp}}, {M}]", "norm": f"f32[{M}]",
        "lm_head": f"f32[{VOCAB + 2}{{tp}}, {M}]", "scale": "f32[]", "small": "f32[2, 3, 4]",
    }  # fmt: skip


class Engine:
    """One rank of an engine: parameters, and a loader that narrows, indexes and transposes."""

    def __init__(self, tp: int, rank: int, device: str = "meta") -> None:
        import torch

        self.tp, self.rank = tp, rank
        self.heads, self.kv = Q // tp, max(1, KV // tp)
        shapes = {
            "l.qkv": ((self.heads + 2 * self.kv) * D, M), "l.o_proj": (M, self.heads * D),
            "l.w13": (EXPERTS, 2 * F // tp, M), "l.w2": (EXPERTS, M, F // tp),
            "embedding": (PADDED // tp, M), "norm": (M,), "lm_head": ((VOCAB + 2) // tp, M), "scale": (),
            "small": (2, 3, 4), "cache": (7,),
        }  # fmt: skip
        self.parameters = {
            name: torch.nn.Parameter(torch.full(shape, -1.0, device=device), requires_grad=False)
            for name, shape in shapes.items()
        }

    def load(self, weights: Loaded) -> None:
        p, tp, rank = self.parameters, self.tp, self.rank
        for name, w in weights:
            last = name.rpartition(".")[2]
            if last in ("q_proj", "k_proj", "v_proj"):
                at = {"q": 0, "k": self.heads * D, "v": (self.heads + self.kv) * D}[last[0]]
                rows = (self.heads if last == "q_proj" else self.kv) * D
                shard = rank if last == "q_proj" else rank // max(1, tp // KV)
                p["l.qkv"].data.narrow(0, at, rows).copy_(w.narrow(0, shard * rows, rows))
            elif last == "o_proj":
                p["l.o_proj"].data.copy_(w.chunk(tp, dim=1)[rank])
            elif last in ("gate", "up"):
                data = p["l.w13"].data[int(name.split(".")[2])]
                half, f = data[: F // tp] if last == "gate" else data[F // tp :], F // tp
                half[:] = w[rank * f : (rank + 1) * f].to("meta" if w.is_meta else "cpu")
            elif last == "down":
                p["l.w2"].data[int(name.split(".")[2])].copy_(
                    w.t()[rank * F // tp :][: F // tp].t()
                )
            elif last == "embed":
                rows = PADDED // tp
                mine = w[rank * rows : (rank + 1) * rows]
                p["embedding"][: len(mine)].data.copy_(mine)
                p["embedding"][len(mine) :].data.fill_(0)
            elif last == "head":
                p["lm_head"].data.copy_(w.t().contiguous().view_as(w.t()).tensor_split(tp)[rank])
            elif last == "q3":
                for head in range(3):
                    p["small"].data.view(2, 12)[:, 4 * head : 4 * head + 4].copy_(w[:, head])
            else:
                p[last].data.copy_(w)


def record(tp: int, first: int, device: str = "meta") -> Weights:
    import redist.torch

    engines = [Engine(tp, rank, device) for rank in range(tp)]
    shapes = {name: f"f32[{', '.join(map(str, shape))}]" for name, shape in NAMED.items()}
    return Weights.recorded(
        {first + e.rank: redist.torch.recorded(e.load, shapes, e.parameters) for e in engines}
    )


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_recorded_is_declared(tp: int) -> None:
    import torch

    mesh = Mesh({"tp": tp}, ranks=range(3, 3 + tp))
    found, said = record(tp, 3), Weights(types(tp), mesh, names=RULES)
    assert (found.stored, found.named()) == (said.stored, said.named())
    train = Weights({name: _fsdp(shape) for name, shape in NAMED.items()}, "dp=3")
    wholes = _wholes()
    tiles = {
        (r, name): np.array_split(w, 3)[r] if w.ndim else w
        for name, w in wholes.items()
        for r in range(3)
    }
    machines = []
    for side in (found, said):
        plan = redist.refit(train, side, limit_bytes=1000)
        machines.append(Machine(tiles, _empty(said)))
        machines[-1].carry_out(plan, plan.ranks)
        assert plan.received_bytes == plan.lower_bound_bytes == machines[-1].received
    for key, tile in machines[0].tiles.items():
        assert np.array_equal(tile, machines[1].tiles[key]), key
        assert np.array_equal(machines[0].written[key], machines[1].written[key]), key
    for rank in range(tp):  # what the loader does with weights that are there
        engine = Engine(tp, rank, "cpu")
        engine.load((name, torch.from_numpy(whole)) for name, whole in wholes.items())
        for name in said.stored:
            tile = machines[0].tiles[3 + rank, name].view("f4")
            assert np.array_equal(tile, engine.parameters[name].numpy().reshape(-1)), name
    a, b = ({_key(tile) for tile in Held(side).tiles} for side in (found, said))
    assert len(a) == len(b)


def _fsdp(shape: tuple[int, ...]) -> str:
    return f"f32[{', '.join(f'{n}{{dp}}' if k == 0 else str(n) for k, n in enumerate(shape))}]"


def _empty(side: Weights) -> dict[tuple[int, str], Any]:
    shapes = {
        (rank, name): n for name, t in side.types.items() for rank, n in tile_shapes(t).items()
    }
    return {key: np.zeros(shape, "f4") for key, shape in shapes.items()}


def _wholes() -> dict[str, Any]:
    """Elements that differ everywhere, and are not 0."""
    found, at = {}, 1
    for name, shape in NAMED.items():
        found[name] = np.arange(at, at + int(np.prod(shape)), dtype="f4").reshape(shape)
        at += found[name].size
    return found


def test_parameters_that_serve_are_left_alone() -> None:
    import torch

    engine = Engine(2, 1, "cpu")
    shapes = {name: torch.empty(shape, device="meta") for name, shape in NAMED.items()}
    assert redist.torch.recorded(engine.load, shapes, engine.parameters).boxes
    assert all(bool((p == -1).all()) for p in engine.parameters.values())
    assert record(2, 0, "cpu") == record(2, 0)


def test_tied_parameters_and_what_is_loaded_twice() -> None:
    import torch

    embed, other = torch.empty(4, 3, device="meta"), torch.empty(2, device="meta")

    def load(weights: Loaded) -> None:
        for name, w in weights:
            (other if name == "b" else embed).copy_(w)

    shapes = {"embed": "f32[4, 3]", "head": "f32[4, 3]", "b": "f32[2]"}
    found = redist.torch.recorded(load, shapes, {"e.weight": embed, "h.weight": embed, "b": other})
    assert [(box.stored, box.tensor) for box in found.boxes] == [("e.weight", "head"), ("b", "b")]
    assert set(found.stored) == {"e.weight", "b"} and set(found.tensors) == {"head", "b"}


def _computes(p: Any, w: Any) -> None:
    p.copy_(w * 2)


def _casts(p: Any, w: Any) -> None:
    p.copy_(w.double())


def _adds(p: Any, w: Any) -> None:
    p.add_(w)


def _joins(p: Any, w: Any) -> None:
    p.copy_(w.new_empty(w.shape).copy_(w))


def _looks(p: Any, w: Any) -> None:
    p.fill_(w.max().item())


def _repeats(p: Any, w: Any) -> None:
    p.copy_(w[:1])


def _expands(p: Any, w: Any) -> None:
    p.copy_(w[:1].expand(4, 4))


def _writes_to_it(p: Any, w: Any) -> None:
    w.copy_(p)


def _scales(p: Any, w: Any) -> None:
    p.copy_(w)
    p.mul_(2)


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (_computes, r"'l.w': aten.mul.Tensor is more than a view or a copy"),
        (_casts, r"'l.w': aten._to_copy.default is more than"),
        (_adds, r"'l.w': aten.add_.Tensor is more than"),
        (_joins, r"'l.w': aten.copy_.default is more than"),
        (_looks, r"'l.w': aten.max.default is more than"),
        (_repeats, r"'l.w' is put into 'p': \[1, 4\] is repeated to fill \[4, 4\]"),
        (_expands, r"'l.w' is put into 'p': it has an element twice"),
        (_writes_to_it, r"'l.w': aten.copy_.default is more than"),
        (_scales, r"'p': aten.mul_.Tensor is more than"),
    ],
)
def test_what_is_more_than_a_copy(put: Callable[[Any, Any], None], why: str) -> None:
    import torch

    def load(weights: Loaded) -> None:
        for _, w in weights:
            put(p, w)

    p = torch.zeros(4, 4)
    with pytest.raises(ConversionError, match=why):
        redist.torch.recorded(load, {"l.w": "f32[4, 4]"}, {"p": p})


def test_casts_and_parameters_in_other_orders() -> None:
    import torch

    def load(weights: Loaded) -> None:
        for _, w in weights:
            p.copy_(w)

    p = torch.zeros(4, 4, dtype=torch.bfloat16)
    with pytest.raises(
        ConversionError, match=r"it is cast from torch\.float32 to torch\.bfloat16; record"
    ):
        redist.torch.recorded(load, {"w": "f32[4, 4]"}, {"p": p})
    p = torch.zeros(4, 2).t()
    with pytest.raises(ConversionError, match="the parameter is not contiguous"):
        redist.torch.recorded(load, {"w": "f32[2, 4]"}, {"p": p})
    with pytest.raises(ConversionError, match="the dtype of 'w' is not known"):
        redist.torch.recorded(load, {"w": (2, 4)}, {"p": p})
