"""Results as a picture: bars of time over the fastest contiguous copy, a panel for each size."""

from __future__ import annotations

from redist.measure.results.results import Results
from redist.text.extras import install_line
from redist.text.units import format_bytes

OURS = ("#0b5fd0", "#5fa3f5", "#a9cdfa")
OTHERS = (
    "#c44e2b", "#e0a030", "#7a9a3a", "#8a5fb0", "#c05a8c", "#4aa39a", "#8c6d4f", "#777c85",
)  # fmt: skip
FLOOR = "#1c1e21"


def draw(results: Results, path: str) -> str:
    """Draw into a file whose name says the format; returns what was done."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return f"no plot: matplotlib is not installed; {install_line('plot')}"
    sizes = results.sizes
    colours = _colours(results)
    figure = Figure(figsize=(12, 4.2 * len(sizes)), layout="constrained")
    panels = figure.subplots(len(sizes), squeeze=False)[:, 0]
    for axes, size in zip(panels, sizes, strict=True):
        outcomes = [o for o in results.outcomes if o.size_bytes == size and o.entries]
        keys = list(dict.fromkeys(e.key for o in outcomes for e in o.entries if e.times))
        width = 0.8 / max(1, len(keys))
        for i, key in enumerate(keys):
            shares = [outcome.share(key) for outcome in outcomes]
            heights = [1 / share if share else float("nan") for share in shares]
            middle = [at + (i - (len(keys) - 1) / 2) * width for at in range(len(outcomes))]
            axes.bar(middle, heights, width, label=key, color=colours[key])
        axes.axhline(1, color=FLOOR, linewidth=1, linestyle="--", label="fastest copy")
        axes.set_xticks(range(len(outcomes)), [outcome.name for outcome in outcomes])
        axes.tick_params(axis="x", rotation=20)
        title = f"{format_bytes(size)} in all, {results.n_ranks} ranks, {results.mpi}"
        axes.set(title=title, ylabel="time over the floor", yscale="log")
        axes.grid(axis="y", alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    figure.savefig(path, dpi=120)
    return f"wrote {path}"


def _colours(results: Results) -> dict[str, str]:
    """Shades of blue for redist, other colours for the others; the same in every panel."""
    keys = list(dict.fromkeys(e.key for o in results.outcomes for e in o.entries))
    ours = [key for key in keys if key.startswith("redist")]
    others = [key for key in keys if key not in ours]
    return {
        **{key: OURS[i % len(OURS)] for i, key in enumerate(ours)},
        **{key: OTHERS[i % len(OTHERS)] for i, key in enumerate(others)},
    }
