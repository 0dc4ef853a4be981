"""Weights of models of the field at their real shapes, as training and engines lay them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from redist import Mesh, Weights
from redist.names import Names
from redist.names.families import FAMILIES
from redist.names.patterns import NamePattern, Patterns

STAGES, TP, RANKS = 8, 8, 256
"""Training: pipeline stages, tensor parallelism, and all ranks; what is left are copies, or FSDP's rows."""


@dataclass(frozen=True, slots=True)
class Model:
    """What the configuration of a mixture of experts says; the public one of each model."""

    family: str
    layers: int
    hidden: int
    heads: int
    keys: int
    head: int
    vocabulary: int
    experts: int
    expert: int
    dense: int = 0
    dense_layers: int = 0
    shared: int = 0
    latent: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    """Ranks of queries and keys; sizes of a head without and with positions, and of values."""
    bias: bool = False

    @property
    def config(self) -> dict[str, Any]:
        """As in ``config.json``, as far as rules of names need it."""
        return {
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.keys, "vocab_size": self.vocabulary,
            "padded_vocab_size": self.vocabulary, "first_k_dense_replace": self.dense_layers,
            "q_lora_rank": self.latent[0] or None, "kv_lora_rank": self.latent[1],
            "qk_rope_head_dim": self.latent[3],
        }  # fmt: skip


QWEN3_235B = Model("qwen3_moe", 94, 4096, 64, 4, 128, 151936, 128, 1536)
DEEPSEEK_V3 = Model(
    "deepseek_v3", 61, 7168, 128, 128, 128, 129280, 256, 2048, 18432, 3, 2048, (1536, 512, 128, 64, 128), True
)  # fmt: skip
KIMI_K2 = Model(
    "deepseek_v3", 61, 7168, 64, 64, 128, 163840, 384, 2048, 18432, 1, 2048, (1536, 512, 128, 64, 128), True
)  # fmt: skip
MODELS: Mapping[str, Model] = {
    "Qwen3-235B": QWEN3_235B, "DeepSeek-V3": DEEPSEEK_V3, "Kimi-K2": KIMI_K2,
}  # fmt: skip


