"""Requests for transfers: pairs of types by name, and options, as text that ranks compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from redist.errors import RedistError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.plan import Plan
from redist.plan.topology import Topology
from redist.planner import synthesize
from redist.runtime.copies.reduce import check_reduces
from redist.runtime.mpi_library import why_alone
from redist.runtime.ranks.links import NAMES
from redist.runtime.ranks.tokens import request_token
from redist.text.units import count_of, limit_from

Type = ArrayType | str
Named = Mapping[str, Type]


@dataclass(frozen=True, slots=True)
class TransferOptions:
    """How to transfer, beyond the types."""

    limit_bytes: int | str | None = None
    donate: bool = False
    objective: str = "time"
    strategy: str = "auto"
    topology: Topology | str | None = None
    transport: str = "auto"
    node_size: int | None = None


@dataclass(frozen=True)
class TransferRequest:
    """A request that makes sense: pairs of types by name (one, without a name, if no dict)."""

    pairs: dict[str, tuple[ArrayType, ArrayType]]
    options: TransferOptions
    is_batch: bool
    text: str = field(init=False)

    def __post_init__(self) -> None:
        arrays = ", ".join(
            f"{f'{name}: ' if self.is_batch else ''}{a} on {a.mesh} -> {b} on {b.mesh}"
            for name, (a, b) in self.pairs.items()
        )
        given = (
            f"{option.name}={getattr(self.options, option.name)}"
            for option in fields(self.options)
            if getattr(self.options, option.name) != option.default
        )
        object.__setattr__(self, "text", " ".join([arrays, *given]))

    @property
    def token(self) -> int:
        """What ranks that make this request bring to a meeting: even, below 2**57."""
        return request_token(self.text)

    def token_for(self, plans: Sequence[Plan]) -> int:
        """What ranks bring that will carry it out by these plans, on which messages depend."""
        steps = (step for plan in plans for step in plan.steps)
        said = (f"{step.action} -> {step.after} by {step.staging_bytes}" for step in steps)
        return request_token("\n".join([self.text, f"{plans[0].planned_for}", *said]))

    @property
    def tile_bytes(self) -> int:
        """The most that a rank holds or gets, of all arrays together."""
        return max(sum(pair[end].tile_bytes for pair in self.pairs.values()) for end in (0, 1))

    def plans(self, topology: Topology) -> tuple[Plan, ...]:
        """A plan for every pair."""
        options = self.options
        return tuple(
            synthesize(
                source,
                target,
                limit_bytes=options.limit_bytes,
                objective=options.objective,
                strategy=options.strategy,
                donate=options.donate,
                topology=topology,
            )
            for source, target in self.pairs.values()
        )

    @staticmethod
    def of(
        source: Type | Named,
        target: Type | Named,
        mesh: Mesh | None,
        target_mesh: Mesh | None,
        size: int,
        options: TransferOptions,
    ) -> TransferRequest:
        """The request; an error if it makes no sense on ``size`` ranks.

        >>> m = Mesh(x=2)
        >>> print(TransferRequest.of("f32[4{x}]", "f32[4]", m, None, 2, TransferOptions(donate=True)).text)
        f32[4{x}] on x=2 -> f32[4] on x=2 donate=True
        """
        for name, value, kind in (
            ("mesh", mesh, Mesh),
            ("target_mesh", target_mesh, Mesh),
            ("node_size", options.node_size, int),
        ):
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                wanted = (
                    "a Mesh, a dict or text such as 'x=4'," if kind is Mesh else "a number of ranks"
                )
                raise RequestError(f"cannot use {name}={value!r}: need {wanted} or None")
        options = replace(options, limit_bytes=limit_from(options.limit_bytes))
        if not isinstance(options.topology, Topology | None) and options.topology not in NAMES:
            known = ", ".join(map(repr, NAMES))
            raise RequestError(f"topology={options.topology!r}: need a Topology, {known} or None")
        if not isinstance(options.donate, bool):
            raise RequestError(f"donate={options.donate!r}: need a bool")
        if options.node_size is not None and options.node_size < 1:
            raise RequestError(f"node_size={options.node_size}: need at least 1")
        if options.transport not in ("auto", "mpi"):
            raise RequestError(f"unknown transport {options.transport!r}; known: auto, mpi")
        _check_is_ours(source)
        batch = isinstance(source, Mapping)
        if batch != isinstance(target, Mapping):
            raise RequestError("source and target must both be types or both be dicts of types")
        sources: Named = source if isinstance(source, Mapping) else {"": source}
        targets: Named = target if isinstance(target, Mapping) else {"": target}
        if sources.keys() != targets.keys():
            odd = ", ".join(sorted(sources.keys() ^ targets.keys()))
            raise RequestError(f"{odd}: given as source or as target, not as both")
        if not sources:
            raise RequestError("no arrays are named")
        pairs = {
            name: (_type(sources[name], mesh), _type(targets[name], target_mesh or mesh))
            for name in sources
        }
        for t in (t for pair in pairs.values() for t in pair):
            if max(t.mesh.ranks) >= size:
                raise RequestError(
                    f"{t} on {t.mesh} needs rank {max(t.mesh.ranks)}, "
                    f"but the communicator has {count_of(size, 'rank')}; "
                    f"start the program with 'mpirun -n {max(t.mesh.ranks) + 1}', "
                    f"or use a mesh of {size}{why_alone()}"
                )
            if t.pending_op is not None:
                check_reduces(t.pending_op, t.dtype)
        return TransferRequest(pairs, options, batch)


def try_request(
    source: Type | Named,
    target: Type | Named,
    mesh: Mesh | None,
    target_mesh: Mesh | None,
    size: int,
    options: TransferOptions,
) -> tuple[TransferRequest | None, RedistError | None]:
    """**Local.** The request, or the error that :meth:`TransferRequest.of` raises."""
    try:
        meshes = Mesh.of(mesh), Mesh.of(target_mesh)
        return TransferRequest.of(source, target, *meshes, size, options), None
    except RedistError as error:
        return None, error


def _check_is_ours(source: Any) -> None:
    """Raise if the type of the source is a mesh or a sharding of another framework."""
    kind = type(source)
    framework = kind.__module__.partition(".")[0].replace("jaxlib", "jax")
    if framework in ("jax", "torch"):
        raise RequestError(
            f"cannot read a {kind.__name__} as the type of a tile; use redist.{framework}.redistribute for "
            f"{'DTensors' if framework == 'torch' else 'arrays of JAX'}"
        )


def _type(t: Type, mesh: Mesh | None) -> ArrayType:
    if isinstance(t, ArrayType):
        return t
    if not isinstance(t, str):
        raise RequestError(f"{t!r} is not a type; need an ArrayType or text")
    if mesh is None:
        raise RequestError(f"the type {t!r} is text; give mesh=")
    return ArrayType.parse(t, mesh)
