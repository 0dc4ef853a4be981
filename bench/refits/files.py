"""Weights from two files as nccl_m2n's benchmarks have them: tensors of a model, sizes of a system.

A model file has a shape and a dtype by name; a system file has sizes of tp, cp, ep, pp and dp for both
sides. Training stores named tensors, engines fused ones: queries, keys and values; gate and up; experts in
one tensor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redist import ArrayType, Mesh, Weights
from redist.names import Names

DTYPES = {"BF16": "bf16", "F32": "f32", "F16": "f16", "F8_E4M3": "f8e4m3fn"}
ROWS = r"\.(q_proj|k_proj|v_proj|q_b_proj|kv_b_proj|gate_proj|up_proj)\.|embed_tokens|lm_head"
COLUMNS = r"\.(o_proj|down_proj)\."
LAYER = re.compile(r"\.layers\.(\d+)\.")
EXPERT = re.compile(r"\.experts\.(\d+)\.")


def read_sides(model: Path, system: Path) -> tuple[Weights, Weights]:
    """Both sides; the ranks of the second follow those of the first."""
    tensors = {
        name: (tuple(one["shape"]), DTYPES[one["dtype"]])
        for name, one in json.loads(model.read_text()).items()
    }
    sizes = json.loads(system.read_text())
    return _training(tensors, sizes["train"]), _engine(tensors, sizes)


def _text(dtype: str, shape: tuple[int, ...], cuts: Mapping[int, str]) -> str:
    dims = ", ".join(f"{n}{cuts.get(d, '')}" for d, n in enumerate(shape))
    return f"{dtype}[{dims}]"


def _training(tensors: Mapping[str, Any], sizes: Mapping[str, int]) -> Weights:
    n, pp, tp, ep = (sizes[k] for k in ("num_gpus", "pp_size", "tp_size", "ep_size"))
    mesh = Mesh(pp=pp, copy=n // pp // tp, tp=tp)
    layers = 1 + max((int(m[1]) for name in tensors if (m := LAYER.search(name))), default=0)
    experts = 1 + max((int(m[1]) for name in tensors if (m := EXPERT.search(name))), default=0)
    types: dict[str, Any] = {}
    stages = [mesh.at(pp=stage) for stage in range(pp)]
    groups = [Mesh(ep=ep, copy=n // pp // ep, ranks=stage.ranks) for stage in stages]
    owners = [[group.at(ep=e) for e in range(ep)] for group in groups]

    for name, (shape, dtype) in tensors.items():
        found = LAYER.search(name)
        last = pp - 1 if "embed" not in name else 0
        stage = int(found[1]) * pp // layers if found else last
        expert = EXPERT.search(name)
        where = owners[stage][int(expert[1]) * ep // experts] if expert else stages[stage]
        types[name] = ArrayType.parse(
            _text(dtype, shape, {} if expert else _cuts(name, shape, tp)), where
        )
    return Weights(types)


def _cuts(name: str, shape: tuple[int, ...], tp: int) -> dict[int, str]:
    if tp == 1 or len(shape) < 2:
        return {}
    dim = 0 if re.search(ROWS, name) else 1 if re.search(COLUMNS, name) else None
    return {} if dim is None else {dim: "{tp}"}


def _engine(tensors: Mapping[str, Any], sizes: Mapping[str, Any]) -> Weights:
    serve = sizes["generation"]
    first, n, tp = sizes["train"]["num_gpus"], serve["num_gpus"], serve["tp_size"]
    mesh = Mesh({"dp": n // tp, "tp": tp}, ranks=range(first, first + n))
    rules = _rules(tensors)
    names = Names(rules)
    types: dict[str, str] = {}
    known = {name: shape for name, (shape, _) in tensors.items()}
    for name, shape in names.stored_from(known).items():
        dtype = tensors[names.parts_of(name, shape, known)[0].name][1]
        cuts = _cuts(name, shape, tp)
        text = _text(dtype, shape, cuts)
        cut = "{tp}" if tp > 1 else ""
        if ".qkv_proj." in name:
            parts = [part.shape[0] for part in names.parts_of(name, shape, known)]
            text = f"{dtype}[{'+'.join(f'{p}{cut}' for p in parts)}, {shape[1]}]"
        elif "gate_up_proj." in name:
            text = f"{dtype}[2*{shape[0] // 2}{cut}, {shape[1]}]"
        elif "experts.w13" in name:
            text = f"{dtype}[{shape[0]}, 2*{shape[1] // 2}{cut}, {shape[2]}]"
        elif "experts.w2" in name:
            text = f"{dtype}[{shape[0]}, {shape[1]}, {shape[2]}{cut}]"
        types[name] = text
    return Weights(types, mesh, names=names)


def _rules(tensors: Mapping[str, Any]) -> list[str]:
    """Rules for what there is, with sizes from the shapes."""
    some = {re.sub(r"\.\d+\.", ".N.", name): shape for name, (shape, _) in tensors.items()}
    out = []
    for end in ("weight", "weight_scale_inv", "bias"):
        q, k = (some.get(f"model.layers.N.self_attn.{x}_proj.{end}") for x in "qk")
        if q and k:
            out.append(
                f"*.qkv_proj.{end}[{q[0]}|{k[0]}|{k[0]}{', :' * (len(q) - 1)}] = *.q_proj.{end}, "
                f"*.k_proj.{end}, *.v_proj.{end}"
            )
        for mlp in ("mlp", "mlp.shared_experts"):
            if f"model.layers.N.{mlp}.gate_proj.{end}" in some:
                out.append(
                    f"*.{mlp}.gate_up_proj.{end}[f|f, :] = *.{mlp}.gate_proj.{end}, *.{mlp}.up_proj.{end}"
                )
        if f"model.layers.N.mlp.experts.N.gate_proj.{end}" in some:
            at = "*.experts.{e}."
            out.append(f"*.experts.w13_{end}[e, f|f, :] = {at}gate_proj.{end}, {at}up_proj.{end}")
            out.append(f"*.experts.w2_{end}[e, :, :] = {at}down_proj.{end}")
    return out
