"""Rules of model families: from the names that vLLM and Megatron-core store to those of Hugging Face.

``FAMILIES[family][system]`` is a function of the model's configuration, the dict in ``config.json``. It
returns the text of the rules.

>>> from redist.names import Names
>>> config = {"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000}
>>> names = Names(FAMILIES["llama"]["vllm"](config))
>>> parts = names.parts_of("model.layers.0.self_attn.qkv_proj.weight", (48, 32))
>>> [(part.name, part.shape) for part in parts][1]
('model.layers.0.self_attn.k_proj.weight', (8, 32))

Numbers of layers and experts are those of the whole model. A process of Megatron-core that has a stage of
the layers or some of the experts counts from 0 in its own modules: add what comes before. Rules say where
elements lie, not what is computed of them. vLLM's ``mixer.A`` is ``-exp(A_log)``, so no rule makes it.
Layers that predict further tokens (MTP) have no rules here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import Any

from redist.errors import ArgumentError

Config = Mapping[str, Any]

VLLM_ENDS = """
model.embed_tokens.weight[$vocabulary, :] = model.embed_tokens.weight
lm_head.weight[$vocabulary, :] = $head
"""
VLLM_ATTENTION = """
*.self_attn.qkv_proj.weight[$heads, :] = \
    *.self_attn.q_proj.weight, *.self_attn.k_proj.weight, *.self_attn.v_proj.weight
*.self_attn.qkv_proj.bias[$heads] = \
    *.self_attn.q_proj.bias, *.self_attn.k_proj.bias, *.self_attn.v_proj.bias
"""
VLLM_LATENT_ATTENTION = """
*.self_attn.fused_qkv_a_proj.weight[$latent, :] = \
    *.self_attn.q_a_proj.weight, *.self_attn.kv_a_proj_with_mqa.weight
*.self_attn.fused_qkv_a_proj.weight_scale_inv[a|b, :] = \
    *.self_attn.q_a_proj.weight_scale_inv, *.self_attn.kv_a_proj_with_mqa.weight_scale_inv
"""
VLLM_MLP = """
*.$mlp.gate_up_proj.weight[f|f, :] = *.$mlp.gate_proj.weight, *.$mlp.up_proj.weight
*.$mlp.gate_up_proj.weight_scale_inv[f|f, :] = \
    *.$mlp.gate_proj.weight_scale_inv, *.$mlp.up_proj.weight_scale_inv
"""
VLLM_EXPERTS = """
*.experts.routed_experts.w13_weight[e, f|f, :] = *.experts.{e}.$gate.weight, *.experts.{e}.$up.weight
*.experts.routed_experts.w2_weight[e, :, :] = *.experts.{e}.$down.weight
*.experts.routed_experts.w13_weight_scale_inv[e, f|f, :] = \
    *.experts.{e}.$gate.weight_scale_inv, *.experts.{e}.$up.weight_scale_inv
*.experts.routed_experts.w2_weight_scale_inv[e, :, :] = *.experts.{e}.$down.weight_scale_inv
"""
"""vLLM stores experts in one tensor; versions before ``routed_experts`` call it ``experts.w13_weight``."""
VLLM_MAMBA = """
backbone.embeddings.weight[$vocabulary, :] = backbone.embeddings.weight
lm_head.weight[$vocabulary, :] = $head
"""

MEGATRON_ENDS = """
embedding.word_embeddings.weight[$vocabulary, :] = $embedding
output_layer.weight[$vocabulary, :] = $head
"""
MEGATRON_ATTENTION = """
decoder.final_layernorm.weight = model.norm.weight
decoder.layers.{l}.self_attention.linear_qkv.layer_norm_weight = model.layers.{l}.input_layernorm.weight
decoder.layers.{l}.self_attention.linear_qkv.weight[$groups, :] = \
    model.layers.{l}.self_attn.q_proj.weight, model.layers.{l}.self_attn.k_proj.weight, \
    model.layers.{l}.self_attn.v_proj.weight
decoder.layers.{l}.self_attention.linear_qkv.bias[$groups] = \
    model.layers.{l}.self_attn.q_proj.bias, model.layers.{l}.self_attn.k_proj.bias, \
    model.layers.{l}.self_attn.v_proj.bias
