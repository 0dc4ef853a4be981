"""Fused, stacked, padded and transposed weights of the field, at true head counts, beside literal NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from redist.names import Names, part_view

Array = NDArray[Any]
H = 3
"""Columns of weights: what is done with rows does not depend on them."""


def new(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).integers(0, 2**62, size=shape)


def check(
    rules: str, stored: str, array: Array, named: dict[str, Array], *, padding: int = 0
) -> None:
    """The parts are these tensors, both ways, and with shapes of the tensors alone."""
    names = Names(rules)
    known = {name: tensor.shape for name, tensor in named.items()}
    parts = names.parts_of(stored, array.shape, known)
    assert [part.name for part in parts] == list(named)
    back = np.full_like(array, -1)
    for part in parts:
        tensor = named[part.name]
        assert part.shape == tensor.shape
        view = part_view(part, array)
        assert np.shares_memory(view, array)
        assert np.array_equal(view.reshape(part.shape), tensor)
        part_view(part, back)[...] = tensor.reshape(part.digits)
    assert np.count_nonzero(back == -1) == padding
    assert np.array_equal(back[back != -1], array[back != -1])
    if padding == 0:
        assert names.stored_from(known)[stored] == array.shape


def heads(n_q: int, n_kv: int, d: int = 128) -> tuple[Array, Array, Array]:
    return new(n_q * d, H, seed=1), new(n_kv * d, H, seed=2), new(n_kv * d, H, seed=3)


def by_group(n_groups: int, *tensors: Array) -> Array:
    """Rows of a group of each tensor, group after group, as Megatron stores them."""
    cut = [tensor.reshape(n_groups, -1, tensor.shape[1]) for tensor in tensors]
    return np.concatenate(cut, axis=1).reshape(-1, tensors[0].shape[1])


QKV = "*.qkv[q|k|v, :] = *.q_proj, *.k_proj, *.v_proj"
GATE_UP = "*.gate_up[a|b, :] = *.gate, *.up"


@pytest.mark.parametrize("n_kv", [8, 2])
def test_1_queries_keys_values(n_kv: int) -> None:
    q, k, v = heads(64, n_kv)
    named = {"a.q_proj": q, "a.k_proj": k, "a.v_proj": v}
    check(QKV, "a.qkv", np.concatenate([q, k, v]), named)


def test_2_gate_and_up() -> None:
    gate, up = new(12288, H), new(12288, H, seed=1)
    check(GATE_UP, "a.gate_up", np.concatenate([gate, up]), {"a.gate": gate, "a.up": up})


def test_3_gate_and_up_of_three_rows() -> None:
    gate, up = new(3, H), new(3, H, seed=1)
    stored = np.concatenate([gate, up])
    check(GATE_UP, "a.gate_up", stored, {"a.gate": gate, "a.up": up})
    parts = Names("*.gate_up[a|a, :] = *.gate, *.up").parts_of("a.gate_up", (6, H))
    assert [part.shape for part in parts] == [(3, H), (3, H)]


@pytest.mark.parametrize(("n_q", "n_kv"), [(64, 8), (128, 8)])
def test_4_groups_of_queries_keys_values(n_q: int, n_kv: int) -> None:
    q, k, v = heads(n_q, n_kv)
    rule = "*.linear_qkv[8*(q|k|v), :] = *.q_proj, *.k_proj, *.v_proj"
    named = {"a.q_proj": q, "a.k_proj": k, "a.v_proj": v}
    check(rule, "a.linear_qkv", by_group(n_kv, q, k, v), named)
    rule = f"*.linear_qkv[8*({n_q // n_kv}|1|1)*d, :] = *.q_proj, *.k_proj, *.v_proj"
    check(rule, "a.linear_qkv", by_group(n_kv, q, k, v), named)
    assert Names(rule).parts_of("a.linear_qkv", ((n_q + 16) * 128, H))[1].shape == k.shape


def test_5_groups_of_two_heads() -> None:
    q, k, v = heads(64, 2)
    rule = "linear_qkv[2*(q|k|v), :] = q, k, v"
    check(rule, "linear_qkv", by_group(2, q, k, v), {"q": q, "k": k, "v": v})


def test_6_rows_of_a_gate_behind() -> None:
    q, k, v = heads(64, 8)
    g = new(64, H, seed=4)
    rule = "linear_qkv[8*(q|k|v)|g, :] = q, k, v, g"
    stored = np.concatenate([by_group(8, q, k, v), g])
    check(rule, "linear_qkv", stored, {"q": q, "k": k, "v": v, "g": g})


def test_7_a_gate_within_query_heads() -> None:
    q, k, v = heads(64, 2)
    t = new(64 * 128, H, seed=4)
    check("q_proj[64*(a|b), :] = q, t", "q_proj", by_group(64, q, t), {"q": q, "t": t})
    rule = "linear_qkv[2*(q|t|k|v), :] = q, t, k, v"
    named = {"q": q, "t": t, "k": k, "v": v}
    check(rule, "linear_qkv", by_group(2, q, t, k, v), named)


@pytest.mark.parametrize("n_groups", [8, 1])
def test_8_mamba(n_groups: int) -> None:
    sizes = {"z": 8192, "x": 8192, "B": n_groups * 128, "C": n_groups * 128, "dt": 128}
    named = {name: new(size, H, seed=n) for n, (name, size) in enumerate(sizes.items())}
    check(
        "in_proj[z|x|B|C|dt, :] = z, x, B, C, dt",
        "in_proj",
        np.concatenate([*named.values()]),
        named,
    )
    whole = new(18000, H)
    check("", "in_proj", whole, {"in_proj": whole})


def test_9_experts() -> None:
    n, f = 128, 24
    w1 = [new(f, H, seed=e) for e in range(n)]
    w3 = [new(f, H, seed=1000 + e) for e in range(n)]
    named = {f"x.{e}.w1": w for e, w in enumerate(w1)} | {f"x.{e}.w3": w for e, w in enumerate(w3)}
    stored = np.stack([np.concatenate([a, b]) for a, b in zip(w1, w3, strict=True)])
    check("*.w13[e, a|b, :] = *.{e}.w1, *.{e}.w3", "x.w13", stored, named)
    w2 = {f"x.{e}.w2": new(H, f, seed=e) for e in range(n)}
    check("*.w2[e, :, :] = *.{e}.w2", "x.w2", np.stack([*w2.values()]), w2)


def test_10_layers_stacked_heads_a_dim_transposed() -> None:
    n_layers, m, h, d = 5, 6, 64, 16
    stored = new(n_layers, m, h, d)
    rule = "layers.q.kernel[l, m, h, d] = layers.{l}.q_proj.weight[h*d, m]"
    named = {
        f"layers.{n}.q_proj.weight": stored[n].transpose(1, 2, 0).reshape(h * d, m)
        for n in range(n_layers)
    }
    parts = Names(rule).parts_of("layers.q.kernel", stored.shape)
    for part in parts:
        assert np.array_equal(part_view(part, stored).reshape(part.shape), named[part.name])
    with_heads = rule.replace("[l, m, h, d]", f"[l, m, {h}, d]").replace("h*d", f"{h}*d")
    check(with_heads, "layers.q.kernel", stored, named)


def test_11_transpose() -> None:
    stored = new(8, 6)
    check("kernel[i, o] = weight[o, i]", "kernel", stored, {"weight": stored.T})
    check("kernel[:, o] = weight[o, :]", "kernel", stored, {"weight": stored.T})


def test_12_a_tied_head_and_a_padded_vocabulary() -> None:
    embed = new(151_643, H)
    stored = np.concatenate([embed, np.full((421, H), -7)])
    rules = "embed[v|_, :] = embed\nlm_head[v|_, :] = embed"
    for name in ("embed", "lm_head"):
        check(rules, name, stored, {"embed": embed}, padding=421 * H)
    made = Names(rules.replace("_", "_421", 1)).stored_from
    with pytest.raises(ValueError, match="the size of _ is not known; write it as a number"):
        made({"embed": embed.shape})
    made = Names(rules.replace("|_,", "|_421,")).stored_from
    assert made({"embed": embed.shape}) == {"embed": stored.shape, "lm_head": stored.shape}


def test_13_casts_and_14_blocks_with_scales_need_no_rules() -> None:
    for name, shape in {"w": (6, 4), "w.weight": (2048, 512), "w.scale": (16, 4)}.items():
        array = new(*shape)
        check(QKV, name, array, {name: array})


def test_15_latent_attention() -> None:
    q_a, kv_a = new(1536, H), new(576, H)
    check(
        "fused[a|b, :] = q_a, kv_a",
        "fused",
        np.concatenate([q_a, kv_a]),
        {"q_a": q_a, "kv_a": kv_a},
    )


def test_16_biases_and_other_names() -> None:
    q, k, v = (tensor[:, 0].copy() for tensor in heads(64, 8))
    rules = "*.qkv.bias[q|k|v] = *.q.bias, *.k.bias, *.v.bias\n*.norm = *.ln"
    named = {"a.q.bias": q, "a.k.bias": k, "a.v.bias": v}
    check(rules, "a.qkv.bias", np.concatenate([q, k, v]), named)
    check(rules, "b.norm", q, {"b.ln": q})
