"""One call from two types to a certified plan: find it, check it, certify it, cache it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from redist.errors import LayoutError, RequestError
from redist.layout.array_type import ArrayType
from redist.layout.axes import whole
from redist.layout.mesh import Mesh
from redist.layout.tiles import leaves_of
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.request import Request
from redist.plan.rules import difference
from redist.plan.topology import Topology
from redist.text.units import limit_from

# Types of gradients: where an array is replicated, its gradient is a pending sum, and the reverse.


def dual_type(t: ArrayType) -> ArrayType:
    """The dual of type ``t``: the type of a gradient with respect to an array of type ``t``.

    >>> from redist.layout.mesh import Mesh
    >>> print(dual_type(ArrayType.parse("f32[8{x}, 8]", Mesh(x=2, y=4))))
    f32[8{x}, 8] sum{y}
    >>> print(dual_type(ArrayType.parse("f32[8{x}, 8] sum{y}", Mesh(x=2, y=4))))
    f32[8{x}, 8]

    If each device multiplies its tile of an array of type ``t`` by its tile of an array of the dual type,
    the products add up to the inner product of the two global arrays.
    """
    if t.pending_op not in (None, "sum"):
        raise LayoutError(f"cannot take the dual of {t}: a pending {t.pending_op} is not linear")
    for dim in range(t.ndim):
        if any(cut.n_tiles != t.cuts[dim] for _, cut in leaves_of(t, dim)):
            raise LayoutError(
                f"cannot take the dual of {t}: a segment of dim {dim} is replicated along an axis that cuts "
                "another, and a sum can be pending for a whole array only"
            )
    everything = [whole(t.mesh, name) for name, _ in t.mesh.axes]
    idle = difference(everything, t.used)
    return t.with_pending("sum" if idle else None, idle)


def synthesize(
    source: ArrayType | str,
    target: ArrayType | str,
    *,
    mesh: Mesh | Mapping[str, int] | str | None = None,
    target_mesh: Mesh | Mapping[str, int] | str | None = None,
    limit_bytes: int | str | None = None,
    objective: str = "time",
    strategy: str = "auto",
    donate: bool = False,
    topology: Topology | None = None,
) -> Plan:
    """The best plan that turns ``source`` into ``target``, with a proof of its memory bound.

    >>> plan = synthesize("f32[4096{x}, 4096{y}]", "f32[4096{y}, 4096{x}]", mesh=Mesh(x=2, y=4))
    >>> [step.op for step in plan.steps], plan.received_bytes == plan.lower_bound_bytes
    (['exchange'], True)
    >>> plan.certificate.verdict
    'proved'

    ``source`` and ``target`` may be text; then give ``mesh``, and also ``target_mesh`` if the target is
    on other ranks or axes. ``limit_bytes``, a number or text such as ``"64MiB"``, bounds
    ``plan.peak_bytes``; if no plan fits, :class:`NoPlanError` tells the smallest limit that is enough.
    The plan minimises the ``objective``: ``time`` (as modelled for ``topology``) or ``bytes`` (the total
    received). ``strategy`` restricts the steps: ``auto``, ``collectives`` (no exchange), ``no_permute``
    (neither exchange nor all_permute) or ``direct`` (one step). With ``donate``, the source is freed
    after the first step. Equal requests are answered from a cache.
    """
    mesh, target_mesh = Mesh.of(mesh), Mesh.of(target_mesh)
    for name, value, kinds in (
        ("mesh", mesh, (Mesh, type(None))),
        ("target_mesh", target_mesh, (Mesh, type(None))),
        ("topology", topology, (Topology, type(None))),
        ("donate", donate, (bool,)),
        ("source", source, (ArrayType, str)),
        ("target", target, (ArrayType, str)),
        ("objective", objective, (str,)),
        ("strategy", strategy, (str,)),
    ):
        if not isinstance(value, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
            wanted += ", a dict or text such as 'x=4'" if Mesh in kinds else ""
            raise RequestError(f"cannot plan: {name}={value!r}; need {wanted}")
    limit = limit_from(limit_bytes)
    return _synthesize_cached(
        source, target, mesh, target_mesh, limit, objective, strategy, donate, topology
    )


@lru_cache(maxsize=8192)
def _synthesize_cached(
    source: ArrayType | str,
    target: ArrayType | str,
    mesh: Mesh | None,
    target_mesh: Mesh | None,
    limit_bytes: int | None,
    objective: str,
    strategy: str,
    donate: bool,
    topology: Topology | None,
) -> Plan:
    a = _resolve(source, mesh, "source", "mesh")
    b = _resolve(target, target_mesh or mesh, "target", "mesh (or target_mesh)")
    return plan_request(Request(a, b, limit_bytes, objective, strategy, donate, topology or FLAT))


@lru_cache(maxsize=8192)
def plan_request(request: Request) -> Plan:
    """Find the best plan for a request, check it and certify it; results are cached."""
    from redist.check.prove import certify
    from redist.check.replay import check_plan
    from redist.synth.find import find_plan

    plan = find_plan(request)
    check_plan(plan)
    return plan.with_certificate(certify(plan))


def adjoint(plan: Plan, topology: Topology | None = None) -> Plan:
    """The plan that moves gradients backwards: from the dual of the target to the dual of the source.

    >>> plan = synthesize("f32[8{x}]", "f32[8]", mesh=Mesh(x=2))
    >>> back = adjoint(plan)
    >>> [step.op for step in plan.steps], [step.op for step in back.steps]
    (['all_gather'], ['reduce_scatter'])

    The gradient of a replicated array is a pending sum over its replicas; see :func:`dual_type`.
    """
    return synthesize(
        dual_type(plan.target),
        dual_type(plan.source),
        objective=plan.objective,
        strategy=plan.strategy,
        topology=topology,
    )


def _resolve(t: ArrayType | str, mesh: Mesh | None, what: str, option: str) -> ArrayType:
    if isinstance(t, ArrayType):
        if mesh is not None and t.mesh != mesh:
            raise RequestError(
                f"cannot plan: the {what} {t} has mesh {t.mesh}, but {option}={mesh} was given"
            )
        return t
    if mesh is None:
        raise RequestError(f"cannot plan: the {what} {t!r} is text; give {option}=")
    return ArrayType.parse(t, mesh)
