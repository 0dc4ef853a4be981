"""Random one-sided programs against a plain model of epochs.

As in ``mpirun -n 4 python -m tests.programs.pgas.onesided --n 50 --seed 0``. Every rank makes the same random
script of what all ranks do, runs its own part of it, and asks the model what it must see.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

from redist import ArrayType, Mesh, PeerError, pgas
from redist.layout.dtype import DType
from redist.layout.tiles import grid
from redist.pgas import memory as buffers
from redist.pgas.onesided import address_space as space
from redist.pgas.onesided import device_access
from redist.pgas.onesided import epochs as onesided
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_device, to_host
from redist.runtime.cuda.loops import functions_for
from tests.fakes import opened_cupy
from tests.programs.pgas.layouts import layouts, meshes
from tests.programs.together import all_well, main

UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
SIZES = (0, 1, 2, 3, 5, 8, 13)


@dataclass(frozen=True)
class Act:
    """One operation of one rank."""

    kind: str
    index: Any
    values: Any = None
    op: str = "replace"


@dataclass(frozen=True)
class Script:
    """An array, and for each interval what every rank does; None where an interval fails."""

    type: ArrayType
    start: Any
    intervals: list[list[list[Act]]]
    fails: int | None
    order: str


def index_of(rng: Random, shape: tuple[int, ...]) -> Any:
    """Any index that NumPy takes, of any kind."""
    out: list[Any] = []
    lists = rng.choice([(3,), (2, 2), (1,), ()])
    left = list(shape)
    while left and rng.random() < 0.9:
        n, kind = left[0], rng.random()
        if kind < 0.25 and n:
            out.append(rng.choice([rng.randrange(-n, n), np.int64(rng.randrange(n))]))
        elif kind < 0.55:
            ends = [None, *range(-n - 1, n + 2)]
            out.append(slice(rng.choice(ends), rng.choice(ends), rng.choice([None, 1, 2, -1, -3])))
        elif kind < 0.6:
            out.append(None)
            continue
        elif kind < 0.85 and n:
            values = [rng.randrange(-n, n) for _ in range(int(np.prod(lists)))]
            out.append(np.array(values).reshape(lists))
        else:
            out.append(np.array([rng.random() < 0.5 for _ in range(n)], bool))
        left.pop(0)
    if left and rng.random() < 0.3:
        out.append(...)
    return tuple(out) if len(out) != 1 or rng.random() < 0.5 else out[0]


def good_index(rng: Random, whole: Any) -> Any:
    """An index whose lists can be broadcast together."""
    while True:
        index = index_of(rng, whole.shape)
        try:
            whole[index]
        except IndexError:
            continue
        return index


def values_for(rng: Random, shape: tuple[int, ...], dtype: Any) -> Any:
    """Values that broadcast to a shape."""
    keep = [n if rng.random() < 0.8 else 1 for n in shape][rng.choice([0, 0, len(shape)]) :]
    numbers = np.array([rng.randrange(-4, 9) for _ in range(int(np.prod(keep)))])
    return numbers.reshape(keep).astype(dtype)


def act_of(rng: Random, whole: Any) -> Act:
    """One operation; now and then a wrong one."""
    kind = rng.random()
    if kind < 0.06:
        far = whole.shape[0] + 1 if whole.ndim else 0
        return Act(rng.choice(["get", "put"]), (far,) if whole.ndim else (0,), 0)
    index = good_index(rng, whole)
    if kind < 0.45:
        return Act("get", index)
    shape = np.shape(whole[index])
    if kind < 0.5 and shape:
        return Act("put", index, np.zeros((*shape[:-1], shape[-1] + 2), whole.dtype))
    op = rng.choice(["replace", "sum", "prod", "max", "min"])
    values = values_for(rng, shape, whole.dtype)
    if whole.dtype == bool and op in ("sum", "prod"):
        op = "max"
    return Act(rng.choice(["put", "accumulate"]), index, values, op)


def script_of(rng: Random, size: int) -> Script:
    """A random script for so many ranks."""
    mesh = rng.choice(meshes(size))
    if size > 1 and rng.random() < 0.3:
        ranks = rng.sample(range(size), rng.randrange(1, size + 1))
        mesh = Mesh({"x": len(ranks)}, ranks=ranks)
    shape = tuple(rng.choice(SIZES) for _ in range(rng.choice([0, 1, 1, 2, 2, 3])))
    if rng.random() < 0.15:
        shape = (rng.randrange(20_000, 90_000),)  # tiles in shared memory, several messages
    name: str = rng.choice(["f8", "f4", "i4", "u1", "c16", "bool"])
    dtype: np.dtype[Any] = np.dtype(name)
    t = rng.choice(list(layouts(mesh, DType.parse(dtype.name), shape)))
    whole = (np.arange(int(np.prod(shape))) % 7).astype(dtype).reshape(shape)
    n_acts = 1 if len(shape) and shape[0] > 1000 else 5
    intervals = [
        [[act_of(rng, whole) for _ in range(rng.randrange(n_acts + 1))] for _ in range(size)]
        for _ in range(rng.randrange(1, 4))
    ]
    fails = rng.randrange(size) if rng.random() < 0.2 else None
    return Script(t, whole, intervals, fails, rng.choice("CCF"))


def apply(whole: Any, act: Act) -> None:
    """What an operation does to the whole array, by the model."""
    op = act.op if act.kind == "accumulate" else "replace"
    if op == "replace":
        whole[act.index] = act.values
    else:
        shape = np.shape(whole[act.index])
        UFUNCS[op].at(whole, act.index, np.broadcast_to(act.values, shape))


def is_wrong(whole: Any, act: Act) -> type[Exception] | None:
    """The error that NumPy would raise."""
    try:
        if act.kind == "get":
            whole[act.index]
        else:
            apply(whole.copy(), act)
    except (IndexError, ValueError) as error:
        return type(error)
    return None


def do(a: Any, seen: Any, act: Act, rng: Random) -> str | None:
    """Run one operation; what is wrong with it, against what it must see."""
    if rng.random() < 0.1:
        time.sleep(rng.random() * 1e-3)
    wrong = is_wrong(seen, act)
    try:
        if act.kind == "get":
            got = a.get(there(rng, act.index))
            if on_gpu() and not is_device(got):
                return f"get {act.index}: {got!r} is not on the GPU"
            got, want = to_host(got) if on_gpu() else got, seen[act.index]
            good = type(got) is type(want) or got.shape == ()
            same = np.shape(got) == np.shape(want) and got.dtype == want.dtype
            if wrong or not (good and same and np.array_equal(got, want)):
                return f"get {act.index}: {got} instead of {wrong or want}"
        elif act.kind == "put":
            a.put(act.index, there(rng, act.values))
        else:
            a.accumulate(there(rng, act.index), there(rng, act.values), act.op)
    except (IndexError, ValueError) as error:
        return None if wrong and isinstance(error, wrong) else f"{act}: {error!r}, not {wrong!r}"
    return f"{act} was accepted" if wrong else None


DEVICE = ["cpu"]
"""Where arrays lie."""


def on_gpu() -> bool:
    """Whether they lie on GPUs."""
    return DEVICE[0] != "cpu"


def there(rng: Random, given: Any) -> Any:
    """Values or an index as they are, or, now and then, on the GPU."""
    if isinstance(given, tuple):
        return tuple(there(rng, one) for one in given)
    if not on_gpu() or not isinstance(given, np.ndarray) or rng.random() < 0.5:
        return given
    return to_device(given)


class Planned(Exception):
    """A failure that the script wants."""


def play(comm: MPI.Comm, script: Script, seed: int, options: dict[str, Any]) -> str | None:
    """Run this rank's part; what is wrong."""
    rng = Random(1000 * seed + comm.rank)
    a = pgas.asarray(script.start, type=script.type, comm=comm, device=DEVICE[0])
    if a.local is not None and a.local.ndim and script.order == "F":
        a.tile = functions_for(a.local).asfortranarray(a.local)
    if options:
        onesided.reach(a, **options)
    model = script.start.copy()
    wrong: str | None = None
    try:
        with a.epoch(60.0):
            for k, acts in enumerate(script.intervals):
                if k:
                    a.fence(60.0)
                for act in acts[comm.rank]:
                    wrong = wrong or do(a, model, act, rng)
                last = k == len(script.intervals) - 1
                if last and script.fails is not None:
                    if comm.rank == script.fails:
                        raise Planned("as planned")
                    continue
                for act in (act for acts_of_rank in acts for act in acts_of_rank):
                    if act.kind != "get" and is_wrong(model, act) is None:
                        apply(model, act)
    except Planned:
        if comm.rank != script.fails:
            return "failed in place of another"
    except PeerError as error:
        said = f"rank {script.fails} failed: Planned: as planned"
        if script.fails is None or said not in str(error):
            return f"raised {error!r}"
    else:
        if script.fails is not None:
            return "did not hear of the failure"
    if wrong is None and not np.array_equal(to_host(a.get(...)), model):
        wrong = f"left {a.get(...)} instead of {model}"
    if wrong is None and a.local is not None:  # every copy of a tile was written
        lo, hi = grid(a.type).boxes()
        row = list(a.mesh.ranks).index(comm.rank)
        box = tuple(slice(*ends) for ends in zip(lo[row], hi[row], strict=True))
        if not np.array_equal(to_host(a.local), model[box]):
            wrong = f"holds {a.local} instead of {model[box]}"
    a.fence(60.0)  # nobody writes before all have read
    if wrong is None and a.local is not None:
        a.local[...] = 1
    a.fence(60.0)
    if wrong is None and not (a.get(...) == 1).all():
        wrong = "does not see what owners wrote"
    return wrong


