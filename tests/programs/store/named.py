"""A Hugging Face folder of another writer, loaded into fused weights, cast, and saved back unfused.

As in ``mpirun -n 4 python -m tests.programs.store.named``.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import ArrayType, Mesh, pgas
from redist.layout.casts import cast
from redist.layout.dtype import DType
from redist.pgas.tiles.tiled import tile_in
from redist.store import load as loading
from tests.programs.together import main, run_named

COMM = MPI.COMM_WORLD
MESH = Mesh(dp=2, tp=COMM.size // 2) if COMM.size % 2 == 0 else Mesh(dp=1, tp=COMM.size)
HIDDEN, HEADS, KV, HEAD, LAYERS = 64, 8, 2, 16, 4
Q, K = HEADS * HEAD, KV * HEAD
RULES = f"""
*.qkv_proj.weight[{Q}|k|k, :] = *.q_proj.weight, *.k_proj.weight, *.v_proj.weight
*.gate_up.weight[f|f, :] = *.gate.weight, *.up.weight
"""


def hugging_face() -> dict[str, Any]:
    """Named tensors, as bits of bf16."""
    rng = np.random.default_rng(5)
    sizes = {
        "q_proj": (Q, HIDDEN),
        "k_proj": (K, HIDDEN),
        "v_proj": (K, HIDDEN),
        "o_proj": (HIDDEN, Q),
    }
    mlp = {"gate": (96, HIDDEN), "up": (96, HIDDEN), "down": (HIDDEN, 96)}
    found = {"embed.weight": (101, HIDDEN), "norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        found |= {f"layers.{i}.{name}.weight": shape for name, shape in (sizes | mlp).items()}
    f32, bf16 = DType.parse("f32"), DType.parse("bf16")
    return {
        name: cast(rng.normal(size=shape).astype("f4"), f32, bf16) for name, shape in found.items()
    }


def write_folder(folder: Path, tensors: dict[str, Any], n_files: int) -> int:
    """Write files as somebody else would; the bytes of all tensors."""
    names, index = sorted(tensors), {}
    for i in range(n_files):
        header, data = {}, b""
        file = f"model-{i + 1:05d}-of-{n_files:05d}.safetensors"
        for name in names[i::n_files]:
            one = tensors[name]
            header[name] = {
                "dtype": "BF16",
                "shape": list(one.shape),
                "data_offsets": [len(data), len(data) + one.nbytes],
            }
            data += one.tobytes()
            index[name] = file
        text = json.dumps(header).encode()
        (folder / file).write_bytes(len(text).to_bytes(8, "little") + text + data)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "config.json").write_text("{}")
    return sum(one.nbytes for one in tensors.values())


def fused(tensors: dict[str, Any]) -> dict[str, Any]:
    out = {name: one for name, one in tensors.items() if "layers" not in name}
    for i in range(LAYERS):
        own = {
            k: tensors[f"layers.{i}.{k}.weight"]
            for k in ("q_proj", "k_proj", "v_proj", "gate", "up")
        }
        out[f"layers.{i}.qkv_proj.weight"] = np.concatenate(
            [own["q_proj"], own["k_proj"], own["v_proj"]]
        )
        out[f"layers.{i}.gate_up.weight"] = np.concatenate([own["gate"], own["up"]])
        for k in ("o_proj", "down"):
            out[f"layers.{i}.{k}.weight"] = tensors[f"layers.{i}.{k}.weight"]
    return out


def types() -> dict[str, Any]:
    kv = f"{K}{{tp}}" if K % MESH.size("tp") == 0 else f"{K}"
    return {
        "*.qkv_proj.weight": f"{Q}{{tp}}+{kv}+{kv}, {{}}",
        "*.gate_up.weight": "2*96{tp}, {}",
        "*.o_proj.weight": "{}, {tp}",
        "*.down.weight": "{}, {tp}",
        "embed.weight": "{tp,dp}, {}",
        "norm.weight": "{}",
    }


FOLDER = Path()
"""Where files are; the program says."""
TENSORS = hugging_face()
TOTAL = sum(one.nbytes for one in TENSORS.values())


class CountingReader(loading.Reader):
    """Keeps how much was read."""

    counts: list[int] = []  # noqa: RUF012

    def finish(self, names: Any) -> None:
        super().finish(names)
        CountingReader.counts.append(self.bytes_read)


def own(values: Any, t: ArrayType) -> Any:
    spans = redist.spans_of(t, COMM.rank)
    assert spans is not None
    return values[np.ix_(*(np.concatenate([np.arange(*s) for s in dim]) for dim in spans))]


def held(one: Any) -> Any:
    """The tile, bf16 as the integers that it was made of."""
    tile = tile_in(one)
    return None if tile is None else tile.view(one.type.dtype.to_numpy())


def load_fused(read: str, **options: Any) -> dict[str, Any]:
    loading.Reader, before = CountingReader, loading.Reader  # type: ignore[misc]
    try:
        return redist.load(FOLDER / "hf", types(), mesh=MESH, names=RULES, read=read, **options)
    finally:
        loading.Reader = before  # type: ignore[misc]


def into_fused() -> str | None:
    """Tiles are those of literal concatenation; read once, every byte is read by one rank."""
    want = fused(TENSORS)
    for read in ("slices", "once", "auto"):
        found = load_fused(read)
        if {*found} != {*want}:
            return f"{read}: {sorted(found)}"
        for name, one in found.items():
            tile = held(one)
            if tile is None or not np.array_equal(tile, own(want[name], one.type)):
                return f"{read}: {name} as {one.type} has other values"
        total = COMM.allreduce(CountingReader.counts[-1])
        tiles = COMM.allreduce(sum(held(one).nbytes for one in found.values()))
        if (read == "once" and total != TOTAL) or not TOTAL <= total <= 2 * tiles:
            return f"{read}: {total} bytes were read, of {TOTAL} in files and {tiles} in tiles"
    return None


def unfused_again() -> str | None:
    """Saved with the same rules, by any ranks, the files are those of the plain tensors."""
    found = load_fused("auto")
    redist.save(FOLDER / "back.safetensors", found, names=RULES)
    t = {
        name: ArrayType(Mesh(x=1), DType.parse("bf16"), one.shape, ((),) * one.ndim)
        for name, one in TENSORS.items()
    }
    if COMM.rank == 0:
        plain = {name: (one, t[name]) for name, one in TENSORS.items()}
        redist.save(FOLDER / "plain.safetensors", plain, comm=MPI.COMM_SELF)
    COMM.Barrier()
    sums = [
        hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()
        for name in ("back.safetensors", "plain.safetensors")
    ]
    return None if sums[0] == sums[1] else "other bytes than the plain save"


def casts() -> str | None:
    """bf16 becomes f32 and back on the way; f64 is stored as f32."""
    bf16, f32 = DType.parse("bf16"), DType.parse("f32")
    found = load_fused("auto", dtype="f32")
    want = fused(TENSORS)
    for name, one in found.items():
        if one.type.dtype != f32 or not np.array_equal(
            held(one), cast(own(want[name], one.type), bf16, f32)
        ):
            return f"{name} is cast to something else"
    redist.save(FOLDER / "cast", found, names=RULES, dtype="bf16", shard_bytes="20KiB")
    back = redist.load(FOLDER / "cast", types(), mesh=MESH, names=RULES)
    for name, one in back.items():
        if one.type.dtype != bf16 or not np.array_equal(held(one), own(want[name], one.type)):
            return f"{name} is cast back to something else"
    wide = pgas.asarray(np.arange(7) / 3)
    redist.save(FOLDER / "w.safetensors", {"a": wide, "n": pgas.asarray(np.arange(3))}, dtype="f32")
    kinds = {name: str(one.dtype) for name, one in redist.stored(FOLDER / "w.safetensors").items()}
    return None if kinds == {"a": "f32", "n": "i64"} else f"dtypes are {kinds}"


def patterns() -> str | None:
    """Names and globs choose what is loaded; what matches nothing is an error on all ranks."""
    some = redist.load(FOLDER / "hf", {"layers.0.*": None, "norm.weight": "{}"}, mesh=MESH)
    if len(some) != 8:
        return f"{sorted(some)} were loaded"
    for given, says in (
        ({"layers.9.*": None}, "matches none of 30 arrays"),
        ({"norm.weight": "{tp}, {}"}, "2 dims"),
        ({"norm.weight": "{nope}"}, "nope"),
        ("{tp}", "need a dict"),
    ):
        try:
            redist.load(FOLDER / "hf", given, mesh=MESH)
        except redist.RedistError as error:
            if says not in str(error):
                return f"{given}: {error}"
        else:
            return f"{given} was loaded"
    return None


def disagreement() -> str | None:
    """Ranks that give other arrays, types or paths get one error, and no file appears."""
    if COMM.size == 1:
        return None
    odd = COMM.rank == COMM.size - 1
    a = pgas.asarray(np.arange(8.0))
    for call in (
        lambda: redist.save(FOLDER / "odd.safetensors", {"b" if odd else "a": a}),
        lambda: redist.save(FOLDER / "odd.safetensors", {"a": a}, meta={"rank": COMM.rank}),
        lambda: redist.save(FOLDER / "odd.safetensors", {"a": a, **({"b": 1} if odd else {})}),
        lambda: redist.load(FOLDER / "hf", {"norm.weight": "{}" if odd else "{dp,tp}"}, mesh=MESH),
    ):
        try:
            call()
        except redist.RedistError as error:
            said = COMM.allgather(str(error))
        else:
            said = COMM.allgather("nothing")
        if len(set(said)) > 1 or "nothing" in said:
            return f"ranks say {said}"
    return "a file was made" if (FOLDER / "odd.safetensors").exists() else None


PROGRAMS = {
    "into fused": into_fused,
    "unfused again": unfused_again,
    "casts": casts,
    "patterns": patterns,
    "disagreement": disagreement,
}
CHECKS = tuple(PROGRAMS)


def program() -> int:
    global FOLDER
    with tempfile.TemporaryDirectory() as name:
        FOLDER = Path(COMM.bcast(name))
        if COMM.rank == 0:
            (FOLDER / "hf").mkdir()
            write_folder(FOLDER / "hf", TENSORS, 4)
        COMM.Barrier()
        status = run_named(PROGRAMS)
        COMM.Barrier()
    return status


if __name__ == "__main__":
    main(program)