decoder.layers.{l}.self_attention.q_layernorm.weight = model.layers.{l}.self_attn.q_norm.weight
decoder.layers.{l}.self_attention.k_layernorm.weight = model.layers.{l}.self_attn.k_norm.weight
decoder.layers.{l}.self_attention.linear_proj.weight = model.layers.{l}.self_attn.o_proj.weight
"""
"""Megatron stores queries, keys and values group by group; the norm before a layer belongs to it."""
MEGATRON_LATENT_ATTENTION = """
decoder.final_layernorm.weight = model.norm.weight
decoder.layers.{l}.input_layernorm.weight = model.layers.{l}.input_layernorm.weight
decoder.layers.{l}.self_attention.linear_q_proj.weight = model.layers.{l}.self_attn.q_proj.weight
decoder.layers.{l}.self_attention.linear_q_down_proj.weight = model.layers.{l}.self_attn.q_a_proj.weight
decoder.layers.{l}.self_attention.linear_q_up_proj.layer_norm_weight = \
    model.layers.{l}.self_attn.q_a_layernorm.weight
decoder.layers.{l}.self_attention.linear_q_up_proj.weight = model.layers.{l}.self_attn.q_b_proj.weight
decoder.layers.{l}.self_attention.linear_kv_down_proj.weight = \
    model.layers.{l}.self_attn.kv_a_proj_with_mqa.weight
decoder.layers.{l}.self_attention.linear_kv_up_proj.layer_norm_weight = \
    model.layers.{l}.self_attn.kv_a_layernorm.weight
decoder.layers.{l}.self_attention.linear_kv_up_proj.weight = model.layers.{l}.self_attn.kv_b_proj.weight
decoder.layers.{l}.self_attention.linear_proj.weight = model.layers.{l}.self_attn.o_proj.weight
"""
MEGATRON_NORM = """
decoder.layers.$layer.$norm = model.layers.$layer.post_attention_layernorm.weight
"""
MEGATRON_MLP = """
decoder.layers.{l}.$ours.linear_fc1.weight[f|f, :] = \
    model.layers.{l}.$theirs.gate_proj.weight, model.layers.{l}.$theirs.up_proj.weight
decoder.layers.{l}.$ours.linear_fc2.weight = model.layers.{l}.$theirs.down_proj.weight
"""
MEGATRON_EXPERTS = """
decoder.layers.{l}.mlp.router.weight = model.layers.{l}.$block.gate.weight
decoder.layers.{l}.mlp.router.expert_bias = model.layers.{l}.$block.gate.e_score_correction_bias
decoder.layers.{l}.mlp.experts.linear_fc1.weight{e}[f|f, :] = \
    model.layers.{l}.$block.experts.{e}.$gate.weight, model.layers.{l}.$block.experts.{e}.$up.weight
decoder.layers.{l}.mlp.experts.linear_fc2.weight{e} = model.layers.{l}.$block.experts.{e}.$down.weight
"""
MEGATRON_MAMBA = """
decoder.final_norm.weight = backbone.norm_f.weight
decoder.layers.{l}.mixer.in_proj.layer_norm_weight = backbone.layers.{l}.norm.weight
decoder.layers.{l}.mixer.in_proj.weight = backbone.layers.{l}.mixer.in_proj.weight
decoder.layers.{l}.mixer.conv1d_weight = backbone.layers.{l}.mixer.conv1d.weight
decoder.layers.{l}.mixer.conv1d_bias = backbone.layers.{l}.mixer.conv1d.bias
decoder.layers.{l}.mixer.A_log = backbone.layers.{l}.mixer.A_log
decoder.layers.{l}.mixer.D = backbone.layers.{l}.mixer.D
decoder.layers.{l}.mixer.dt_bias = backbone.layers.{l}.mixer.dt_bias
decoder.layers.{l}.mixer.norm.weight = backbone.layers.{l}.mixer.norm.weight
decoder.layers.{l}.mixer.out_proj.weight = backbone.layers.{l}.mixer.out_proj.weight
"""
"""``z|x|B|C|dt`` lie in ``in_proj`` as they do in Hugging Face's; only types cut them one by one."""
PROJECTIONS = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
MIXTRAL = {"gate": "w1", "up": "w3", "down": "w2"}
VLLM_ROWS = 64
"""vLLM's vocabularies are padded to multiples of it."""