CHECKS = ("epochs",)


def program() -> int:
    """0 if all ranks agree with the model in every case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--node-size", type=int, default=None)
    parser.add_argument("--shared", action="store_true", help="values and tiles of any size")
    parser.add_argument("--cuda", action="store_true", help="tiles on GPUs")
    parser.add_argument("--without-gpu", action="store_true", help="NumPy stands for CuPy")
    parser.add_argument("--gpus", type=int, default=1, help="which ranks share, without a GPU")
    parser.add_argument("--closed", action="store_true", help="nobody opens others' memory")
    args = parser.parse_args()
    if args.cuda:
        DEVICE[0] = "cuda"
    if args.without_gpu:
        opened_cupy.install(args.gpus, not args.closed)
    if args.shared:
        buffers.SHARED_FROM, space.REFER_FROM = 0, 1
        device_access.KEEP_FROM, device_access.SMALL_ELEMS = 1, 2
    comm = MPI.COMM_WORLD
    options = {"transport": args.transport, "node_size": args.node_size}
    plain = args.transport == "auto" and args.node_size is None
    bad = 0
    with np.errstate(all="ignore"):
        for k in range(args.n):
            seed = 10_000 * args.seed + k
            script = script_of(Random(seed), comm.size)
            said = play(comm, script, seed, {} if plain else options)
            bad += not all_well(comm, "epochs", said, f"{seed} {script.type} on {script.type.mesh}")
    if comm.rank == 0:
        print(f"{args.n - bad} of {args.n} cases agree ({comm.size} ranks)", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    main(program)
