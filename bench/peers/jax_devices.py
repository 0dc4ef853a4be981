"""JAX on CPU devices of one process; ``python -m bench.peers.jax_devices N`` answers questions on stdin.

A process of its own, because the number of devices is fixed once jax is imported; it uses no MPI. Bytes are
counted in compiled programs. A device of a group of g that puts L bytes into a collective receives L(g-1) in
an all-gather, L(g-1)/g in an all-to-all or reduce-scatter and 2L(g-1)/g in an all-reduce, as rings do; a
permute moves whole operands.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.layouts.workload import arrays_in
from bench.peers.programs import Call, Programs, Results
from bench.problems.installed import version
from redist.layout.array_type import ArrayType
from redist.layout.axes import refined_parts
from redist.layout.mesh import Mesh
from redist.lower.hlo import received_bytes, received_elems
from redist.measure import pages
from redist.measure.values import AnyArray, ValueBox, source_values


def force_devices(n: int) -> None:
    """Give JAX so many devices on this machine's processors; it must not have been imported yet."""
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={n}"
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def ends_of(question: dict[str, Any]) -> tuple[ArrayType, Any, Any]:
    """The source of a question, its sharding and the target's, on all devices: one mesh for both."""
    import jax
    from jax.sharding import NamedSharding

    from redist.jax.types import refined_mesh, spec_of

    mesh = Mesh(dict(question["axes"]))
    source, target = (ArrayType.parse(question[end], mesh) for end in ("source", "target"))
    atoms = refined_parts(mesh, [*source.used, *target.used])
    devices = refined_mesh(jax.devices(), mesh, atoms)
    return source, *(NamedSharding(devices, spec_of(t, atoms)) for t in (source, target))


def compile_move(question: dict[str, Any]) -> tuple[int, int]:
    """Elements that all devices receive in what XLA compiles, and bytes of temporaries on one."""
    import jax

    t, source, target = ends_of(question)
    move = jax.jit(lambda a: a, in_shardings=source, out_shardings=target)
    array = jax.ShapeDtypeStruct(t.shape, t.dtype.to_numpy())
    compiled = move.lower(array).compile()
    temporaries = int(compiled.memory_analysis().temp_size_in_bytes)
    return received_elems(compiled.as_text(), len(jax.devices())), temporaries


class JaxMover:
    """One redistribution, ready to run."""

    def __init__(self, question: dict[str, Any]) -> None:
        import jax

        pages.give_back()
        self.base_bytes = pages.held_bytes() if pages.can_measure() else None
        self._type, source, target = ends_of(question)
        self._input: Any = jax.make_array_from_callback(self._type.shape, source, self._tile)
        self._input.block_until_ready()
        self._target = target
        self._output: Any = None
        if question["way"] == "jit":
            self._move: Any = (
                jax.jit(lambda a: a, out_shardings=target).lower(self._input).compile()
            )
        else:
            self._move = lambda a: jax.device_put(a, target)

    def run(self, times: int = 1) -> None:
        """Move so many times, one after another."""
        for _ in range(times):
            self._output = None
            self._output = self._move(self._input)
            self._output.block_until_ready()

    def is_right(self) -> bool:
        """Whether every device has its tile of the target."""
        self.run()
        there = self._output.sharding.is_equivalent_to(self._target, len(self._type.shape))
        return bool(there) and all(
            np.array_equal(np.asarray(tile.data), self._tile(tile.index))
            for tile in self._output.addressable_shards
        )

    def peak_bytes(self) -> int | None:
        """What one device holds at most during a move, source and target included.

        XLA keeps what it allocated for later, so what it says itself counts where it says something;
        else what the process holds over what it held without this, divided by the devices.
        """
        if hasattr(self._move, "memory_analysis"):
            said = self._move.memory_analysis()
            return int(
                said.argument_size_in_bytes + said.output_size_in_bytes + said.temp_size_in_bytes
            )
        if self.base_bytes is None:
            return None
        self.run()
        pages.give_back()
        pages.reset_peak()
        self.run()
        peak = pages.private_peak_bytes() + pages.shared_bytes() - self.base_bytes
        return peak // len(self._input.addressable_shards)

    def _tile(self, index: tuple[slice, ...]) -> AnyArray:
        """The values of one device, as the other contenders have them."""
        spans = [s.indices(n)[:2] for s, n in zip(index, self._type.shape, strict=True)]
        box = ValueBox(tuple(a for a, _ in spans), tuple(b for _, b in spans))
        return source_values(self._type, box, 0)


class JaxPrograms(Programs):
    """Programs compiled for all devices; results lie as XLA likes."""

    def __init__(self, devices: int) -> None:
        force_devices(devices)
        import jax
        from jax.sharding import Mesh as Devices

        self.library, self.xp = f"JAX {version('jax')}", jax.numpy
        self._jax, self._mesh = jax, Devices(np.array(jax.devices()), ("x",))
        self._compiled: Any = None

    def place(self, array: Any, cut: int | None) -> Any:
        """An array on all devices."""
        from jax.sharding import NamedSharding, PartitionSpec

        spec = PartitionSpec(*("x" if dim == cut else None for dim in range(array.ndim)))
        return self._jax.device_put(array, NamedSharding(self._mesh, spec))

    def ready(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Call:
        """Compiled before; a call waits for its results."""
        compiled = self._compiled = self._jax.jit(function).lower(*arrays).compile()
        return lambda: arrays_in(self._jax.block_until_ready(compiled(*arrays)))

    def values(self, results: Results) -> Results:
        """Gathered."""
        return [np.asarray(one) for one in results]

    def counted(self, call: Call) -> tuple[Results, int | None, int | None]:
        """By the collectives of the compiled program."""
        found = received_bytes(self._compiled.as_text(), self._mesh.size)
        return call(), *found


def answer(question: dict[str, Any], movers: dict[int, JaxMover]) -> Any:
    """Do what a question asks for."""
    if question["do"] == "make":
        number = max(movers, default=0) + 1
        movers[number] = JaxMover(question)
        return number
    if question["do"] == "compile":
        return compile_move(question)
    mover = movers[question["number"]]
    match question["do"]:
        case "run":
            return mover.run(question["times"])
        case "check":
            return mover.is_right()
        case "peak":
            return mover.peak_bytes()
        case _:
            del movers[question["number"]]
            return None


def main() -> None:
    """Answer questions until there are no more."""
    force_devices(int(sys.argv[1]))
    movers: dict[int, JaxMover] = {}
    for line in sys.stdin:
        try:
            said: dict[str, Any] = {"value": answer(json.loads(line), movers)}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
