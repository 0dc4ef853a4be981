"""Decoders as trainers and engines store them, and by hand which part of each named tensor a rank has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from redist import ArrayType, Mesh, Weights

Shape = tuple[int, ...]
Slices = tuple[slice, ...]
QKV = "*.qkv_proj[{q}|{kv}|{kv}, :] = *.q_proj, *.k_proj, *.v_proj"
GATE_UP = "*.gate_up_proj[f|f, :] = *.gate_proj, *.up_proj"
EXPERTS = (
    "*.w13[e, f|f, :] = *.experts.{e}.gate_proj, *.experts.{e}.up_proj",
    "*.w2[e, :, :] = *.experts.{e}.down_proj",
)
"""Rules of what engines store."""
BY_COLUMNS = ("o_proj", "down_proj")
"""Tensors that tensor parallelism cuts by what they take."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """The sizes of a model; ``experts`` is 0 where every layer is dense. All tensors are bf16."""

    layers: int
    hidden: int
    q: int
    kv: int
    inner: int
    vocabulary: int
    experts: int = 0

    @cache  # noqa: B019  (there are few)
    def shapes(self) -> dict[str, Shape]:
        """The named tensors, as checkpoints have them."""
        h, f = self.hidden, self.inner
        ends: Shape = (self.vocabulary, h)
        found: dict[str, Shape] = {"embed_tokens": ends, "lm_head": ends, "norm": (h,)}
        for k in range(self.layers):
            at = f"layers.{k}"
            found |= {f"{at}.{name}": (h,) for name in ("input_norm", "mlp_norm")}
            found |= {f"{at}.q_proj": (self.q, h), f"{at}.k_proj": (self.kv, h),
                      f"{at}.v_proj": (self.kv, h), f"{at}.o_proj": (h, self.q)}  # fmt: skip
            inner = [f"{at}.mlp"]
            if self.experts:
                found[f"{at}.router"] = (self.experts, h)
                inner = [f"{at}.experts.{e}" for e in range(self.experts)]
            for mlp in inner:
                found |= {f"{mlp}.gate_proj": (f, h), f"{mlp}.up_proj": (f, h)}
                found[f"{mlp}.down_proj"] = (h, f)
        return found

    @property
    def n_bytes(self) -> int:
        """All of it."""
        return sum(2 * math.prod(shape) for shape in self.shapes().values())

    def with_bytes(self, n_bytes: int) -> Decoder:
        """The same with as many layers as make about so many bytes.

        >>> 0.9 < SMALL.with_bytes(2**31).n_bytes / 2**31 < 1.1
        True
        """
        one, two = (replace(self, layers=k).n_bytes for k in (1, 2))
        return replace(self, layers=max(1, round((n_bytes - 2 * one + two) / (two - one))))

    # As trainers store them

    def trained(self, mesh: Mesh) -> Weights:
        """Named tensors: rows over ``dp``, of what an axis ``tp`` leaves; experts on single ranks."""
        types = {}
        known: dict[tuple[str, Mesh], ArrayType] = {}
        for name, shape in self.shapes().items():
            where, cuts = mesh, _trained_cuts(name, len(shape), "tp" in dict(mesh.axes))
            if ".experts." in name:
                where, cuts = Mesh(ranks=[self._owner(name, mesh)]), [[] for _ in shape]
            pairs = zip(shape, cuts, strict=True)
            dims = (f"{n}{{{','.join(cut)}}}" if cut else f"{n}" for n, cut in pairs)
            key = f"bf16[{', '.join(dims)}]", where
            if key not in known:
                known[key] = ArrayType.parse(*key)
            types[name] = known[key]
        return Weights(types)

    def trained_part(self, name: str, mesh: Mesh, rank: int) -> Slices | None:
        """The part of a named tensor that a rank of the trainer has, by hand."""
        shape = self.shapes()[name]
        if ".experts." in name:
            return (slice(None), slice(None)) if self._owner(name, mesh) == rank else None
        sizes = dict(mesh.axes)
        place = mesh.ranks.index(rank)
        at = {"dp": place // sizes.get("tp", 1), "tp": place % sizes.get("tp", 1)}
        out = []
        for n, cut in zip(shape, _trained_cuts(name, len(shape), "tp" in sizes), strict=True):
            lo, size = 0, n
            for axis in cut:
                size //= sizes[axis]
                lo += at[axis] * size
            out.append(slice(lo, lo + size))
        return tuple(out)

    def _owner(self, name: str, mesh: Mesh) -> int:
        expert = int(name.split(".")[3])
        return int(mesh.ranks[expert * len(mesh.ranks) // self.experts])

    # As engines store them

    def served(self, mesh: Mesh) -> Weights:
        """Fused tensors under tensor parallelism; experts stacked."""
        q, kv, f, e, h = self.q, self.kv, self.inner, self.experts, self.hidden
        layouts: dict[str, Any] = {
            "*.qkv_proj": f"bf16[{q}{{tp}}+2*{kv}{{tp}}, {h}]", "*.o_proj": "{}, {tp}",
            "embed_tokens": "{tp}, {}", "lm_head": "{tp}, {}",
        }  # fmt: skip
        if e:
            layouts["*.w13"] = f"bf16[{e}, 2*{f}{{tp}}, {h}]"
            layouts["*.w2"] = f"bf16[{e}, {h}, {f}{{tp}}]"
        else:
            layouts |= {"*.gate_up_proj": f"bf16[2*{f}{{tp}}, {h}]", "*.down_proj": "{}, {tp}"}
        rules = [QKV.format(q=q, kv=kv), *(EXPERTS if e else [GATE_UP])]
        return Weights.declare({**layouts, "*": None}, mesh, names=rules)

    def served_part(self, name: str, tp: int, place: int) -> tuple[str, Slices, Slices]:
        """Where an engine's loader puts a named tensor: stored name, part of the tile, part of the tensor."""
        shape = self.shapes()[name]
        at, _, kind = name.rpartition(".")
        every = slice(None)
        if len(shape) == 1 or kind == "router":
            return name, (every,) * len(shape), (every,) * len(shape)
        dim = 1 if kind in BY_COLUMNS else 0
        n = shape[dim] // tp
        cut = slice(place * n, (place + 1) * n)
        part: Slices = (every, cut) if dim else (cut, every)
        q, kv = self.q // tp, self.kv // tp
        start = {"k_proj": q, "v_proj": q + kv, "up_proj": n}.get(kind, 0)
        rows = slice(start, start + n)
        if ".experts." in name:
            stem, _, expert = at.partition(".experts.")
            e = int(expert)
            stored = f"{stem}.w2" if dim else f"{stem}.w13"
            return stored, (slice(e, e + 1), every if dim else rows, every), part
        fused = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj",
                 "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}  # fmt: skip
        stored = f"{at}.{fused[kind]}" if kind in fused else name
        return stored, (rows, every) if kind in fused else (every, every), part


