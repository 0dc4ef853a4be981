"""A folder from Hugging Face as one side: shapes from its headers, rules from its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import redist
from redist import Mesh, Weights
from redist.names.families import rules_for
from tests.problems.refits import Machine

Array = NDArray[Any]
HIDDEN, HEADS, KEYS, D, F, VOCAB, LAYERS = 16, 8, 2, 4, 24, 70, 2


def tensors() -> dict[str, Array]:
    """Weights of a small Llama, as bits of bf16; no two elements are equal."""
    sizes = {
        "self_attn.q_proj": (HEADS * D, HIDDEN), "self_attn.k_proj": (KEYS * D, HIDDEN),
        "self_attn.v_proj": (KEYS * D, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * D),
        "mlp.gate_proj": (F, HIDDEN), "mlp.up_proj": (F, HIDDEN), "mlp.down_proj": (HIDDEN, F),
        "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,),
    }  # fmt: skip
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    shapes |= {f"model.layers.{n}.{x}.weight": s for n in range(LAYERS) for x, s in sizes.items()}
    shapes["lm_head.weight"] = (VOCAB, HIDDEN)
    found, at = {}, 1
    for name, shape in shapes.items():
        found[name] = np.arange(at, at + int(np.prod(shape)), dtype="u2").reshape(shape)
        at += found[name].size
    return found


def write_folder(folder: Path, named: dict[str, Array], n_files: int) -> None:
    """Files, an index and a configuration, byte by byte."""
    index = {}
    for i in range(n_files):
        header, data = {}, b""
        file = f"model-{i + 1:05d}-of-{n_files:05d}.safetensors"
        for name in sorted(named)[i::n_files]:
            ends = [len(data), len(data) + named[name].nbytes]
            header[name] = {"dtype": "BF16", "shape": list(named[name].shape), "data_offsets": ends}
            data += named[name].tobytes()
            index[name] = file
        text = json.dumps(header).encode()
        (folder / file).write_bytes(len(text).to_bytes(8, "little") + text + data)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    config = {
        "model_type": "llama", "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "vocab_size": VOCAB,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def test_a_trainer_of_a_folder_to_an_engine(tmp_path: Path) -> None:
    named = tensors()
    write_folder(tmp_path, named, 3)
    train = Weights.declare(
        {"*norm*": None, "*": "{dp}, {}"}, Mesh(dp=3), shapes=redist.stored(tmp_path)
    )
    assert (
        train.stored == tuple(sorted(named))
        and train.types["model.norm.weight"].dtype.name == "bf16"
    )
    serve = Weights.declare(
        {
            "*.qkv_proj.weight": f"{HEADS * D}{{tp}}+2*{KEYS * D}{{tp}}, {{}}",
            "*.gate_up_proj.weight": f"2*{F}{{tp}}, {{}}", "*.o_proj.weight": "{}, {tp}",
            "*.down_proj.weight": "{}, {tp}", "*norm*": None, "*": "{tp}, {}",
        },
        Mesh({"tp": 2}, ranks=[3, 4]), names=rules_for(tmp_path, "vllm"),
    )  # fmt: skip
    plan = redist.refit(train, serve)
    tiles = {}
    for name, w in named.items():
        for r in range(3):
            rows = slice(r * -(-len(w) // 3), (r + 1) * -(-len(w) // 3))
            tiles[r, name] = w if "norm" in name else np.ascontiguousarray(w[rows])
    wanted = {(3 + r, name): tile for r in range(2) for name, tile in engine(named, r).items()}
    assert set(plan.target.stored) == {name for _, name in wanted}
    machine = Machine(tiles, wanted)
    machine.carry_out(plan, plan.ranks)
    for key, tile in wanted.items():
        assert np.array_equal(machine.tiles[key].view("u2").reshape(tile.shape), tile), key
    assert machine.received == plan.received_bytes == plan.lower_bound_bytes


def engine(named: dict[str, Array], r: int) -> dict[str, Array]:
    """What one of two ranks of an engine stores, by literal slices."""

    def half(w: Array, dim: int = 0) -> Array:
        return np.ascontiguousarray(np.split(w, 2, axis=dim)[r])

    found: dict[str, Array] = {}
    for n in range(LAYERS):
        of = {x: named[f"model.layers.{n}.{x}.weight"] for x in
              (*(f"self_attn.{k}_proj" for k in "qkvo"), *(f"mlp.{k}_proj" for k in ("gate", "up", "down")),
               "input_layernorm", "post_attention_layernorm")}  # fmt: skip
        own = {
            "self_attn.qkv_proj": np.concatenate([half(of[f"self_attn.{k}_proj"]) for k in "qkv"]),
            "self_attn.o_proj": half(of["self_attn.o_proj"], 1),
            "mlp.gate_up_proj": np.concatenate(
                [half(of["mlp.gate_proj"]), half(of["mlp.up_proj"])]
            ),
            "mlp.down_proj": half(of["mlp.down_proj"], 1),
            **{x: of[x] for x in ("input_layernorm", "post_attention_layernorm")},
        }
        found |= {f"model.layers.{n}.{x}.weight": w for x, w in own.items()}
    padding = np.zeros((128 - VOCAB, HIDDEN), "u2")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        found[name] = half(np.concatenate([named[name], padding]))
    return found | {"model.norm.weight": named["model.norm.weight"]}
