"""Rules of model families beside weights that literal NumPy fuses, in small configurations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from redist.errors import ArgumentError
from redist.names import Names, part_view
from redist.names.families import FAMILIES, rules_for

Array = NDArray[Any]
Weights = dict[str, Array]
H, F, D, VOCAB = 6, 5, 4, 100
QUERIES, KEYS, LAYERS, EXPERTS = 6, 2, 3, 4
CONFIG: dict[str, Any] = {
    "vocab_size": VOCAB,
    "num_attention_heads": QUERIES,
    "num_key_value_heads": KEYS,
    "num_hidden_layers": LAYERS,
}
LATENT = {"q_lora_rank": 7, "kv_lora_rank": 3, "qk_rope_head_dim": 2, "first_k_dense_replace": 1}


class Made:
    """New tensors, no two elements of which are equal."""

    def __init__(self) -> None:
        self.next = 1

    def __call__(self, *shape: int) -> Array:
        n = int(np.prod(shape))
        self.next += n
        return np.arange(self.next - n, self.next).reshape(shape)


def padded(tensor: Array, rows: int) -> Array:
    return np.concatenate([tensor, np.zeros((rows - len(tensor), *tensor.shape[1:]), tensor.dtype)])


def attention_of(new: Made, layer: str, *, bias: bool, norms: bool) -> Weights:
    found = {
        f"{layer}.input_layernorm.weight": new(H),
        f"{layer}.post_attention_layernorm.weight": new(H),
        f"{layer}.self_attn.q_proj.weight": new(QUERIES * D, H),
        f"{layer}.self_attn.k_proj.weight": new(KEYS * D, H),
        f"{layer}.self_attn.v_proj.weight": new(KEYS * D, H),
        f"{layer}.self_attn.o_proj.weight": new(H, QUERIES * D),
    }
    if bias:
        sizes = {"q": QUERIES * D, "k": KEYS * D, "v": KEYS * D}
        found |= {f"{layer}.self_attn.{x}_proj.bias": new(n) for x, n in sizes.items()}
    if norms:
        found |= {f"{layer}.self_attn.{x}_norm.weight": new(D) for x in "qk"}
    return found


def latent_attention_of(new: Made, layer: str, q_lora_rank: int | None) -> Weights:
    found = {
        f"{layer}.input_layernorm.weight": new(H),
        f"{layer}.post_attention_layernorm.weight": new(H),
        f"{layer}.self_attn.kv_a_proj_with_mqa.weight": new(5, H),
        f"{layer}.self_attn.kv_a_layernorm.weight": new(3),
        f"{layer}.self_attn.kv_b_proj.weight": new(QUERIES * 4, 3),
        f"{layer}.self_attn.o_proj.weight": new(H, QUERIES * 2),
    }
    if q_lora_rank is None:
        return found | {f"{layer}.self_attn.q_proj.weight": new(QUERIES * 4, H)}
    return found | {
        f"{layer}.self_attn.q_a_proj.weight": new(q_lora_rank, H),
        f"{layer}.self_attn.q_a_layernorm.weight": new(q_lora_rank),
        f"{layer}.self_attn.q_b_proj.weight": new(QUERIES * 4, q_lora_rank),
    }


def mlp_of(
    new: Made,
    block: str,
    f: int = F,
    gate: str = "gate_proj",
    up: str = "up_proj",
    down: str = "down_proj",
) -> Weights:
    return {
        f"{block}.{gate}.weight": new(f, H),
        f"{block}.{up}.weight": new(f, H),
        f"{block}.{down}.weight": new(H, f),
    }


def experts_of(new: Made, block: str, names: dict[str, str] | None = None) -> Weights:
    found = {f"{block}.gate.weight": new(EXPERTS, H)}
    for e in range(EXPERTS):
        found |= mlp_of(new, f"{block}.experts.{e}", F, **(names or {}))
    return found


MIXTRAL = {"gate": "w1", "up": "w3", "down": "w2"}


def hugging_face(family: str, *, tied: bool = False, q_lora_rank: int | None = 7) -> Weights:
    """The tensors of a small model under Hugging Face's names."""
    new = Made()
    if family == "mamba2":
        return mamba(new)
    found = {"model.embed_tokens.weight": new(VOCAB, H), "model.norm.weight": new(H)}
    if not tied:
        found["lm_head.weight"] = new(VOCAB, H)
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        if family.startswith("deepseek"):
            found |= latent_attention_of(new, layer, q_lora_rank)
        else:
            bias, norms = family == "qwen2", family.startswith("qwen3")
            found |= attention_of(new, layer, bias=bias, norms=norms)
        if family == "mixtral":
            found |= experts_of(new, f"{layer}.block_sparse_moe", MIXTRAL)
        elif family == "qwen3_moe" or (family.startswith("deepseek") and number > 0):
            found |= experts_of(new, f"{layer}.mlp")
        else:
            found |= mlp_of(new, f"{layer}.mlp")
        if family.startswith("deepseek") and number > 0:
            found[f"{layer}.mlp.gate.e_score_correction_bias"] = new(EXPERTS)
            found |= mlp_of(new, f"{layer}.mlp.shared_experts", f=2 * F)
    return found