def _trained_cuts(name: str, n_dims: int, has_tp: bool) -> list[list[str]]:
    """The axes that cut each dim: FSDP cuts the rows of what tensor parallelism leaves of them."""
    kind = name.rpartition(".")[2]
    if n_dims == 1 or kind == "router" or not has_tp:
        return [["dp"], *[[] for _ in range(n_dims - 1)]]
    return [["dp"], ["tp"]] if kind in BY_COLUMNS else [["tp", "dp"], []]


TINY = Decoder(1, 256, 256, 64, 1024, 4096)
SMALL = Decoder(1, 2048, 2048, 512, 8192, 32768)
"""Whose layers are repeated to make some bytes."""
DECODERS = {
    "14B": Decoder(40, 5120, 5120, 1024, 17408, 151936),
    "30B": Decoder(48, 2048, 4096, 512, 768, 151936, 128),
}
"""As Qwen3-14B and Qwen3-30B-A3B are."""


BLOCK = 2**24
"""Elements that are made at once."""


def train(decoder: Decoder, tiles: Mapping[str, Any], mesh: Mesh, rank: int, version: int) -> None:
    """**Local.** Write a version into what a rank of the trainer has: every element is another one."""
    for name, tile in tiles.items():
        part = decoder.trained_part(name, mesh, rank)
        assert part is not None
        for rows, found in blocks(tile, name, decoder.shapes()[name], part, version):
            rows.copy_(found)


def has_version(
    decoder: Decoder, tiles: Mapping[str, Any], place: int, tp: int, version: int
) -> bool:
    """**Local.** Whether a rank of the engine has a version, bit for bit."""
    return all(
        rows.equal(found)
        for name, stored, to, of in parts_of(decoder, place, tp)
        for rows, found in blocks(tiles[stored][to], name, decoder.shapes()[name], of, version)
    )


def blocks(
    there: Any, name: str, shape: Shape, part: Slices, version: int
) -> Iterator[tuple[Any, Any]]:
    """Rows of a tensor's part, as 16-bit integers, and what they hold of a version; all on one device.

    Elements differ within a tensor, between tensors and between versions.
    """
    import torch

    seed = sum((k + 1) * ord(letter) for k, letter in enumerate(name)) + 7919 * version
    ranges = [range(*cut.indices(n)) for cut, n in zip(part, shape, strict=True)]
    rows, columns = ranges[0], (ranges[1] if len(shape) > 1 else range(1))
    table = there.view(torch.int16)
    while table.ndim > 2:
        table = table.squeeze(0)
    if table.ndim == 1:
        table = table.unsqueeze(1)
    width = shape[1] if len(shape) > 1 else 1
    j = torch.arange(columns.start, columns.stop, dtype=torch.int32, device=there.device)
    step = max(1, BLOCK // len(columns))
    for lo in range(rows.start, rows.stop, step):
        hi = min(rows.stop, lo + step)
        i = torch.arange(lo, hi, dtype=torch.int32, device=there.device)[:, None] * width + j
        found = ((i * 40503 + seed * 2654) >> 3).to(torch.int16)
        yield table[lo - rows.start : hi - rows.start], found


def parts_of(decoder: Decoder, rank: int, tp: int) -> Iterator[tuple[str, str, Slices, Slices]]:
    """What a rank of the engine holds: named tensor, stored tensor, part of the tile, part of the tensor."""
    for name in decoder.shapes():
        yield name, *decoder.served_part(name, tp, rank)