def _number(config: Config, key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int):
        raise ArgumentError(f"cannot make rules: the configuration has no number {key}")
    return value


def _heads(config: Config) -> tuple[int, int]:
    """Heads of queries; of keys, which are as many if the configuration does not say."""
    queries = _number(config, "num_attention_heads")
    keys = _number({"num_key_value_heads": queries, **_said(config)}, "num_key_value_heads")
    if keys == 0 or queries % keys:
        raise ArgumentError(f"cannot make rules: {queries} heads of queries, {keys} of keys")
    return queries, keys


def _said(config: Config) -> dict[str, Any]:
    """What is not null in a configuration."""
    return {key: value for key, value in config.items() if value is not None}


def _vocabulary(config: Config, padded: int | None) -> str:
    rows = _number(config, "vocab_size")
    return f"{rows}|_" if padded is None else f"{rows}|_{padded - rows}"


def _ends(config: Config, text: str, embedding: str, padded: int | None) -> str:
    """The embedding and the head, which may be tied."""
    head = embedding if config.get("tie_word_embeddings") else "lm_head.weight"
    vocabulary = _vocabulary(config, padded)
    return Template(text).substitute(vocabulary=vocabulary, head=head, embedding=embedding)


def _vllm_ends(config: Config, text: str, embedding: str) -> str:
    rows = _number(config, "vocab_size")
    return _ends(config, text, embedding, -(-rows // VLLM_ROWS) * VLLM_ROWS)


def _megatron_ends(config: Config, embedding: str) -> str:
    """Megatron's padding depends on its ranks; ``padded_vocab_size`` says it if no stored shape does."""
    return _ends(config, MEGATRON_ENDS, embedding, config.get("padded_vocab_size"))


def _vllm_attention(config: Config) -> str:
    queries, keys = _heads(config)
    return Template(VLLM_ATTENTION).substitute(heads=f"({queries}|{keys}|{keys})*d")


def _megatron_attention(config: Config) -> str:
    queries, keys = _heads(config)
    return Template(MEGATRON_ATTENTION).substitute(groups=f"{keys}*({queries // keys}|1|1)*d")


def _megatron_norm(layer: int | str, *, dense: bool) -> str:
    norm = "mlp.linear_fc1.layer_norm_weight" if dense else "pre_mlp_layernorm.weight"
    return Template(MEGATRON_NORM).substitute(layer=layer, norm=norm)


def dense_vllm(config: Config) -> str:
    """Llama, Qwen2 and Qwen3: fused attention, gate and up."""
    mlp = Template(VLLM_MLP).substitute(mlp="mlp")
    ends = _vllm_ends(config, VLLM_ENDS, "model.embed_tokens.weight")
    return ends + _vllm_attention(config) + mlp


def dense_megatron(config: Config) -> str:
    """Llama, Qwen2 and Qwen3: attention group by group, norms within the layers behind them."""
    mlp = Template(MEGATRON_MLP).substitute(ours="mlp", theirs="mlp")
    ends = _megatron_ends(config, "model.embed_tokens.weight")
    return ends + _megatron_attention(config) + _megatron_norm("{l}", dense=True) + mlp


def qwen3_moe_vllm(config: Config) -> str:
    """As dense models, which some layers may be; experts in one tensor."""
    return dense_vllm(config) + Template(VLLM_EXPERTS).substitute(PROJECTIONS)


def qwen3_moe_megatron(config: Config) -> str:
    """Experts one by one, all layers with experts."""
    experts = Template(MEGATRON_EXPERTS).substitute(PROJECTIONS, block="mlp")
    ends = _megatron_ends(config, "model.embed_tokens.weight")
    return ends + _megatron_attention(config) + _megatron_norm("{l}", dense=False) + experts


def mixtral_vllm(config: Config) -> str:
    """Experts in one tensor; Hugging Face calls gate, down and up w1, w2 and w3."""
    ends = _vllm_ends(config, VLLM_ENDS, "model.embed_tokens.weight")
    return ends + _vllm_attention(config) + Template(VLLM_EXPERTS).substitute(MIXTRAL)


def mixtral_megatron(config: Config) -> str:
    """Experts one by one; Hugging Face calls gate, down and up w1, w2 and w3."""
    experts = Template(MEGATRON_EXPERTS).substitute(MIXTRAL, block="block_sparse_moe")
    ends = _megatron_ends(config, "model.embed_tokens.weight")
    return ends + _megatron_attention(config) + _megatron_norm("{l}", dense=False) + experts


def deepseek_vllm(config: Config) -> str:
    """Latent attention: both projections down are one, unless queries have none; shared experts."""
    text = _vllm_ends(config, VLLM_ENDS, "model.embed_tokens.weight")
    if config.get("q_lora_rank") is not None:
        keys = _number(config, "kv_lora_rank") + _number(config, "qk_rope_head_dim")
        latent = f"{_number(config, 'q_lora_rank')}|{keys}"
        text += Template(VLLM_LATENT_ATTENTION).substitute(latent=latent)
    for mlp in ("mlp", "mlp.shared_experts"):
        text += Template(VLLM_MLP).substitute(mlp=mlp)
    return text + Template(VLLM_EXPERTS).substitute(PROJECTIONS)


def deepseek_megatron(config: Config) -> str:
    """Latent attention, shared experts; the first layers are dense and have their norm elsewhere."""
    text = _megatron_ends(config, "model.embed_tokens.weight") + MEGATRON_LATENT_ATTENTION
    n_dense = _number(config, "first_k_dense_replace")
    for layer in range(_number(config, "num_hidden_layers")):
        text += _megatron_norm(layer, dense=layer < n_dense)
    for mlp in ("mlp", "mlp.shared_experts"):
        text += Template(MEGATRON_MLP).substitute(ours=mlp, theirs=mlp)
    return text + Template(MEGATRON_EXPERTS).substitute(PROJECTIONS, block="mlp")


def mamba2_vllm(config: Config) -> str:
    """Only the vocabulary is padded."""
    return _vllm_ends(config, VLLM_MAMBA, "backbone.embeddings.weight")


def mamba2_megatron(config: Config) -> str:
    """Other names."""
    return _megatron_ends(config, "backbone.embeddings.weight") + MEGATRON_MAMBA


FAMILIES: Mapping[str, Mapping[str, Callable[[Config], str]]] = {
    "llama": {"vllm": dense_vllm, "megatron": dense_megatron},
    "qwen2": {"vllm": dense_vllm, "megatron": dense_megatron},
    "qwen3": {"vllm": dense_vllm, "megatron": dense_megatron},
    "qwen3_moe": {"vllm": qwen3_moe_vllm, "megatron": qwen3_moe_megatron},
    "mixtral": {"vllm": mixtral_vllm, "megatron": mixtral_megatron},
    "deepseek_v2": {"vllm": deepseek_vllm, "megatron": deepseek_megatron},
    "deepseek_v3": {"vllm": deepseek_vllm, "megatron": deepseek_megatron},
    "mamba2": {"vllm": mamba2_vllm, "megatron": mamba2_megatron},
}
"""Keys are ``model_type`` of ``config.json``, then the system that stores the weights."""


def rules_for(config: Config | str | os.PathLike[str], system: str) -> str:
    """**Local.** The rules of a model as a system stores it: ``"vllm"`` or ``"megatron"``.

    ``config`` is a folder from Hugging Face, its ``config.json``, or the contents of that file.

    >>> llama = {"model_type": "llama", "num_attention_heads": 8, "vocab_size": 1000}
    >>> print(rules_for(llama, "vllm").splitlines()[-2])
    *.mlp.gate_up_proj.weight[f|f, :] = *.mlp.gate_proj.weight, *.mlp.up_proj.weight
    """
    if not isinstance(config, Mapping):
        config = _read(Path(config))
    family = config.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise ArgumentError(
            f"cannot make rules for model_type {family!r}: known are {', '.join(FAMILIES)}; write "
            "rules by hand"
        )
    if system not in FAMILIES[family]:
        raise ArgumentError(
            f"cannot make rules for {system!r}: known are {', '.join(FAMILIES[family])}; what stores tensors "
            "under the names of Hugging Face needs none"
        )
    return FAMILIES[family][system](config)


def _read(path: Path) -> Config:
    file = path / "config.json" if path.is_dir() else path
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ArgumentError(f"cannot make rules from {str(file)!r}: {problem}") from None
    if not isinstance(found, dict):
        raise ArgumentError(f"cannot make rules from {str(file)!r}: it holds no dict")
    return found
