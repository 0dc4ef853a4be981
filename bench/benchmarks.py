"""All benchmarks: the module of each, what it needs, and which of its tables pages show."""

from __future__ import annotations

from dataclasses import dataclass

from bench.problems.installed import why_absent


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A module whose ``run(**options)`` makes tables; it needs one of some other modules, if any.

    ``tables`` are those that pages show as they are. ``minutes`` is what it takes on two cores with the
    ``words`` of ``python -m bench figures``, which leaves out those without.
    """

    module: str
    tables: tuple[str, ...] = ()
    minutes: float = 0.0
    needs: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def why_not(self) -> str | None:
        """What is not installed here; None if it can run."""
        here = not self.needs or any(why_absent(one) is None for one in self.needs)
        return None if here else f"{' or '.join(self.needs)} is not installed"


BENCHMARKS = {
    "comparison": Benchmark("bench.plans.comparison", minutes=1),
    "quality": Benchmark("bench.plans.quality", ("received", "memory"), 5, words=("--n", "500")),
    "planning": Benchmark(
        "bench.plans.planning", ("random", "repeated", "devices"), 8, words=("--n", "1000")
    ),
    "collectives": Benchmark("bench.plans.collectives", ("random", "devices"), 20),
    "hierarchy": Benchmark("bench.plans.hierarchy", ("large-tiles", "1-KiB-tiles"), 2),
    "products": Benchmark("bench.plans.products", ("received",), 0.5),
    "xla": Benchmark("bench.xla.compare", ("received",), 5, ("jax",)),
    "jax": Benchmark("bench.xla.race", ("random",), 8, ("jax",)),
    "torch": Benchmark("bench.pytorch.race", ("summary", "moves", "refit"), 6, ("torch",)),
    "lowered": Benchmark("bench.xla.lowered", ("summary", "losses"), 7, ("jax",)),
    "examples": Benchmark("bench.examples.race", minutes=3),
    "refit": Benchmark("bench.refits.race", ("handed-over",), 5, ("torch",)),
    "refit planning": Benchmark("bench.refits.planning", ("planning", "files"), 3),
    "refit judge": Benchmark("bench.refits.judging", ("judged",), 3),
    "segments": Benchmark("bench.examples.segments", ("moves",), 1),
    "store": Benchmark("bench.examples.store", ("checkpoints",), 3),
    "programs": Benchmark(
        "bench.programs.race", ("here", "lists", "apart", "counted", "overlap", "reads"), 3
    ),
    "layouts": Benchmark("bench.layouts.race", ("received", "times"), 3),
    "large": Benchmark("bench.layouts.large", ("planning", "by-hand"), 1.5),
    "ranking": Benchmark("bench.layouts.ranking", ("hosts", "node"), 5),
    "rivals": Benchmark(
        "bench.layouts.rivals", ("programs",), 8, ("jax", "torch", "heat", "dask")
    ),
    "joined": Benchmark("bench.joined", ("moves",), 1),
    "overhead": Benchmark("bench.plans.overhead", ("operations",), 0.5),
    "copies": Benchmark("bench.copies.race", ("kernels",), 1),
}  # fmt: skip
"""What ``python -m bench`` alone runs."""
OTHERS = {
    "cluster": Benchmark("bench.cluster", ("4x2", "8x1")),
    "scale": Benchmark("bench.scale.command", ("check", "others", "fat-tree", "gpus")),
    "clustering": Benchmark(
        "bench.clustering.race", ("ranks-1", "ranks-2", "memory-1", "memory-2"), needs=("sklearn",)
    ),
    "clustering linear": Benchmark("bench.clustering.linear", ("linear",), needs=("sklearn",)),
    "clustering rivals": Benchmark("bench.clustering.rivals", ("rivals",)),
    "clustering visits": Benchmark("bench.clustering.visits", ("visits",), needs=("sklearn",)),
    "clustering gpu": Benchmark(
        "bench.clustering.gpu_race", ("gpu-steps", "gpu-fits"), needs=("cupy",)
    ),
    "larger": Benchmark("bench.larger.race", ("layers",)),
    "larger blocks": Benchmark("bench.larger.blocks_race", ("blocks",)),
    "larger order": Benchmark("bench.larger.order_race", ("order",)),
    "larger decoder": Benchmark("bench.larger.decoder_race", ("decoder",), needs=("cupy",)),
    "rechunk": Benchmark("bench.rechunk.race", ("stores",), needs=("zarr",)),
    "refit gpu": Benchmark("bench.refits.gpu_race", ("gpu",), needs=("torch",)),
    "packs": Benchmark("bench.copies.packs"),
    "gpu packs": Benchmark("bench.gpu.packs", needs=("cupy",)),
    "gpu halos": Benchmark("bench.gpu.halos", ("halos", "faces"), needs=("cupy",)),
    "gpu onesided": Benchmark("bench.gpu.onesided", ("onesided",), needs=("cupy",)),
    "gpu kernels": Benchmark("bench.gpu.kernels", needs=("cupy",)),
    "halves gpu": Benchmark("bench.gpu.halves", ("gpu",), needs=("cupy",)),
    "gpu ranks": Benchmark("bench.gpu.ranks", needs=("cupy",)),
}
"""What is run only if it is asked for."""
EVERY = {**BENCHMARKS, **OTHERS}
SHOWN = [f"{name.partition(' ')[0]}-{table}" for name, one in EVERY.items() for table in one.tables]
"""Tables that pages may show as they are stored."""