def mamba(new: Made) -> Weights:
    found = {"backbone.embeddings.weight": new(VOCAB, H), "backbone.norm_f.weight": new(H)}
    found["lm_head.weight"] = new(VOCAB, H)
    n_inner, n_groups, n_state, n_heads = 12, 2, 3, 4
    conv = n_inner + 2 * n_groups * n_state
    for number in range(LAYERS):
        layer = f"backbone.layers.{number}"
        found |= {
            f"{layer}.norm.weight": new(H),
            f"{layer}.mixer.in_proj.weight": new(n_inner + conv + n_heads, H),
            f"{layer}.mixer.conv1d.weight": new(conv, 1, 4),
            f"{layer}.mixer.conv1d.bias": new(conv),
            f"{layer}.mixer.A_log": new(n_heads),
            f"{layer}.mixer.D": new(n_heads),
            f"{layer}.mixer.dt_bias": new(n_heads),
            f"{layer}.mixer.norm.weight": new(n_inner),
            f"{layer}.mixer.out_proj.weight": new(H, n_inner),
        }
    return found


def take(weights: Weights, *names: str) -> list[Array]:
    return [weights.pop(name) for name in names]


def fused(left: Weights, stored: str, *names: str) -> Weights:
    """Tensors one after another, under one name, if they are there."""
    return {stored: np.concatenate(take(left, *names))} if names[0] in left else {}


def vllm(
    weights: Weights, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj"
) -> Weights:
    """What vLLM stores of these weights: fused as its loaders do."""
    left = dict(weights)
    found: Weights = {}
    for name in ("model.embed_tokens.weight", "lm_head.weight", "backbone.embeddings.weight"):
        if name in left:
            found[name] = padded(left.pop(name), 128)
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        attn = f"{layer}.self_attn"
        for kind in ("weight", "bias"):
            names = [f"{attn}.{x}_proj.{kind}" for x in "qkv"]
            if names[1] in left:
                found |= fused(left, f"{attn}.qkv_proj.{kind}", *names)
        down_projections = (f"{attn}.q_a_proj.weight", f"{attn}.kv_a_proj_with_mqa.weight")
        found |= fused(left, f"{attn}.fused_qkv_a_proj.weight", *down_projections)
        for block in (f"{layer}.mlp", f"{layer}.mlp.shared_experts"):
            names = [f"{block}.{x}_proj.weight" for x in ("gate", "up")]
            found |= fused(left, f"{block}.gate_up_proj.weight", *names)
        for block in (f"{layer}.mlp.experts", f"{layer}.block_sparse_moe.experts"):
            if f"{block}.0.{gate}.weight" in left:
                both = [
                    np.concatenate(
                        take(left, f"{block}.{e}.{gate}.weight", f"{block}.{e}.{up}.weight")
                    )
                    for e in range(EXPERTS)
                ]
                found[f"{block}.routed_experts.w13_weight"] = np.stack(both)
                names = [f"{block}.{e}.{down}.weight" for e in range(EXPERTS)]
                found[f"{block}.routed_experts.w2_weight"] = np.stack(take(left, *names))
    return found | left


