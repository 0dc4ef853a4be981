"""Weights of the field at true head counts, from trainers to engines: every element beside literal NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import redist
from redist import Mesh, Weights
from redist.layout.array_type import ArrayType
from tests.problems.refits import Machine, Side, _lacking

Array = NDArray[Any]
Named = dict[str, Array]
H = 4
"""Columns of weights, which most cases leave whole."""


class New:
    """New tensors; no two elements are equal, and none is 0."""

    def __init__(self, dtype: str = "u4") -> None:
        self.next, self.dtype = 1, dtype

    def __call__(self, *shape: int) -> Array:
        n = int(np.prod(shape))
        self.next += n
        return np.arange(self.next - n, self.next, dtype=self.dtype).reshape(shape)


def cut(array: Array, n: int, k: int, dim: int = 0) -> Array:
    """The k-th of n tiles along a dim; the last may be shorter."""
    size = -(-array.shape[dim] // n)
    index = [slice(None)] * array.ndim
    index[dim] = slice(k * size, (k + 1) * size)
    return array[tuple(index)]


def side(mesh: str, tiles: Any, rules: str = "", **types: str) -> Side:
    """Types on one mesh, and a function that has the tiles of the k-th device; ``_`` in names is a dot."""
    ranks = Mesh.parse(mesh).ranks
    found = Side({name: (text, mesh) for name, text in types.items()}, rules.splitlines())
    for k, rank in enumerate(ranks):
        found.tiles |= {(rank, n): np.ascontiguousarray(tile) for n, tile in tiles(k).items()}
    assert {name for _, name in found.tiles} == set(types)
    return found


def weights(one: Side) -> Weights:
    types = {n: ArrayType.parse(t, Mesh.parse(m)) for n, (t, m) in one.types.items()}
    return Weights(types, names=one.rules)


def moves(source: Side, target: Side, *, both: bool = False, **options: Any) -> redist.RefitPlan:
    """All runs carried out on bytes make the literal tiles, and no more bytes move than ranks lack."""
    for a, b in ((source, target), (target, source)) if both else ((source, target),):
        plan = redist.refit(weights(a), weights(b), **options)
        machine = Machine(a.tiles, b.tiles)
        machine.carry_out(plan, plan.ranks)
        for key, tile in b.tiles.items():
            assert np.array_equal(machine.tiles[key].view(tile.dtype).reshape(tile.shape), tile), (
                key
            )
        assert machine.received == plan.received_bytes == plan.lower_bound_bytes == _lacking(a, b)
    return plan


def heads(n_q: int, n_kv: int, d: int = 128) -> tuple[Array, Array, Array]:
    new = New()
    return new(n_q * d, H), new(n_kv * d, H), new(n_kv * d, H)


def by_group(n_groups: int, *tensors: Array) -> Array:
    """Rows of a group of each tensor, group after group, as Megatron stores them."""
    parts = [tensor.reshape(n_groups, -1, tensor.shape[1]) for tensor in tensors]
    return np.concatenate(parts, axis=1).reshape(-1, tensors[0].shape[1])


QKV = "*.qkv[q|k|k, :] = *.q_proj, *.k_proj, *.v_proj"


def engine(q: Array, k: Array, v: Array, tp: int, first: int, d: int = 128) -> Side:
    """Fused queries, keys and values; each head of keys on several ranks if there are more ranks."""
    n_kv = len(k) // d
    shards = min(tp, n_kv)
    rest = f"2*{len(k)}{{tp:(1){shards}}}" if tp > n_kv else f"2*{len(k)}{{tp}}"

    def tiles(r: int) -> Named:
        kv = [cut(x, shards, r * shards // tp) for x in (k, v)]
        return {"a.qkv": np.concatenate([cut(q, tp, r), *kv])}

    rule = QKV.replace("k|k", f"{len(k)}|{len(k)}")
    return side(f"tp={tp}@{first}", tiles, rule, **{"a.qkv": f"u32[{len(q)}{{tp}}+{rest}, {H}]"})


def apart(n: int, **named: Array) -> Side:
    """Named tensors as Hugging Face has them, under FSDP on ranks from 0."""
    types = {f"a.{x}": f"u32[{len(w)}{{dp}}, {w.shape[1]}]" for x, w in named.items()}
    return side(f"dp={n}", lambda r: {f"a.{x}": cut(w, n, r) for x, w in named.items()}, **types)


@pytest.mark.parametrize(("n_q", "n_kv", "tp"), [(64, 8, 16), (64, 2, 8), (128, 8, 16)])
def test_1_queries_keys_values_under_fsdp(n_q: int, n_kv: int, tp: int) -> None:
    q, k, v = heads(n_q, n_kv)
    moves(apart(3, q_proj=q, k_proj=k, v_proj=v), engine(q, k, v, tp, 3), both=True)


def fused_mlp(gate: Array, up: Array, mesh: str) -> Side:
    tp = Mesh.parse(mesh).n_devices
    return side(
        mesh, lambda r: {"a.gate_up": np.concatenate([cut(gate, tp, r), cut(up, tp, r)])},
        "*.gate_up[f|f, :] = *.gate, *.up", **{"a.gate_up": f"u32[2*{len(gate)}{{tp}}, {H}]"},
    )  # fmt: skip


def sharded_mlp(gate: Array, up: Array) -> Side:
    """FSDP of TP: ranks of tp=2, and within each dp=2."""
    pairs = {"a.gate": gate, "a.up": up}
    return side(
        "tp=2,dp=2", lambda r: {x: cut(cut(w, 2, r // 2), 2, r % 2) for x, w in pairs.items()},
        **dict.fromkeys(pairs, f"u32[{len(gate)}{{tp,dp}}, {H}]"),
    )  # fmt: skip


def test_2_gate_and_up_under_fsdp_of_tp() -> None:
    new = New()
    gate, up = new(768, H), new(768, H)
    moves(sharded_mlp(gate, up), fused_mlp(gate, up, "tp=4@4"), both=True)


def test_3_gate_and_up_of_three_rows() -> None:
    new = New()
    gate, up = new(3, H), new(3, H)
    target = fused_mlp(gate, up, "tp=2@2")
    assert [target.tiles[rank, "a.gate_up"].shape for rank in (2, 3)] == [(4, H), (2, H)]
    moves(apart(2, gate=gate, up=up), target, both=True)


def megatron(groups: int, tp: int, *tensors: Array) -> Side:
    """Queries, keys and values group by group, cut by groups, or by rows if there are fewer groups."""
    whole = by_group(groups, *tensors)
    rows = f"{groups}{{tp}}*{len(whole) // groups}" if tp <= groups else f"{len(whole)}{{tp}}"
    letters = "qkv" if len(tensors) == 3 else "qtkv"
    sizes = "|".join(str(len(x) // groups) for x in tensors)
    names = ", ".join(f"*.{x}_proj" for x in letters)
    return side(
        f"tp={tp}", lambda r: {"a.linear_qkv": cut(whole, tp, r)},
        f"*.linear_qkv[{groups}*({sizes}), :] = {names}", **{"a.linear_qkv": f"u32[{rows}, {H}]"},
    )  # fmt: skip


@pytest.mark.parametrize(("n_q", "tp"), [(64, 16), (128, 16), (64, 4)])
def test_4_megatrons_groups_to_an_engine(n_q: int, tp: int) -> None:
    q, k, v = heads(n_q, 8)
    moves(megatron(8, 8, q, k, v), engine(q, k, v, tp, 8), both=True)


def test_5_two_heads_of_keys_on_eight_ranks() -> None:
    q, k, v = heads(64, 2)
    moves(megatron(2, 8, q, k, v), engine(q, k, v, 8, 8), both=True)


@pytest.mark.parametrize("n_q", [64])
def test_6_rows_of_a_gate_behind(n_q: int) -> None:
    q, k, v = heads(n_q, 8, 2)
    gate = New()(n_q, H) + 10_000
    whole = by_group(8, q, k, v)

    def tiles(tp: int) -> Any:
        return lambda r: {"a.linear_qkv": np.concatenate([cut(whole, tp, r), cut(gate, tp, r)])}

    rule = "*.linear_qkv[8*(16|2|2)|g, :] = *.q_proj, *.k_proj, *.v_proj, *.g"
    two = side("tp=2", tiles(2), rule, **{"a.linear_qkv": f"u32[8{{tp}}*20+64{{tp}}, {H}]"})
    four = side("tp=4@2", tiles(4), rule, **{"a.linear_qkv": f"u32[160{{tp}}+64{{tp}}, {H}]"})
    moves(two, four, both=True)
    for one in (two, four):
        one.rules = []
    moves(two, four, both=True)
    two.rules = [rule]
    named = apart(2, q_proj=q, k_proj=k, v_proj=v, g=gate)
    named.types = {name: (text, "dp=2@2") for name, (text, _) in named.types.items()}
    named.tiles = {(rank + 2, name): tile for (rank, name), tile in named.tiles.items()}
    moves(two, named, both=True)


def test_7_a_gate_within_query_heads() -> None:
    q, k, v = heads(64, 2, 16)
    t = q + 100_000
    fused = by_group(64, q, t)
    source = side(
        "dp=3@8",
        lambda r: {"a.q": cut(fused, 3, r), "a.k_proj": cut(k, 3, r), "a.v_proj": cut(v, 3, r)},
        "*.q[64*(a|a), :] = *.q_proj, *.t_proj",
        **{"a.q": f"u32[2048{{dp}}, {H}]", **{f"a.{x}_proj": f"u32[32{{dp}}, {H}]" for x in "kv"}},
    )
    moves(source, megatron(2, 8, q, t, k, v), both=True)
    moves(source, megatron(2, 2, q, t, k, v), both=True)


@pytest.mark.parametrize("groups", [8, 1])
def test_8_mamba_on_twice_as_many_ranks(groups: int) -> None:
    new = New()
    z, x, dt = new(1024, H), new(1024, H), new(128, H)
    b, c = new(groups * 16, H), new(groups * 16, H)

    def tiles(tp: int) -> Any:
        few = tp if groups > 1 else 1
        return lambda r: {"a.in_proj": np.concatenate(
            [cut(z, tp, r), cut(x, tp, r), *(cut(w, few, r % few) for w in (b, c)), cut(dt, tp, r)]
        )}  # fmt: skip

    middle = f"2*{len(b)}{{tp}}" if groups > 1 else f"{2 * len(b)}"
    text = f"u32[2*1024{{tp}}+{middle}+128{{tp}}, {H}]"
    for a, n in ((1, 2), (2, 4)):
        one, two = (
            side(m, tiles(k), **{"a.in_proj": text}) for k, m in ((a, f"tp={a}"), (n, f"tp={n}@4"))
        )
        moves(one, two, both=True)


@pytest.mark.parametrize("to", ["tp", "ep"])
def test_9_experts_one_by_one_to_stacked_ones(to: str) -> None:
    n, f, new = 128, 4, New()
    w1, w3, w2 = ([new(*shape) for _ in range(n)] for shape in ((f, H), (f, H), (H, f)))
    mesh = Mesh(ep=4, dp=2)
    source = Side()
    for name, every in (("w1", w1), ("w3", w3), ("w2", w2)):
        for e, w in enumerate(every):
            where = mesh.at(ep=e // 32)
            source.types[f"x.{e}.{name}"] = (f"u32[{w.shape[0]}, {w.shape[1]}]", str(where))
            source.tiles |= {(rank, f"x.{e}.{name}"): w for rank in where.ranks}
    both = np.stack([np.stack(pair) for pair in zip(w1, w3, strict=True)])
    down = np.stack(w2)
    halves = both if to == "tp" else both.reshape(n, -1, H)
    dim = 2 if to == "tp" else 0
    types = {
        "x.w13": f"u32[128, 2*{f}{{tp}}, {H}]" if to == "tp" else f"u32[128{{tp}}, {2 * f}, {H}]",
        "x.w2": f"u32[128, {H}, {f}{{tp}}]" if to == "tp" else f"u32[128{{tp}}, {H}, {f}]",
    }

    def own(r: int) -> Named:
        w13 = cut(halves, 4, r, dim)
        return {"x.w13": w13.reshape(len(w13), -1, H), "x.w2": cut(down, 4, r, dim)}

    rules = "*.w13[e, f|f, :] = *.{e}.w1, *.{e}.w3\n*.w2[e, :, :] = *.{e}.w2"
    moves(source, side("tp=4@8", own, rules, **types), both=True)


def test_10_layers_stacked_heads_a_dim_transposed() -> None:
    n_layers, m, h, d = 2, 4, 64, 2
    kernel = New()(n_layers, m, h, d)
    source = side(
        "fsdp=2,tp=2", lambda r: {"layers.q.kernel": cut(cut(kernel, 2, r // 2, 1), 2, r % 2, 2)},
        "layers.q.kernel[l, m, 64, d] = layers.{l}.q_proj.weight[64*d, m]",
        **{"layers.q.kernel": f"u32[{n_layers}, {m}{{fsdp}}, {h}{{tp}}, {d}]"},
    )  # fmt: skip
    named = {
        f"layers.{n}.q_proj.weight": kernel[n].transpose(1, 2, 0).reshape(h * d, m)
        for n in range(n_layers)
    }
    target = side(
        "tp=4@4", lambda r: {name: cut(w, 4, r) for name, w in named.items()},
        **dict.fromkeys(named, f"u32[{h * d}{{tp}}, {m}]"),
    )  # fmt: skip
    moves(source, target, both=True)


def test_11_transpose() -> None:
    kernel = New()(8, 6)
    source = side(
        "x=4",
        lambda r: {"kernel": cut(kernel, 4, r)},
        "kernel[i, o] = weight[o, i]",
        kernel="u32[8{x}, 6]",
    )
    target = side("tp=3@4", lambda r: {"weight": cut(kernel.T, 3, r)}, weight="u32[6{tp}, 8]")
    moves(source, target, both=True)


def test_12_a_tied_head_and_a_padded_vocabulary() -> None:
    embed = New()(1643, H)
    padded = np.concatenate([embed, np.zeros((21, H), "u4")])
    source = side("dp=3", lambda r: {"embed": cut(embed, 3, r)}, embed=f"u32[1643{{dp}}, {H}]")
    target = side(
        "tp=4@3", lambda r: dict.fromkeys(("embed", "lm_head"), cut(padded, 4, r)),
        "embed[1643|_, :] = embed\nlm_head[1643|_, :] = embed",
        embed=f"u32[1664{{tp}}, {H}]", lm_head=f"u32[1664{{tp}}, {H}]",
    )  # fmt: skip
    plan = redist.refit(weights(source), weights(target))
    machine = Machine(source.tiles, target.tiles)
    machine.carry_out(plan, plan.ranks)
    for (rank, name), tile in target.tiles.items():
        assert np.array_equal(machine.tiles[rank, name].view("u4").reshape(tile.shape), tile)
    assert machine.received == plan.received_bytes == plan.lower_bound_bytes == 2 * embed.nbytes
    moves(target, source)


def test_13_masters_of_f32_to_bf16() -> None:
    master = New()(6, H)
    source = side("x=3", lambda r: {"w": cut(master, 3, r)}, w=f"f32[6{{x}}, {H}]")
    target = side("tp=2@3", lambda r: {"w": cut(master, 2, r, 1)}, w=f"bf16[6, {H}{{tp}}]")
    plan = redist.refit(weights(source), weights(target), cast=True)
    assert plan.received_bytes == plan.lower_bound_bytes == 6 * H * 2
    for rank in (3, 4):
        got, times = np.zeros(6 * H // 2, "u2"), np.zeros(6 * H // 2, int)
        for run in plan.runs(rank):  # bytes count what is sent, in bf16; offsets those of each tile
            given = source.tiles[int(run["peer"]), "w"].reshape(-1)
            n = int(run["bytes"]) // 2
            for i in range(int(run["count"])):
                at = (int(run["offset"]) + i * int(run["step"])) // 2
                there = (int(run["there_offset"]) + i * int(run["there_step"])) // 4
                got[at : at + n] = given[there : there + n]
                times[at : at + n] += 1
        assert np.array_equal(got, target.tiles[rank, "w"].reshape(-1)) and (times == 1).all()
    with pytest.raises(redist.ArgumentError, match="say cast=True"):
        redist.refit(weights(source), weights(target))


def test_14_blocks_of_fp8_with_scales() -> None:
    rng = np.random.default_rng(5)
    w, s = rng.integers(0, 256, (2048, 256), "u1"), New()(16, 2)
    pair = {"*.weight": ("*.weight_scale_inv", (128, 128))}

    def blocks(mesh: str, axis: str, n: int) -> Side:
        types = {
            "a.weight": f"f8e4m3fn[16{{{axis}}}*128, 256]",
            "a.weight_scale_inv": f"f32[16{{{axis}}}, 2]",
        }
        by_block = w.reshape(16, 128, 256)

        def tiles(r: int) -> Named:
            own = cut(by_block, n, r).reshape(-1, 256)
            return {"a.weight": own, "a.weight_scale_inv": cut(s, n, r)}

        return side(mesh, tiles, **types)

    source, target = blocks("dp=3", "dp", 3), blocks("tp=8@3", "tp", 8)
    plan = redist.refit(weights(source), weights(target), pair=pair)
    machine = Machine(source.tiles, target.tiles)
    machine.carry_out(plan, plan.ranks)
    for key, tile in target.tiles.items():
        assert np.array_equal(machine.tiles[key].view(tile.dtype).reshape(tile.shape), tile), key
    assert machine.received == plan.received_bytes == plan.lower_bound_bytes == w.nbytes + s.nbytes
    fused = Weights({"a.weight": "f8e4m3fn[24576{tp}+2*1536{tp:(1)8}, 256]",
                     "a.weight_scale_inv": "f32[192{tp}+2*12{tp:(1)8}, 2]"}, "tp=16")  # fmt: skip
    with pytest.raises(redist.LayoutError, match="rank 0 has indices 24576 to 24768 of dim 0"):
        redist.refit(fused, fused, pair=pair)


def test_15_latent_attention_whole_on_every_rank() -> None:
    new = New()
    q_a, kv_a = new(1536, H), new(576, H)
    fused = np.concatenate([q_a, kv_a])
    target = side(
        "tp=4@2", lambda _: {"a.fused": fused}, "*.fused[1536|b, :] = *.q_a, *.kv_a",
        **{"a.fused": f"u32[2112, {H}]"},
    )  # fmt: skip
    moves(apart(2, q_a=q_a, kv_a=kv_a), target, both=True)


def test_16_what_a_rank_has_is_not_received() -> None:
    new = New()
    gate, up = new(768, H), new(768, H)
    plan = moves(sharded_mlp(gate, up), fused_mlp(gate, up, "tp=4"))
    assert plan.received_bytes == 0, "both cut the rows into the same four"
    plan = moves(apart(4, gate=gate, up=up), fused_mlp(gate, up, "tp=2"))
    assert 0 < plan.received_bytes < gate.nbytes + up.nbytes