def trained(model: Model, *, fsdp: bool = False) -> Weights:
    """256 training ranks: 8 stages of TP 8 with 4 copies, experts one by one over the ranks of a stage.

    With ``fsdp`` the copies are rows of FSDP's.
    """
    copies = RANKS // STAGES // TP
    mesh = Mesh(pp=STAGES, dp=copies, tp=TP)
    stages = [mesh.at(pp=stage) for stage in range(STAGES)]
    n_groups = min(RANKS // STAGES, model.experts)
    spread = [
        Mesh(ep=n_groups, copy=RANKS // STAGES // n_groups, ranks=stage.ranks) for stage in stages
    ]
    owners = [[m.at(ep=group) for group in range(n_groups)] for m in spread]
    rows, cols = ("{tp,dp}", "{tp}") if fsdp else ("{tp}", "{tp}")
    both = "{dp}" if fsdp else "{}"

    def stage_of(layer: int) -> int:
        return layer * STAGES // model.layers

    def layer(cuts: str) -> Callable[..., Any]:
        return lambda n, **_: (cuts, stages[stage_of(n)])

    def expert(n: int, e: int) -> Any:
        return None, owners[stage_of(n)][e * n_groups // model.experts]

    before = "decoder.layers.{n}."
    layouts: dict[str, Any] = {
        f"{before}mlp.experts.linear_fc1.weight{{e}}": expert,
        f"{before}mlp.experts.linear_fc2.weight{{e}}": expert,
        f"{before}self_attention.linear_qkv.weight": layer(f"{rows}, {{}}"),
        f"{before}self_attention.linear_q_up_proj.weight": layer(f"{rows}, {{}}"),
        f"{before}self_attention.linear_kv_up_proj.weight": layer(f"{rows}, {{}}"),
        f"{before}self_attention.linear_proj.weight": layer(f"{both}, {cols}"),
        f"{before}mlp.linear_fc1.weight": layer(f"2*{model.dense}{rows}, {{}}"),
        f"{before}mlp.linear_fc2.weight": layer(f"{both}, {cols}"),
        f"{before}mlp.shared_experts.linear_fc1.weight": layer(f"2*{model.shared}{rows}, {{}}"),
        f"{before}mlp.shared_experts.linear_fc2.weight": layer(f"{both}, {cols}"),
        f"{before}*": lambda n, **_: (None, stages[stage_of(n)]),
        "embedding.word_embeddings.weight": (f"{rows}, {{}}", stages[0]),
        "output_layer.weight": (f"{rows}, {{}}", stages[-1]),
        "decoder.final_layernorm.weight": (None, stages[-1]),
    }
    shapes = _texts(_megatron_types(model))
    used = {key: value for key, value in layouts.items() if _is_used(key, shapes)}
    names = FAMILIES[model.family]["megatron"](model.config)
    return Weights.declare(used, shapes=shapes, names=names)


def served(model: Model, *, tp: int, by_experts: bool = False, ranks: int = 128) -> Weights:
    """128 inference ranks behind them: copies of TP groups; experts cut by TP, or spread over all ranks."""
    mesh = Mesh({"dp": ranks // tp, "tp": tp}, ranks=range(RANKS, RANKS + ranks))
    all_ranks = Mesh({"ep": ranks}, ranks=range(RANKS, RANKS + ranks))
    f, n = model.expert, model.experts
    fused: Any = f"{n}, 2*{f}{{tp}}, {{}}"
    down: Any = "{}, {}, {tp}"
    if by_experts:
        fused = down = "{ep}, {}, {}", all_ranks
    keys = f"{model.keys * model.head}{{tp}}" if model.keys % tp == 0 else (
        f"{model.keys * model.head}{{tp:(1){model.keys}}}")  # fmt: skip
    queries = model.heads * model.head
    layouts: dict[str, Any] = {
        "*.experts.routed_experts.w13_weight": fused,
        "*.experts.routed_experts.w2_weight": down,
        "*.qkv_proj.weight": f"{queries}{{tp}}+2*{keys}, {{}}",
        "*.q_b_proj.weight": "{tp}, {}",
        "*.kv_b_proj.weight": "{tp}, {}",
        "*.o_proj.weight": "{}, {tp}",
        "*.shared_experts.gate_up_proj.weight": f"2*{model.shared}{{tp}}, {{}}",
        "*.gate_up_proj.weight": f"2*{model.dense}{{tp}}, {{}}",
        "*.down_proj.weight": "{}, {tp}",
        "model.embed_tokens.weight": "{tp}, {}",
        "lm_head.weight": "{tp}, {}",
        "*": None,
    }
    rules = Names(FAMILIES[model.family]["vllm"](model.config))
    theirs = Names(FAMILIES[model.family]["megatron"](model.config))
    known = {part.name: part.shape for name, shape in _megatron_types(model).items() for part in
             theirs.parts_of(name, shape)}  # fmt: skip
    shapes = _texts(rules.stored_from(known))
    used = {key: value for key, value in layouts.items() if _is_used(key, shapes)}
    return Weights.declare(used, mesh, shapes=shapes, names=rules)


def _is_used(pattern: str, shapes: Mapping[str, Any]) -> bool:
    found = Patterns([NamePattern.of(pattern)])
    return any(any(True for _ in found.find(name)) for name in shapes)


def _texts(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    return {
        name: f"{'f32' if name.endswith('bias') else 'bf16'}{list(shape)}"
        for name, shape in shapes.items()
    }


def _megatron_types(model: Model) -> dict[str, tuple[int, ...]]:
    m, h = model, model.hidden
    out: dict[str, tuple[int, ...]] = {
        "embedding.word_embeddings.weight": (m.vocabulary, h),
        "output_layer.weight": (m.vocabulary, h),
        "decoder.final_layernorm.weight": (h,),
    }
    for n in range(m.layers):
        at = f"decoder.layers.{n}."
        attention = at + "self_attention."
        if m.latent[0]:
            q, kv, nope, rope, v = m.latent
            out |= {
                f"{at}input_layernorm.weight": (h,),
                f"{attention}linear_q_down_proj.weight": (q, h),
                f"{attention}linear_q_up_proj.layer_norm_weight": (q,),
                f"{attention}linear_q_up_proj.weight": (m.heads * (nope + rope), q),
                f"{attention}linear_kv_down_proj.weight": (kv + rope, h),
                f"{attention}linear_kv_up_proj.layer_norm_weight": (kv,),
                f"{attention}linear_kv_up_proj.weight": (m.heads * (nope + v), kv),
                f"{attention}linear_proj.weight": (h, m.heads * v),
            }
        else:
            out |= {
                f"{attention}linear_qkv.layer_norm_weight": (h,),
                f"{attention}linear_qkv.weight": ((m.heads + 2 * m.keys) * m.head, h),
                f"{attention}q_layernorm.weight": (m.head,),
                f"{attention}k_layernorm.weight": (m.head,),
                f"{attention}linear_proj.weight": (h, m.heads * m.head),
            }
        if n < m.dense_layers:
            out |= {
                f"{at}mlp.linear_fc1.layer_norm_weight": (h,),
                f"{at}mlp.linear_fc1.weight": (2 * m.dense, h),
                f"{at}mlp.linear_fc2.weight": (h, m.dense),
            }
            continue
        out |= {
            f"{at}pre_mlp_layernorm.weight": (h,),
            f"{at}mlp.router.weight": (m.experts, h),
        }
        if m.bias:
            out[f"{at}mlp.router.expert_bias"] = (m.experts,)
        if m.shared:
            out[f"{at}mlp.shared_experts.linear_fc1.weight"] = (2 * m.shared, h)
            out[f"{at}mlp.shared_experts.linear_fc2.weight"] = (h, m.shared)
        for e in range(m.experts):
            out[f"{at}mlp.experts.linear_fc1.weight{e}"] = (2 * m.expert, h)
            out[f"{at}mlp.experts.linear_fc2.weight{e}"] = (h, m.expert)
    return out
