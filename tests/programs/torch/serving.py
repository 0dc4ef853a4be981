"""Two ranks that train and two workers of vLLM, each pair a job of its own: weights by the plug-in.

The engine is a fake: ``tests/fakes/vllm.py``.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import redist
from tests.fakes import vllm

FACTORY = vllm.install()

from redist.torch.vllm import RedistTrainerInit, register  # noqa: E402

TIMEOUT_S = 60.0
LIMIT_S = float(os.environ.get("REDIST_TEST_LIMIT_S", "90"))
TP, Q, KV, D, M, F, VOCAB = 2, 4, 2, 3, 8, 6, 10
SHAPES = {
    "model.embed_tokens.weight": (VOCAB, M), "model.norm.weight": (M,), "lm_head.weight": (VOCAB, M),
    "model.layers.0.self_attn.q_proj.weight": (Q * D, M),
    "model.layers.0.self_attn.k_proj.weight": (KV * D, M),
    "model.layers.0.self_attn.v_proj.weight": (KV * D, M),
    "model.layers.0.self_attn.o_proj.weight": (M, Q * D),
    "model.layers.0.mlp.gate_proj.weight": (F, M), "model.layers.0.mlp.up_proj.weight": (F, M),
    "model.layers.0.mlp.down_proj.weight": (M, F),
}  # fmt: skip


def whole(version: int) -> dict[str, Any]:
    """All weights of a version; no two elements are equal."""
    found, at = {}, 1000 * version + 1
    for name, shape in SHAPES.items():
        n = int(np.prod(shape))
        found[name] = np.arange(at, at + n, dtype="f4").reshape(shape)
        at += n
    return found


def stored(version: int, r: int) -> dict[str, Any]:
    """What worker ``r`` must have of a version: literal slices, fused, padded with zeros."""
    w = {name.removeprefix("model.layers.0."): value for name, value in whole(version).items()}

    def half(name: str, dim: int = 0) -> Any:
        return np.split(w[f"{name}.weight"], TP, axis=dim)[r]

    padding = np.zeros((64 - VOCAB, M), "f4")
    found = {
        "model.layers.0.self_attn.qkv_proj": np.concatenate(
            [half(f"self_attn.{x}_proj") for x in "qkv"]
        ),
        "model.layers.0.self_attn.o_proj": half("self_attn.o_proj", 1),
        "model.layers.0.mlp.gate_up_proj": np.concatenate(
            [half("mlp.gate_proj"), half("mlp.up_proj")]
        ),
        "model.layers.0.mlp.down_proj": half("mlp.down_proj", 1),
        "model.norm": w["model.norm.weight"],
    }
    for name in ("model.embed_tokens", "lm_head"):
        found[name] = np.split(np.concatenate([w[f"{name}.weight"], padding]), TP)[r]
    return {f"{name}.weight": value for name, value in found.items()}


class Model:
    """Parameters of a worker, and a loader as those of vLLM: narrow, copy, fill padding."""

    def __init__(self, r: int) -> None:
        self.r, self.computes = r, False
        self.parameters = {
            name: torch.nn.Parameter(torch.from_numpy(value.copy()), requires_grad=False)
            for name, value in stored(0, r).items()
        }

    def named_parameters(self) -> Iterable[tuple[str, Any]]:
        return iter(self.parameters.items())

    def named_buffers(self) -> Iterable[tuple[str, Any]]:
        return iter({"rope.cache": torch.zeros(5)}.items())

    def load_weights(self, weights: Iterable[tuple[str, Any]]) -> set[str]:
        loaded = set()
        for name, weight in weights:
            w = weight * 2 if self.computes else weight
            if name.rpartition(".")[0].endswith(("q_proj", "k_proj", "v_proj")):
                rows = {"q": Q, "k": KV, "v": KV}[name[-len("q_proj.weight")]] * D // TP
                at = {"q": 0, "k": Q * D // TP, "v": (Q + KV) * D // TP}[
                    name[-len("q_proj.weight")]
                ]
                param = self.parameters["model.layers.0.self_attn.qkv_proj.weight"]
                param.data.narrow(0, at, rows).copy_(w.narrow(0, self.r * rows, rows))
            elif "gate_proj" in name or "up_proj" in name:
                param = self.parameters["model.layers.0.mlp.gate_up_proj.weight"]
                half = param.data[F // TP :] if "up_proj" in name else param.data[: F // TP]
                half.copy_(w.chunk(TP)[self.r])
            elif "o_proj" in name or "down_proj" in name:
                self.parameters[name].data.copy_(w.chunk(TP, dim=1)[self.r])
            elif name in ("model.embed_tokens.weight", "lm_head.weight"):
                param = self.parameters[name]
                mine = w[32 * self.r : 32 * (self.r + 1)]
                param[: len(mine)].data.copy_(mine)
                param[len(mine) :].data.fill_(0)
            else:
                self.parameters[name].data.copy_(w)
            loaded.add(name)
        return loaded

    def differs(self, version: int) -> str:
        """The first parameter that is not of this version; empty if none."""
        want = stored(version, self.r)
        assert set(want) == set(self.parameters)
        return next(
            (n for n in want if not np.array_equal(self.parameters[n].numpy(), want[n])), ""
        )


class Train:
    """A rank that trains: checks one after another, each on what the one before left."""

    def __init__(self, rank: int, rpc: Any) -> None:
        self.rank, self.client = rank, vllm.Client(rpc, TP)
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        self.state = {
            n: distribute_tensor(torch.from_numpy(w), mesh, [Shard(0)]) for n, w in whole(0).items()
        }

    def ask(self, name: str, *given: Any) -> Any:
        """What all workers answer, if they answer alike; nothing on ranks that do not ask."""
        answers = self.client.call(name, *given) if self.rank == 0 else [None]
        assert all(one == answers[0] for one in answers), answers
        return answers[0]

    def start(self, client: Any = None, **options: Any) -> Any:
        init = RedistTrainerInit(
            self.state,
            n_workers=TP,
            rank=self.rank,
            limit_bytes=1000,
            timeout_s=TIMEOUT_S,
            **options,
        )
        make = FACTORY.WeightTransferTrainerFactory.trainer_init
        return make(init, client=self.client if client is None else client)

    def write(self, version: int, names: Iterable[str] = SHAPES) -> None:
        for name in names:
            own = torch.from_numpy(whole(version)[name]).chunk(2)[self.rank]
            self.state[name].to_local().copy_(own)

    def must_fail(self, says: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except redist.RedistError as problem:
            assert says in str(problem), problem
        else:
            raise AssertionError(f"nobody said {says!r}")

    def ranks_know_their_own(self) -> None:
        own = redist.Weights({f"l.{self.rank}.w": "f32[4]"}, redist.Mesh({}, ranks=[self.rank]))
        found = own.together(dist.group.WORLD)
        assert found.stored == ("l.0.w", "l.1.w") and found.ranks == (0, 1)
        found = redist.Weights.of(self.state, "a = b")
        assert {name: str(t) for name, t in found.types.items() if "norm" in name} == {
            "model.norm.weight": f"f32[{M}{{dp}}]"
        }

    def refused(self) -> None:
        """A loader that computes, an engine that is not there, options that cannot be: told to all."""
        self.ask("compute", True)
        self.must_fail("rank 2: ConversionError: cannot record the loader of ", self.start)
        self.ask("compute", False)
        gone = SimpleNamespace(init_weight_transfer_engine=_no_engine)
        self.must_fail("RuntimeError: there is no engine", lambda: self.start(gone))
        for commit in ("swap", "copy" if self.rank == 0 else "swap"):
            says = "commit='swap' is none for vLLM: known are 'copy' and 'in place'"
            self.must_fail(says, lambda commit=commit: self.start(commit=commit))  # type: ignore[misc]

    def values(self) -> None:
        """Every parameter of three versions; of the last a part alone is sent."""
        self.trainer = trainer = self.start()
        assert trainer.refit.plan.check().is_right
        for version in (1, 2):
            self.write(version)
            trainer.send_weights()
            assert self.ask("differs", version) in ("", None)
            assert self.ask("version") in (version, None)
        self.write(3, ["model.norm.weight"])
        trainer.send_weights("three", changed=["model.norm.weight"])
        assert self.ask("differs", 2) in ("model.norm.weight", None)
        assert self.ask("version") in ("three", None)
        self.write(2, ["model.norm.weight"])
        client: Any = self.client
        client.start_weight_update = _no_update
        self.must_fail("RuntimeError: no update now", trainer.send_weights)
        del client.start_weight_update
        trainer.send_weights("four")
        assert self.client.versions == ([] if self.rank else ["1", "2", "three", "four"])

    def killed(self) -> None:
        """The second trainer dies in the middle of an update: the workers keep what they had."""
        self.write(5)
        if self.rank == 1:
            self.trainer.refit._mover.move = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        start = time.monotonic()
        self.must_fail("rank", self.trainer.send_weights)
        assert time.monotonic() - start < TIMEOUT_S
        assert self.ask("differs", 2) == "" and self.ask("version") == "four"
        assert self.client.versions[-1] == "four"
        try:
            self.ask("finish_weight_update")
        except RuntimeError as problem:
            assert "start_weight_update comes first" in str(problem), problem
        try:
            self.ask("start_weight_update")
            self.ask("finish_weight_update")
        except RuntimeError as problem:
            assert "new weights did not arrive whole; version 'four' stays" in str(problem), problem
        else:
            raise AssertionError("an update without weights was finished")


def _no_engine(_: Any) -> None:
    raise RuntimeError("there is no engine")


def _no_update() -> None:
    raise RuntimeError("no update now")


CHECKS = ("ranks_know_their_own", "refused", "values", "killed")


def train(rank: int, rpc: Any) -> None:
    """Checks, each reported by the first rank; one that fails ends the program."""
    one = Train(rank, rpc)
    for name in CHECKS:
        getattr(one, name)()
        if rank == 0:
            print(f"well {name}", flush=True)
    one.client.call("stop")


def serve(number: int, rpc: Any) -> None:
    model = Model(number)
    worker = vllm.Worker(rpc, FACTORY, number, TP, model)

    def compute(value: bool) -> None:
        model.computes = value

    calls: dict[str, Callable[..., Any]] = {
        "differs": model.differs,
        "version": lambda: worker.engine.version,
        "compute": compute,
    }
    worker.serve(calls)
    worker.engine.shutdown()


def main() -> None:
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    torch.set_num_threads(1)
    rank, place = int(os.environ["RANK"]), os.environ["STORE"]
    trains = rank < 2
    own = dist.FileStore(f"{place} {trains}", 2)
    dist.init_process_group("gloo", store=own, rank=rank % 2, world_size=2)
    rpc = dist.FileStore(f"{place} calls", -1)
    register()
    register()
    train(rank, rpc) if trains else serve(rank - 2, rpc)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    time.sleep(0.3)
    os._exit(0)  # gloo's threads may abort when a peer has gone first


if __name__ == "__main__":
    main()
