"""A small GPT under tensor, data and pipeline parallelism, resumed from checkpoints under any other split.

``mpirun -n 8 python examples/train_gpt.py run --dp 2 --tp 2 --stages 2 --steps 40`` trains and saves every 10
steps. Kill it at any moment, and start it again with other numbers, on any number of ranks::

    mpirun -n 3 python examples/train_gpt.py run --tp 2 --stages 2 --steps 60      # stages of 2 and 1 ranks

It goes on from the last complete checkpoint, with the same losses. ``--device cuda`` trains on GPUs. What a
checkpoint must know of layouts are the types of the arrays and three rules for names:

==================  ======================================  =================================================
pattern             in memory                               in the file
==================  ======================================  =================================================
cut by tp           ``{}, {tp}``                            whole
replicated          ``{}``                                  once
sharded states      ``{dp}, {tp}``                          whole
fused q, k, v       ``4{tp}+4{tp}+4{tp}, {}, {}``           ``layers.0.q``, ``layers.0.k``, ``layers.0.v``
padded vocabulary   16 rows                                 15 rows
to be averaged      ``sum{dp}`` of a share of each          their mean
pipeline stages     meshes of different ranks               nothing
==================  ======================================  =================================================
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import ArrayType, Mesh, pgas

VOCAB, PADDED, WIDTH, HEADS, HEAD, HIDDEN, LAYERS = 15, 16, 16, 4, 4, 32, 2
BATCH, LENGTH, RATE = 4, 6, 3e-3
RULES = f"""
*qkv[{HEADS}|h|h, :, :] = *q, *k, *v
*embed[{VOCAB}|_{PADDED - VOCAB}, :] = *embed
*head[:, {VOCAB}|_{PADDED - VOCAB}] = *head
"""
SHAPES = {
    "qkv": (3 * HEADS, WIDTH, HEAD), "out": (HEADS, HEAD, WIDTH), "up": (WIDTH, HIDDEN),
    "down": (HIDDEN, WIDTH), "norm1": (WIDTH,), "norm2": (WIDTH,), "embed": (PADDED, WIDTH),
    "place": (LENGTH, WIDTH), "head": (WIDTH, PADDED),
}  # fmt: skip
TP = f"{HEADS}{{tp}}+{HEADS}{{tp}}+{HEADS}{{tp}}, "
TYPES = {
    "qkv": TP + "{}, {}", "out": "{tp}, {}, {}", "up": "{}, {tp}", "down": "{tp}, {}",
    "norm1": "{}", "norm2": "{}", "embed": "{}, {tp}", "place": "{}, {}", "head": "{}, {tp}",
}  # fmt: skip
STATES = {
    "qkv": TP + "{dp}, {}", "out": "{tp}, {}, {dp}", "up": "{dp}, {tp}", "down": "{tp}, {dp}",
    "norm1": "{dp}", "norm2": "{dp}", "embed": "{dp}, {tp}", "place": "{}, {dp}", "head": "{dp}, {tp}",
}  # fmt: skip
"""Parameters are cut by tp, and the states of the optimizer by dp as well."""

Arrays = dict[str, Any]
X: Any = pgas


def stage_meshes(size: int, dp: int, tp: int, stages: int) -> list[Mesh]:
    """A mesh for every stage: the first have dp x tp ranks, the last has what is left."""
    meshes, first = [], 0
    for _ in range(stages):
        left = size - first
        axes = {"dp": dp, "tp": tp} if left >= dp * tp else {"dp": 1, "tp": left}
        ranks = range(first, first + axes["dp"] * axes["tp"])
        meshes.append(Mesh(axes, ranks=list(ranks)))
        first += len(ranks)
    return meshes


class Model:
    """Parameters of all stages by name, each on the mesh of its stage."""

    def __init__(self, meshes: list[Mesh], device: str = "cpu") -> None:
        self.meshes, self.device = meshes, device
        self.stage = {f"layers.{i}": meshes[i * len(meshes) // LAYERS] for i in range(LAYERS)}
        self.names = {"embed": meshes[0], "place": meshes[0], "head": meshes[-1]}
        for layer, mesh in self.stage.items():
            self.names |= {
                f"{layer}.{name}": mesh for name in ("qkv", "out", "up", "down", "norm1", "norm2")
            }

    def type(self, name: str, of: dict[str, str]) -> ArrayType:
        """The type of a parameter, or of its states."""
        kind = name.rpartition(".")[2]
        sizes = SHAPES[kind]
        dims = of[kind].split(", ")
        text = ", ".join(
            one if one[0].isdigit() else f"{n}{one}" for n, one in zip(sizes, dims, strict=True)
        )
        return ArrayType.parse(f"f64[{text}]", self.names[name])

    def types(self) -> dict[str, ArrayType]:
        """The types of everything that is loaded."""
        found = {}
        for name in self.names:
            found[f"model.{name}"] = self.type(name, TYPES)
            for state in ("mean", "square"):
                found[f"{state}.{name}"] = self.type(name, STATES)
        return found

    def start(self) -> dict[str, Arrays]:
        """New parameters, and states of zeros."""
        rng = np.random.default_rng(0)
        made: dict[str, Arrays] = {"model": {}, "mean": {}, "square": {}}
        for name in self.names:
            kind = name.rpartition(".")[2]
            values = rng.normal(size=SHAPES[kind]) * 0.1
            if kind.startswith("norm"):
                values = np.ones(SHAPES[kind])
            if kind == "embed":
                values[VOCAB:] = 0
            if kind == "head":
                values[:, VOCAB:] = 0
            made["model"][name] = self._new(values, name, TYPES)
            for state in ("mean", "square"):
                made[state][name] = self._new(np.zeros(SHAPES[kind]), name, STATES)
        return made

    def _new(self, values: Any, name: str, of: dict[str, str]) -> Any:
        return X.asarray(values).to(self.type(name, of)).to_device(self.device)

    def new(self, values: Any, cuts: str, mesh: Mesh) -> Any:
        """An array of values that all ranks have alike."""
        return X.asarray(values, type=cuts, mesh=mesh).to_device(self.device)


# The network: activations are cut by dp, and whole along tp between blocks.


def activations(x: Any, mesh: Mesh) -> Any:
    """Bring activations to a stage, cut by dp."""
    return x.to(ArrayType.parse(f"f64[{x.shape[0]}{{dp}}, {x.shape[1]}, {x.shape[2]}]", mesh))


def normed(x: Any, gain: Any) -> Any:
    """Layer norm."""
    centred = x - X.mean(x, axis=-1, keepdims=True)
    return centred / X.sqrt(X.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * gain


def heads_of(p: Arrays) -> list[Any]:
    """The weights of queries, keys and values, each cut by tp."""
    whole = p["qkv"].to("{}, {}, {}")
    return [whole[i * HEADS : (i + 1) * HEADS].to("{tp}, {}, {}") for i in range(3)]


def block(x: Any, p: Arrays) -> Any:
    """One layer: attention and a hidden layer, both added to what came in."""
    mesh = x.mesh
    n1 = normed(x, p["norm1"])
    q, k, v = (X.einsum("btc,hcd->bhtd", n1, one) for one in heads_of(p))
    mask = X.asarray(np.where(np.tri(LENGTH), 0.0, -1e9), type="{}, {}", mesh=mesh)
    mask = mask.to_device(x.device)
    s = X.einsum("bhtd,bhud->bhtu", q, k) / HEAD**0.5 + mask
    e = X.exp(s - X.max(s, axis=-1, keepdims=True))
    o = X.einsum("bhtu,bhud->bhtd", e / X.sum(e, axis=-1, keepdims=True), v)
    x = activations(x + X.einsum("bhtd,hdc->btc", o, p["out"]), mesh)
    r = X.maximum(X.einsum("btc,cf->btf", normed(x, p["norm2"]), p["up"]), 0.0)
    return activations(x + X.einsum("btf,fc->btc", r, p["down"]), mesh)


def tokens_of(step: int) -> tuple[Any, Any]:
    """Sequences that count upwards by some step, and what comes next; as one-hot rows."""
    rng = np.random.default_rng(1000 + step)
    first, by = rng.integers(0, VOCAB, (BATCH, 1)), rng.integers(1, 4, (BATCH, 1))
    rows = (first + by * np.arange(LENGTH + 1)) % VOCAB
    hot = np.eye(PADDED)[rows]
    return hot[:, :-1], hot[:, 1:]


def loss_of(model: Model, p: Arrays, step: int) -> Any:
    """The loss of a step, a number as an array without dims."""
    given, wanted = tokens_of(step)
    first, last = model.meshes[0], model.meshes[-1]
    rows = model.new(given, "{dp}, {}, {}", first)
    x = activations(X.einsum("btv,vc->btc", rows, p["embed"]) + p["place"], first)
    for layer, mesh in model.stage.items():
        x = block(activations(x, mesh), _of(p, layer))
    x = activations(x, last)
    void = model.new(np.where(np.arange(PADDED) < VOCAB, 0.0, -1e9), "{}", last)
    s = activations(X.einsum("btc,cv->btv", x, p["head"]), last) + void
    e = X.exp(s - X.max(s, axis=-1, keepdims=True))
    share = e / X.sum(e, axis=-1, keepdims=True)
    target = model.new(wanted, "{dp}, {}, {}", last)
    return -X.mean(X.log(X.sum(share * target, axis=-1)))


def gradients(model: Model, p: Arrays, step: int) -> tuple[float, Arrays]:
    """The loss of a step, and the gradients of all parameters."""
    loss, g = X.value_and_grad(lambda p: loss_of(model, p, step))(p)
    return float(loss), g


def _of(p: Arrays, layer: str) -> Arrays:
    return {
        name.removeprefix(f"{layer}."): one
        for name, one in p.items()
        if name.startswith(f"{layer}.")
    }


def adam(state: dict[str, Arrays], g: Arrays, step: int) -> dict[str, Arrays]:
    """One step of the optimizer; each rank updates its part of the states."""
    new: dict[str, Arrays] = {"model": {}, "mean": {}, "square": {}}
    for name, p in state["model"].items():
        mean, square = state["mean"][name], state["square"][name]
        own = g[name].to(mean.type)
        mean = 0.9 * mean + 0.1 * own
        square = 0.99 * square + 0.01 * own * own
        change = mean / (1 - 0.9**step) / (X.sqrt(square / (1 - 0.99**step)) + 1e-8)
        new["mean"][name], new["square"][name] = mean, square
        new["model"][name] = p - RATE * change.to(p.type)
    return new


def own_average(model: Model, loss: float) -> Any:
    """A number that every replica has for itself, as a sum that is still pending: saved as their average."""
    mesh, comm = model.meshes[-1], MPI.COMM_WORLD
    dp = mesh.size("dp")
    tile = np.full(1, loss / dp) if comm.rank in mesh.ranks else None
    return X.from_local(tile, ArrayType.parse(f"f64[1]{' sum{dp}' if dp > 1 else ''}", mesh))


def main() -> None:
    """Train from the last complete checkpoint on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--device", default="cpu")
    for name, usual in (
        ("dp", 1),
        ("tp", 1),
        ("stages", 1),
        ("steps", 40),
        ("every", 10),
        ("keep", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    comm = MPI.COMM_WORLD
    model = Model(stage_meshes(comm.size, asked.dp, asked.tp, asked.stages), asked.device)
    saver = redist.Saver(asked.folder, keep=asked.keep, names=RULES)
    found = saver.resume({**model.types(), "average": None}, names=RULES, device=asked.device)
    if found is None:
        first, state = 0, model.start()
    else:
        first, arrays = found
        kinds = ("model", "mean", "square")
        state = {kind: {one: arrays[f"{kind}.{one}"] for one in model.names} for kind in kinds}
    if comm.rank == 0:
        print(f"from step {first} on {comm.size} ranks", flush=True)
    for step in range(first + 1, asked.steps + 1):
        loss, g = gradients(model, state["model"], step)
        state = adam(state, g, step)
        if comm.rank == 0:
            print(f"step {step} loss {loss!r}", flush=True)
        if step % asked.every == 0:
            saver.save({**state, "average": own_average(model, loss)}, step=step)
    saver.wait()


if __name__ == "__main__":
    main()