def by_group(q: Array, k: Array, v: Array) -> Array:
    """Queries, keys and values of one group after another."""
    rest = q.shape[1:]
    parts = [
        q.reshape(KEYS, QUERIES // KEYS * D, *rest),
        k.reshape(KEYS, D, *rest),
        v.reshape(KEYS, D, *rest),
    ]
    return np.concatenate(parts, axis=1).reshape(-1, *rest)


OTHER_NAMES = {
    "mlp.gate.weight": "mlp.router.weight",
    "block_sparse_moe.gate.weight": "mlp.router.weight",
    "mlp.gate.e_score_correction_bias": "mlp.router.expert_bias",
    "mlp.down_proj.weight": "mlp.linear_fc2.weight",
    "mlp.shared_experts.down_proj.weight": "mlp.shared_experts.linear_fc2.weight",
    "self_attn.q_norm.weight": "self_attention.q_layernorm.weight",
    "self_attn.k_norm.weight": "self_attention.k_layernorm.weight",
    "self_attn.o_proj.weight": "self_attention.linear_proj.weight",
    "self_attn.q_proj.weight": "self_attention.linear_q_proj.weight",
    "self_attn.q_a_proj.weight": "self_attention.linear_q_down_proj.weight",
    "self_attn.q_a_layernorm.weight": "self_attention.linear_q_up_proj.layer_norm_weight",
    "self_attn.q_b_proj.weight": "self_attention.linear_q_up_proj.weight",
    "self_attn.kv_a_proj_with_mqa.weight": "self_attention.linear_kv_down_proj.weight",
    "self_attn.kv_a_layernorm.weight": "self_attention.linear_kv_up_proj.layer_norm_weight",
    "self_attn.kv_b_proj.weight": "self_attention.linear_kv_up_proj.weight",
    "norm.weight": "mixer.in_proj.layer_norm_weight",
    "mixer.conv1d.weight": "mixer.conv1d_weight",
    "mixer.conv1d.bias": "mixer.conv1d_bias",
}
"""What Megatron-core calls parameters that it stores as Hugging Face does, within a layer."""
ENDS = {
    "model.norm.weight": "decoder.final_layernorm.weight",
    "backbone.norm_f.weight": "decoder.final_norm.weight",
}


def megatron(
    weights: Weights, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj"
) -> Weights:
    """What Megatron-core stores of these weights."""
    left = dict(weights)
    found: Weights = {}
    for name in ("model.embed_tokens.weight", "backbone.embeddings.weight"):
        if name in left:
            found["embedding.word_embeddings.weight"] = padded(left.pop(name), 112)
    found["output_layer.weight"] = padded(left.pop("lm_head.weight"), 112)
    for name, ours in ENDS.items():
        if name in left:
            found[ours] = left.pop(name)
    for number in range(LAYERS):
        layer, ours = f"model.layers.{number}", f"decoder.layers.{number}"
        for kind in ("weight", "bias"):
            names = [f"{layer}.self_attn.{x}_proj.{kind}" for x in "qkv"]
            if names[1] in left:
                found[f"{ours}.self_attention.linear_qkv.{kind}"] = by_group(*take(left, *names))
        name = f"{layer}.input_layernorm.weight"
        if name in left:
            qkv = f"{ours}.self_attention.linear_qkv"
            fuses = f"{qkv}.weight" in found
            found[f"{qkv}.layer_norm_weight" if fuses else f"{ours}.input_layernorm.weight"] = (
                left.pop(name)
            )
        name = f"{layer}.post_attention_layernorm.weight"
        if name in left:
            dense = f"{layer}.mlp.up_proj.weight" in left
            norm = "mlp.linear_fc1.layer_norm_weight" if dense else "pre_mlp_layernorm.weight"
            found[f"{ours}.{norm}"] = left.pop(name)
        for block in ("mlp", "mlp.shared_experts"):
            names = [f"{layer}.{block}.{x}_proj.weight" for x in ("gate", "up")]
            found |= fused(left, f"{ours}.{block}.linear_fc1.weight", *names)
        for block in (f"{layer}.mlp.experts", f"{layer}.block_sparse_moe.experts"):
            for e in range(EXPERTS):
                names = [f"{block}.{e}.{x}.weight" for x in (gate, up)]
                found |= fused(left, f"{ours}.mlp.experts.linear_fc1.weight{e}", *names)
                name = f"{block}.{e}.{down}.weight"
                if name in left:
                    found[f"{ours}.mlp.experts.linear_fc2.weight{e}"] = left.pop(name)
        for prefix in (layer, f"backbone.layers.{number}"):
            for name in [name for name in left if name.startswith(f"{prefix}.")]:
                own = name.removeprefix(f"{prefix}.")
                found[f"{ours}.{OTHER_NAMES.get(own, own)}"] = left.pop(name)
    assert not left
    return found


def check(names: Names, stored: Weights, named: Weights) -> None:
    """Stored tensors are made of the named ones, element by element, found without their shapes."""
    seen: set[str] = set()
    for name, array in stored.items():
        parts = names.parts_of(name, array.shape)
        for part in parts:
            tensor = named[part.name]
            assert part.shape == tensor.shape, (name, part)
            assert np.array_equal(part_view(part, array).reshape(part.shape), tensor), (name, part)
        assert sum(int(np.prod(part.shape)) for part in parts) == np.count_nonzero(array), name
        seen |= {part.name for part in parts}
    assert seen == set(named)
    shapes = {name: tensor.shape for name, tensor in named.items()}
    assert names.stored_from(shapes) == {name: array.shape for name, array in stored.items()}


NAMES_OF_EXPERTS: dict[str, dict[str, str]] = {"mixtral": MIXTRAL}


@pytest.mark.parametrize("family", FAMILIES)
def test_vllm(family: str) -> None:
    named = hugging_face(family)
    stored = vllm(named, **NAMES_OF_EXPERTS.get(family, {}))
    check(Names(FAMILIES[family]["vllm"](CONFIG | LATENT)), stored, named)


@pytest.mark.parametrize("family", FAMILIES)
def test_megatron(family: str) -> None:
    named = hugging_face(family)
    stored = megatron(named, **NAMES_OF_EXPERTS.get(family, {}))
    config = CONFIG | LATENT | {"padded_vocab_size": 112}
    check(Names(FAMILIES[family]["megatron"](config)), stored, named)


def test_queries_that_are_not_compressed() -> None:
    named = hugging_face("deepseek_v2", q_lora_rank=None)
    config = CONFIG | LATENT | {"q_lora_rank": None, "padded_vocab_size": 112}
    check(Names(FAMILIES["deepseek_v2"]["vllm"](config)), vllm(named), named)
    check(Names(FAMILIES["deepseek_v2"]["megatron"](config)), megatron(named), named)


def test_a_tied_head() -> None:
    named = hugging_face("llama", tied=True)
    stored = vllm(named)
    stored["lm_head.weight"] = stored["model.embed_tokens.weight"]
    check(Names(FAMILIES["llama"]["vllm"](CONFIG | {"tie_word_embeddings": True})), stored, named)


def test_scales_of_blocks() -> None:
    """Latent attention in FP8: 1536 and 576 rows have 12 and 5 blocks of 128."""
    config = CONFIG | LATENT | {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    names = Names(FAMILIES["deepseek_v3"]["vllm"](config))
    prefix = "model.layers.0.self_attn"
    known = {
        f"{prefix}.q_a_proj.weight_scale_inv": (12, 56),
        f"{prefix}.kv_a_proj_with_mqa.weight_scale_inv": (5, 56),
    }
    assert names.stored_from(known) == {f"{prefix}.fused_qkv_a_proj.weight_scale_inv": (17, 56)}
    experts = "model.layers.3.mlp.experts"
    known = {
        f"{experts}.{e}.{x}_proj.weight_scale_inv": (16, 56)
        for e in range(3)
        for x in ("gate", "up")
    }
    made = {f"{experts}.routed_experts.w13_weight_scale_inv": (3, 32, 56)}
    assert names.stored_from(known) == made


def test_as_many_heads_of_keys_as_of_queries() -> None:
    text = FAMILIES["llama"]["megatron"](
        {"vocab_size": 9, "num_attention_heads": 4, "num_key_value_heads": None}
    )
    assert "linear_qkv.weight[4*(1|1|1)*d, :]" in text and "[9|_, :]" in text


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"vocab_size": 9}, "the configuration has no number num_attention_heads"),
        ({"num_attention_heads": 4}, "the configuration has no number vocab_size"),
        (CONFIG | {"num_key_value_heads": 4}, "6 heads of queries, 4 of keys"),
    ],
)
def test_configurations_that_do_not_do(config: dict[str, Any], reason: str) -> None:
    for system in ("vllm", "megatron"):
        with pytest.raises(ArgumentError, match=f"cannot make rules: {reason}"):
            FAMILIES["llama"][system](config)


def test_rules_for_a_folder(tmp_path: Path) -> None:
    config = {"model_type": "qwen3", **CONFIG}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for given in (config, tmp_path, str(tmp_path / "config.json")):
        assert rules_for(given, "vllm") == FAMILIES["qwen3"]["vllm"](config)
    for given, system, words in (
        ({"model_type": "gpt"}, "vllm", "model_type 'gpt': known are llama, "),
        ({}, "vllm", "model_type None"),
        (config, "trt", "'trt': known are vllm, megatron; what stores"),
        (tmp_path / "none", "vllm", "No such file"),
        (CONFIG, "vllm", "model_type None"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(words)):
            rules_for(given, system)
    for text in ("[1]", "{"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ArgumentError, match="cannot make rules from"):
            rules_for(tmp_path, "vllm")
