"""``python -m bench NAME``: measure and print; ``bench/README.md`` says what each benchmark answers.

``mpirun -n 8 python -m bench run ...`` moves arrays, as ``redist bench -n 8 ...`` does;
``python -m bench gpu kernels`` and ``mpirun -n 4 python -m bench gpu ranks`` do on GPUs.
``python -m bench clustering`` fits every estimator beside scikit-learn's;
``python -m bench larger`` measures a program within less memory than it has tiles;
``python -m bench tables``, ``keep`` and ``figures`` are about stored figures,
``python -m bench compare-checkouts FOLDER`` about another version of redist.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.copies import race as copies
from bench.examples import race as examples
from bench.layouts import large, ranking_race, rivals
from bench.layouts import race as layouts
from bench.plans import collectives, comparison, hierarchy, overhead, planning, products, quality
from bench.problems.judge import WrongPlanError
from bench.programs import race as programs
from bench.pytorch import race as pytorch
from bench.races import jax_race
from bench.report.report import Report, save_json
from bench.xla import compare as xla
from bench.xla import lowered

BENCHMARKS: dict[str, Callable[[int, int], Report]] = {
    "comparison": comparison.run,
    "quality": quality.run,
    "planning": planning.run,
    "collectives": collectives.run,
    "hierarchy": hierarchy.run,
    "products": products.run,
    "xla": xla.run,
    "jax": jax_race.run,
    "torch": pytorch.run,
    "lowered": lowered.run,
    "examples": examples.run,
    "programs": programs.run,
    "layouts": layouts.run,
    "large": large.run,
    "ranking": ranking_race.run,
    "rivals": rivals.run,
    "overhead": overhead.run,
    "copies": copies.run,
}
LAST = Path(__file__).parent / "results" / "last"
"""Where figures go that nobody asked to keep."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run benchmarks; 0 if every plan was right, 1 if a check failed."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    command = _command(given[0]) if given else None
    if command is not None:
        return command(given[1:])
    args = _parser().parse_args(given)
    names = list(BENCHMARKS) if args.which == "all" else [args.which]
    reports = []
    for name in names:
        try:
            report = BENCHMARKS[name](args.n, args.seed)
        except WrongPlanError as error:
            print(f"bench {name}: {error}", file=sys.stderr)
            return 1
        print(report, end="\n\n", flush=True)
        reports.append(report)
    options = {"which": args.which, "n": args.n, "seed": args.seed}
    stored = args.json or LAST / f"{args.which}.json"
    save_json(stored, reports, options)
    print(f"JSON   {stored}")
    return 0


def _command(name: str) -> Callable[[Sequence[str]], int] | None:
    """What has a command line of its own; None if it is a benchmark as above."""
    match name:
        case "run":
            from redist.measure.job import main as measure

            return lambda rest: measure(rest, "python -m bench run")
        case "gpu":
            from bench.gpu.command import main as chosen
        case "clustering":
            from bench.clustering.race import main as chosen
        case "cluster":
            from bench.cluster.race import main as chosen
        case "larger":
            from bench.larger.race import main as chosen
        case "scale":
            from bench.scale.command import main as chosen
        case "tables":
            from bench.tables.command import main as chosen
        case "keep":
            from bench.tables.keep import main as chosen
        case "figures":
            from bench.tables.renew import main as chosen
        case "compare-checkouts":
            from bench.checkouts import main as chosen
        case _:
            return None
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure plans and planning; results are checked first.",
        epilog="'mpirun -n 8 python -m bench run --help' tells how to measure moving arrays, "
        "'python -m bench gpu --help' the same on GPUs; 'tables', 'keep' and 'figures' "
        "show, keep and renew stored figures.",
    )
    parser.add_argument("which", nargs="?", default="all", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--n", type=_positive, default=2000, help="random problems (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the problems (%(default)s)")
    parser.add_argument("--json", type=Path, help="where to store figures (bench/results/last/)")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is too few; need 1 or more")
    return value


if __name__ == "__main__":
    sys.exit(main())
