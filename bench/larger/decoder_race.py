"""``python -m bench larger decoder``: a decoder of 7 billion weights on a GPU, in a part of its memory.

The functions of ``examples/decoder.py`` as programs, with PyTorch's attention on the tiles: with all weights
there, and within a limit. Beside them the same in PyTorch, eager, with all weights there and offloaded
by accelerate. A way that fails is a row without a time.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from bench.gpu.copies import libraries, need_gpu
from bench.larger.decoder_rivals import decoder_of, offloaded, runs
from bench.layouts.workload import error_of
from bench.report.figures import met, quartiles, timed
from bench.report.job import say
from bench.report.jobs import found_by, on_ranks
from bench.report.report import Row, Table, Tables
from examples import decoder
from examples.decoder import Shape
from redist import Mesh, pgas
from redist.pgas.memory import DEVICE
from redist.pgas.programs.compile import limit_in_force
from redist.pgas.programs.signature import sign
from redist.runtime.cuda.arrays import to_host, wait_for_gpu
from redist.runtime.cuda.pinned_store import PinnedStore
from redist.text.units import format_bytes

ALONE, TORCH, ACCELERATE = "all there", "PyTorch, all there", "accelerate, pinned"
PLAIN = "all there, attention in pgas"
FIRST, LINK, LORA = "first token", "first token, few tokens", "LoRA step"
PARTS = {"first": FIRST, "link": LINK, "lora": LORA}
LIMITS = {FIRST: {0.25: 1, 0.10: 2}, LINK: {0.25: 1, 0.10: 1}, LORA: {0.35: 1}}
"""By what is measured: shares of the memory, and into how many parts sequences are cut there."""
AT_MOST = {(FIRST, 0.25): 1.10, (FIRST, 0.10): 1.30, (LORA, 0.35): 1.15}
"""Aims beside all weights there."""
OF_TORCH, OF_LINK, OF_ACCELERATE, WAITED = 1 / 0.8, 1.15, 1.5, 0.05
"""Aims: of PyTorch's time, of the link's alone, times as fast as accelerate, share of time lost."""
ERROR = {FIRST: 5e-2, LINK: 5e-2, LORA: 1e-1}
"""What results may differ by, beside the largest, in bf16 by other kernels."""
Way = Callable[[], Any]


def run(
    parts: str = "first,link,lora", layers: int = 32, width: int = 4096, hidden: int = 11008, heads: int = 32,
    groups: int = 8, vocabulary: int = 32000, sequences: int = 4, tokens: int = 4096, repeat: int = 5,
    rivals: str = "torch,accelerate", limits: str = "",
) -> Tables:  # fmt: skip
    """Measure on one rank; needs CuPy and PyTorch, and accelerate for its row.

    parts: of first (a batch of sequences), link (one sequence), lora; limits: shares of the memory, if
    others, each with the parts that sequences are cut into, as in 0.25/1,0.1/2; rivals: of torch,
    accelerate, plain.
    """
    need_gpu()
    sizes = [layers, width, hidden, heads, groups, vocabulary]
    options: dict[str, Any] = {"sizes": sizes, "batch": [sequences, tokens], "repeat": repeat}
    cuts = [one.split("/") for one in limits.split(",") if one]
    shares = [(float(share), int(n_cut)) for share, n_cut in cuts]
    more: dict[str, Any] = {"rivals": rivals.split(","), "limits": shares}
    start = on_ranks(1, one_thread=False)
    asked = parts.split(",")
    return table(found_by(start, "bench.larger.decoder_race", parts=asked, **options, **more))


def measure(
    parts: list[str], sizes: list[int], batch: list[int], repeat: int, rivals: list[str],
    limits: list[tuple[float, int]],
) -> dict[str, Any]:  # fmt: skip
    """**Local.** All parts, one after another."""
    shape = Shape(*sizes)
    rate = link_rate()
    say(f"larger: {libraries()}; link {rate / 1e9:.1f} GB/s")
    rows: list[dict[str, Any]] = []
    for part in parts:
        race = Race(shape, PARTS[part], (1 if part == "link" else batch[0], batch[1]), repeat, rate)
        rows += race.all_ways(rivals, limits)
        del race
        free()
    return {"sizes": sizes, "libraries": libraries(), "link": rate, "rows": rows}


class Values:
    """What a call is given: weights in bf16 on the GPU, the same whenever they are made."""

    def __init__(self, shape: Shape, what: str, batch: tuple[int, int], n_parts: int) -> None:
        import cupy

        self._draw = cupy.random.default_rng(7)
        self.layers = [self._weights(shape.layer()) for _ in range(shape.layers)]
        self.ends = self._weights(shape.ends())
        x = self._made((*batch, shape.width), 1.0)
        each = batch[0] // n_parts
        self.parts = [_new(x[at : at + each]) for at in range(0, batch[0], each)]
        turn = decoder.positions(shape, batch[1], self.parts[0])
        model = self.layers, self.ends, turn, shape
        self.given: tuple[Any, ...] = (self.parts, *model, decoder.by_torch)
        self.function: Callable[..., Any] = decoder.first_token
        if what == LORA:
            adapters = [self._weights(shape.adapters()) for _ in range(shape.layers)]
            want = self._made((*batch, shape.width), shape.width**-0.5)
            wanted = [_new(want[at : at + each]) for at in range(0, batch[0], each)]
            attend = partial(decoder.by_torch, learns=True)
            self.given = (adapters, self.parts, wanted, *model, attend)
            self.function = pgas.value_and_grad(decoder.loss)

    def _weights(self, sides: dict[str, tuple[int, ...]]) -> dict[str, Any]:
        return {name: _new(self._made(one, one[0] ** -0.5)) for name, one in sides.items()}

    def _made(self, shape: tuple[int, ...], scale: float) -> Any:
        import cupy

        bf16 = pgas.bfloat16
        if len(shape) == 1:
            return cupy.ones(shape, np.float32).astype(bf16)
        values = self._draw.standard_normal(shape, dtype=np.float32)
        values *= np.float32(scale)
        return values.astype(bf16)

    def tensors(self) -> tuple[list[dict[str, Any]], dict[str, Any], Any]:
        """The weights of the layers, those behind them, and the input, as tensors of the same memory."""
        import torch

        def of(weights: Mapping[str, Any]) -> dict[str, Any]:
            return {name: torch.from_dlpack(one.tile) for name, one in weights.items()}

        (x,) = self.parts
        return [of(one) for one in self.layers], of(self.ends), torch.from_dlpack(x.tile)


def _new(tile: Any) -> Any:
    """An array that can be put away: nobody else has its tile."""
    sides = ", ".join(map(str, tile.shape))
    return pgas.from_local(tile, f"bf16[{sides}]", mesh=Mesh(x=1)).copy()


class Race:
    """One part: all ways, each beside all weights there, in turns."""

    def __init__(
        self, shape: Shape, what: str, batch: tuple[int, int], repeat: int, rate: float
    ) -> None:
        self.shape, self.what, self.batch, self.repeat, self.rate = shape, what, batch, repeat, rate
        self.label = f"{what}, {batch[0]} x {batch[1]} tokens"
        self.rows: list[dict[str, Any]] = []
        self.want: list[Any] = []

    def all_ways(self, rivals: list[str], limits: list[tuple[float, int]]) -> list[dict[str, Any]]:
        """**Local.** The rows of this part."""
        shares = limits or list(LIMITS[self.what].items())
        values = Values(self.shape, self.what, self.batch, 1)
        alone: Any = pgas.program(cache=False)(values.function)
        base: Way = partial(alone, *values.given)
        if not self._try(ALONE, base, None, {}):
            return self.rows
        unbound: Any = pgas.program(limit=2**50, spill="host")(values.function)
        peak = unbound.plan(*values.given).unlimited_bytes
        say(f"larger: {self.label}: {format_bytes(peak)} without a limit")
        for row in self.rows:
            row["about"] = f"{format_bytes(peak)} without a limit"
        if self.what != LORA:
            if "plain" in rivals:
                plain = partial(alone, *values.given[:-1], decoder.attention)
                self._try(PLAIN, plain, base, {})
            if "torch" in rivals:
                self._guard(TORCH, lambda: self._torch(values, base))
            if "accelerate" in rivals:
                self._guard(ACCELERATE, lambda: self._accelerate(values, base))
        for share, n_cut in shares:
            self._guard(f"within {share:.0%}", partial(self._within, share, n_cut, peak, base))
        return self.rows

    def _torch(self, values: Values, base: Way) -> None:
        layers, ends, x = values.tensors()
        self._try(TORCH, runs(decoder_of(self.shape, layers, ends), x), base, {})

    def _accelerate(self, values: Values, base: Way) -> None:
        import accelerate

        layers, ends, x = values.tensors()
        model = offloaded(self.shape, layers, ends)
        about = {"about": f"accelerate {accelerate.__version__}"}
        self._try(ACCELERATE, runs(model, x), base, about, repeat=max(2, self.repeat // 2))

    def _within(self, share: float, n_cut: int, peak: int, base: Way) -> None:
        free()
        others = DEVICE.live_bytes
        values = Values(self.shape, self.what, self.batch, n_cut)
        limit = others + int(share * peak)
        step: Any = pgas.program(limit=limit, spill="host")(values.function)
        name = f"within {share:.0%}"
        seconds, _ = timed(lambda: _done(partial(step, *values.given)))
        say(f"larger: {self.label}: {name}: first call {seconds:.1f} s")
        told = step.timeline(*values.given)
        signature = sign(values.given, {})
        found = step.compiler.find(signature, limit_in_force(step.options), runs=True)
        fitted = found.fitted
        loaded, stored = (fitted.graph.moved_bytes[kind] for kind in ("load", "store"))
        waited = told.waited_s(0) / told.seconds
        about = (
            f"{format_bytes(int(share * peak))}, sequences in {n_cut}; {format_bytes(loaded)} loaded, "
            f"{format_bytes(stored)} stored, modelled {fitted.clocked.time_ps / 1e9:.0f} ms, of which "
            f"{fitted.clocked.waited_share:.1%} waiting; {fitted.certificate}; planned and run for the first "
            f"time in {seconds:.0f} s"
        )
        more = {
            "share": share, "waited": waited, "link_s": loaded / self.rate, "about": about,
        }  # fmt: skip
        say(
            f"larger: {self.label}: {name}: waited {waited:.1%} of {told.seconds:.3f} s; {about}\n{told}"
        )
        del told, found, fitted, signature
        self._try(name, partial(step, *values.given), base, more)

    def _guard(self, name: str, work: Callable[[], None]) -> None:
        """**Local.** Do what a way needs; a row says why it cannot."""
        try:
            work()
        except Exception as error:
            self._failed(name, error)
        free()

    def _failed(self, name: str, error: Exception) -> None:
        traceback.print_exc()
        why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        say(f"larger: {self.label}: {name} failed: {why}")
        self.rows.append({"label": self.label, "what": self.what, "way": name, "failed": why[:300]})

    def _try(
        self, name: str, way: Way, base: Way | None, more: dict[str, Any], repeat: int | None = None
    ) -> bool:
        """**Local.** Compare results, then take turns with all weights there; whether that worked."""
        try:
            found = arrays_of(_done(way))
            if base is None:
                self.want = found
            error = error_of(found, self.want)
            del found
            times: list[float] = []
            beside: list[float] = []
            _done(way)
            for _ in range(repeat or self.repeat):
                times.append(timed(lambda: _done(way))[0])
                if base is not None:
                    beside.append(timed(lambda: _done(base))[0])
        except Exception as problem:
            self._failed(name, problem)
            return False
        row = {
            "label": self.label, "what": self.what, "way": name, "times": times, "error": error,
            "of_alone": [a / b for a, b in zip(times, beside, strict=False)], **more,
        }  # fmt: skip
        ratio = f", {np.median(row['of_alone']):.3f} of all there" if beside else ""
        say(
            f"larger: {self.label}: {name}: {1e3 * np.median(times):.1f} ms{ratio}, error {error:.1e}"
        )
        self.rows.append(row)
        return True


def _done(way: Way) -> Any:
    found = way()
    wait_for_gpu()
    return found


def arrays_of(found: Any) -> list[Any]:
    """**Local.** Results as arrays of NumPy in f32: logits, or the value and all gradients."""
    if hasattr(found, "detach"):
        return [found.float().cpu().numpy()]
    if isinstance(found, tuple):
        value, slopes = found
        arrays = [value, *(one for group in slopes for one in group.values())]
    else:
        arrays = [found]
    return [np.asarray(to_host(one.tile)).astype(np.float32) for one in arrays]


def free() -> None:
    """**Local.** Give memory back that nobody uses."""
    import cupy

    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    try:
        import torch
    except ImportError:
        return
    torch.cuda.empty_cache()


def link_rate(n_bytes: int = 2**28, repeats: int = 5) -> float:
    """**Local.** Bytes a second from pinned memory to the GPU, the best of several copies."""
    import cupy

    store = PinnedStore()
    space, out = store.take(n_bytes), cupy.empty(n_bytes, cupy.uint8)

    def copy() -> None:
        several = [store.read(space, out) for _ in range(4)]
        several[-1].wait()

    best = min(timed(copy)[0] for _ in range(repeats))
    store.close()
    return 4 * n_bytes / best


def table(data: Mapping[str, Any]) -> Tables:
    """Every way beside all weights there, with the aim that it has."""
    rows = data["rows"]
    lines, notes = [], []
    wrong = False
    for row in rows:
        wrong = wrong or ("failed" not in row and not row["error"] <= ERROR[row["what"]])
        if said := row.get("failed") or row.get("about"):
            notes.append(f"{row['label']}, {row['way']}: {said}")
        lines.append(_line(row, rows))
    layers, width, hidden, heads, groups, vocabulary = data["sizes"]
    title = (
        f"a decoder of {layers} layers, width {width}, hidden {hidden}, {heads} heads, {groups} of keys, "
        f"{vocabulary} words, bf16, as programs on one GPU; {data['libraries']}; link "
        f"{data['link'] / 1e9:.1f} GB/s"
    )
    notes.append("results are compared first; ratios are medians of those of every turn")
    return (Table.of("decoder", title, lines, *notes, keys=2, is_wrong=wrong),)


def _line(row: Mapping[str, Any], rows: list[Any]) -> Row:
    known = {"task": row["label"], "way": row["way"]}
    if "failed" in row:
        return {**dict.fromkeys(COLUMNS), **known, "reached": "failed"}
    low, middle, high = quartiles([1e3 * one for one in row["times"]])
    of_alone = float(np.median(row["of_alone"])) if row["of_alone"] else 1.0
    waited, linked = row.get("waited"), row.get("link_s")
    of_link = middle / 1e3 / linked if linked else None
    said: list[bool] = []
    aim = AT_MOST.get((row["what"], row.get("share", 0.0)))
    if aim is not None:
        said.append(of_alone <= aim)
    if row["what"] == FIRST and row.get("share") == 0.25:
        said.append(waited is not None and waited <= WAITED)
    if row["what"] == LINK and of_link is not None:
        aim, said = OF_LINK, [of_link <= OF_LINK]
    rival = next(
        (one for one in rows if one["way"] == ACCELERATE and one["label"] == row["label"]), None
    )
    gain = None
    if rival is not None and "times" in rival and "share" in row:
        gain = 1e3 * float(np.median(rival["times"])) / middle
        if row["share"] == 0.25:
            said.append(gain >= OF_ACCELERATE)
    if row["way"] == TORCH:
        aim, said = 1 / OF_TORCH, [1 / of_alone <= OF_TORCH]
    return {
        **known, "ms": middle, "quartiles": f"{low:.1f}-{high:.1f}",
        "of all there": of_alone, "of the link": of_link, "accelerate / way": gain,
        "waited": None if waited is None else f"{waited:.1%}", "aim": aim,
        "reached": met(all(said)) if said else None,
    }  # fmt: skip


COLUMNS = (
    "task", "way", "ms", "quartiles", "of all there", "of the link", "accelerate / way", "waited", "aim",
    "reached",
)  # fmt: skip
