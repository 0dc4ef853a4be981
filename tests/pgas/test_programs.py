"""Global arrays under mpirun, against NumPy and their own promises: one item for every check."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.programs.checks import Job, Run, items, must_hold
from tests.programs.pgas.manipulation import FUNCTIONS
from tests.tiers import sample

SEVERAL = "on more numbers of ranks; 1 and 3 are the sample, 4 where there are nodes"

AGAINST_NUMPY: dict[str, dict[int, tuple[int, int]]] = {
    "algebra": {1: (2, 40), 2: (0, 6), 3: (1, 6), 4: (0, 4), 6: (0, 1)},
    "creating": {1: (1, 4), 2: (0, 2), 3: (1, 2), 4: (0, 1), 6: (0, 1)},
    "einstein": {1: (1, 6), 2: (0, 3), 3: (1, 3), 4: (0, 3), 6: (0, 1)},
    "everything": {1: (1, 8), 2: (0, 4), 3: (1, 3), 4: (0, 2), 6: (0, 1)},
    "floats": {1: (0, 100), 2: (0, 100), 3: (1, 100), 4: (0, 100), 6: (0, 40)},
    "gradients": {1: (6, 500), 2: (0, 500), 3: (2, 500), 4: (0, 240)},
    "limited": {1: (2, 60), 2: (1, 20), 3: (0, 20), 4: (0, 10)},
    "joins": {1: (2, 80), 2: (0, 60), 3: (3, 60), 4: (0, 60), 6: (0, 10)},
    "products": {1: (2, 40), 2: (0, 12), 3: (2, 12), 4: (0, 10), 6: (0, 2)},
    "programs": {1: (2, 300), 2: (0, 200), 3: (2, 200), 4: (0, 200), 6: (0, 100)},
    "seeds": {1: (2, 40), 2: (0, 15), 3: (2, 15), 4: (0, 12), 6: (0, 4)},
    "sorting": {1: (3, 60), 2: (0, 40), 3: (5, 40), 4: (0, 30), 6: (0, 15)},
    "taking_blocks": {1: (10, 200), 2: (0, 150), 3: (10, 150), 4: (0, 100), 6: (0, 40)},
    "special": {1: (3, 60), 3: (3, 20), 4: (0, 10)},
    "writing": {1: (3, 80), 2: (0, 60), 3: (3, 60), 4: (0, 60), 6: (0, 10)},
    "spectra": {1: (2, 40), 2: (0, 15), 3: (2, 15), 4: (0, 12), 6: (0, 4)},
}
"""Random rounds on so many ranks: in ``make test`` (0: none), and at most."""

FIRST = ("taking_blocks",)
"""They measure memory, in processes that have taken none yet."""

KEYS: list[tuple[int, tuple[int, int], tuple[str, ...]]] = [
    (1, (17, 51), ()),
    (2, (0, 102), ()),
    (3, (17, 102), ()),
    (4, (0, 102), ()),
    (6, (0, 102), ()),
    (3, (0, 102), ("--small",)),
    (3, (0, 102), ("--tiles", "private", "--small")),
    (3, (0, 102), ("--tiles", "mixed")),
    (4, (17, 102), ("--tiles", "mixed", "--node-size", "2")),
]
"""Indexing and manipulation: ranks, random keys and calls (at least one of each function), how tiles lie."""

ONE_SIDED: list[tuple[int, tuple[int, int], tuple[str, ...], tuple[str, ...]]] = [
    (1, (6, 100), (), ()),
    (2, (0, 80), (), ()),
    (3, (9, 80), (), ()),
    (3, (6, 30), ("--transport", "mpi"), ()),
    (3, (6, 60), ("--shared",), ()),
    (4, (0, 60), (), ()),
    (4, (6, 30), ("--node-size", "2"), ()),
    (4, (9, 40), ("--shared", "--node-size", "2"), ()),
    (6, (0, 30), (), ()),
    (3, (6, 30), (), ("REDIST_PURE",)),
]
"""Epochs against a model: ranks, random scripts, arguments, variables. Those that share come last."""

PROGRAMS = "captured", "depending"
"""Of captured programs."""

ALONE = (
    "gradient_names",
    "limits",
    "many_arrays",
    "staging",
    "tracing",
    "training",
    "mistakes",
    "reaching",
    "inspected",
    "sixteen_bits",
    *PROGRAMS,
    "planned",
    "spilling",
    "reading",
    "tile_functions",
    "decoder",
)


def promised(ranks: int, programs: tuple[str, ...], *args: str, slow: str = "") -> Job:
    return Job(ranks, tuple(Run(f"pgas.{program}", args, slow) for program in programs))


ON_ONE = (
    "spilling", "aliasing", "staging", "tracing", "reading", "gradient_names", "tile_functions",
)  # fmt: skip
"""What ``make test`` looks at on one rank alone."""
ON_TWO = (
    "many_arrays", "cutting", "measured", "limits", "planned", "depending", "tile_functions", "decoder",
)  # fmt: skip
"""On two: what takes long, because every rank plans."""
ON_THREE = (
    "mistakes", "reaching", "captured", "traffic", "spmd", "segments", "sixteen_bits", "inspected",
)  # fmt: skip
"""And on three: what ranks must agree on, in tiles of different sizes."""

PROMISES = [
    promised(1, ON_ONE),
    promised(1, tuple(one for one in ALONE if one not in ON_ONE), slow=SEVERAL),
    promised(2, ("mistakes", "aliasing", "spill_faults", "spmd", "inspected"), slow=SEVERAL),
    promised(3, (*(one for one in ALONE if one not in ON_THREE), "spill_faults"), slow=SEVERAL),
    promised(2, ("numpy_on_gpus", "halves_on_gpus", "matrices_on_gpus")),
    promised(1, ("order_on_gpus",), slow=SEVERAL),
    promised(2, ("order_on_gpus",), "--small", slow=SEVERAL),
    promised(3, ("order_on_gpus",)),
    promised(1, ("matrices_on_gpus",), slow=SEVERAL),
    promised(3, ("matrices_on_gpus",), slow=SEVERAL),
    Job(2, (Run("pgas.checked_calls"),), ("REDIST_CHECK_CALLS",)),
    Job(4, (Run("pgas.checked_calls", slow=SEVERAL),), ("REDIST_CHECK_CALLS",)),
    Job(3, (Run("pgas.indexing", ("--n", "30"), SEVERAL),), ("REDIST_CHECK_CALLS",)),
    Job(3, tuple(Run(f"pgas.{p}", slow=SEVERAL) for p in PROGRAMS), ("REDIST_CHECK_CALLS",)),
    Job(3, (Run("pgas.spmd", slow=SEVERAL),), ("REDIST_PURE",)),
    promised(3, ("traffic",), "--messages"),
    promised(2, ("inspected",), "--messages"),
    promised(4, ("inspected",), "--messages", slow=SEVERAL),
    promised(
        4,
        (
            "limits",
            "many_arrays",
            "tracing",
            "mistakes",
            "traffic",
            *PROGRAMS,
            "planned",
            "training",
            "spmd",
            "segments",
        ),
        slow=SEVERAL,
    ),
    promised(4, ("staging",), "--messages", slow=SEVERAL),
    promised(4, ("traffic",), "--messages", slow=SEVERAL),
]
"""Limits, traces, errors and bytes: what is checked once, not at random."""


def random_run(
    program: str, counts: tuple[int, int], seed: int, args: tuple[str, ...] = (), least: int = 1
) -> Run:
    """A program with its number of random cases."""
    quick, thorough = counts
    n = max(sample(quick, of=thorough), least)
    return Run(program, ("--n", str(n), "--seed", str(seed), *args), slow="" if quick else SEVERAL)


def jobs() -> Iterator[Job]:
    """Everything above: programs that leave each other alone, on the same ranks, are one job."""
    found: dict[tuple[int, tuple[str, ...]], list[Run]] = {
        (2, ()): [*promised(2, ON_TWO).runs],
        (3, ()): [*promised(3, ON_THREE).runs, Run("pgas.reaching", ("--nodes",))],
    }
    for ranks in (1, 2, 3, 4, 6):
        runs = found.setdefault((ranks, ()), [])
        for program, by_ranks in AGAINST_NUMPY.items():
            if ranks in by_ranks:
                place = 0 if program in FIRST else len(runs)
                runs.insert(place, random_run(f"pgas.{program}", by_ranks[ranks], ranks))
    for ranks, counts, args in KEYS:
        seed = ranks + 100 * len(args)
        pair = [
            random_run(f"pgas.{p}", counts, seed, args, len(FUNCTIONS))
            for p in ("indexing", "manipulation")
        ]
        if args:  # they change sizes of messages and tiles, which plans made before have in them
            yield Job(ranks, tuple(pair))
        else:
            found[ranks, ()] += pair
    for ranks, counts, args, variables in ONE_SIDED:
        seed = 10 * ranks + len(args) + len(variables)
        one = random_run("pgas.onesided", counts, seed, args)
        found.setdefault((ranks, variables), []).append(one)
    for (ranks, variables), runs in found.items():
        yield Job(ranks, tuple(runs), variables)
    yield from PROMISES


@pytest.mark.parametrize(("job", "run", "check"), [*items(jobs())])
def test_check(job: Job, run: Run, check: str) -> None:
    must_hold(job, run, check)
