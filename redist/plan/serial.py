"""Write plans as JSON, and read them back."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from redist.errors import PlanFormatError, RedistError
from redist.layout.array_type import ArrayType
from redist.layout.axes import SubAxis, format_axes
from redist.layout.mesh import Mesh
from redist.layout.notation import parse_dim
from redist.plan.plan import Alternative, Certificate, Plan
from redist.plan.request import OBJECTIVES, STRATEGIES
from redist.plan.steps import (
    MIDDLE,
    OP_NAMES,
    Action,
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    Event,
    Exchange,
    ReduceScatter,
    Slice,
    Step,
)

VERSIONS = (1, 2)
"""Written is the first that can say the plan: 2 if a step moves several axes as one block, or if dims have
segments, else 1."""
T = TypeVar("T")


def plan_to_json(plan: Plan) -> str:
    """JSON text of a plan."""
    return json.dumps(plan_to_dict(plan), indent=1)


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """A plan as plain data; docs/reference/plan-json.md has the fields."""
    meshes = list(dict.fromkeys(t.mesh for t in plan.types))
    certificate = None
    if plan.certificate is not None:
        certificate = asdict(plan.certificate)
        certificate["counterexample"] = dict(plan.certificate.counterexample)
    return {
        "version": VERSIONS[
            any(map(_moves_block, plan.steps)) or not all(t.is_plain for t in plan.types)
        ],
        "meshes": [_mesh_to_dict(mesh) for mesh in meshes],
        "dtype": plan.source.dtype.name,
        "shape": list(plan.source.shape),
        "source": _type_to_dict(plan.source, meshes),
        "target": _type_to_dict(plan.target, meshes),
        "steps": [_step_to_dict(step, meshes) for step in plan.steps],
        "received_bytes": plan.received_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "naive_received_bytes": plan.naive_received_bytes,
        "naive_peak_bytes": plan.naive_peak_bytes,
        "peak_bytes": plan.peak_bytes,
        "peak_bytes_if_kept": plan.peak_bytes_if_kept,
        "peak_bytes_if_donated": plan.peak_bytes_if_donated,
        "time_ps": plan.time_ps,
        "limit_bytes": plan.limit_bytes,
        "objective": plan.objective,
        "strategy": plan.strategy,
        "donate": plan.donate,
        "search": plan.search,
        **({} if plan.search_bound is None else {"search_bound": plan.search_bound}),
        "considered": [asdict(alternative) for alternative in plan.considered],
        "certificate": certificate,
    }


def _mesh_to_dict(mesh: Mesh) -> dict[str, Any]:
    plain = mesh.ranks == range(mesh.n_devices)
    return {
        "axes": [[name, size] for name, size in mesh.axes],
        "ranks": None if plain else list(mesh.ranks),
    }


def _type_to_dict(t: ArrayType, meshes: list[Mesh]) -> dict[str, Any]:
    pending = {t.pending_op: [p.text(t.mesh) for p in t.pending_axes]} if t.pending_op else {}
    dims: list[Any] = [[part.text(t.mesh) for part in dim] for dim in t.dims]
    for i in range(t.ndim):
        if t.segments_of(i):
            dims[i] = t.dim_text(i)
    return {"mesh": meshes.index(t.mesh), "dims": dims, "pending": pending}


def _step_to_dict(step: Step, meshes: list[Mesh]) -> dict[str, Any]:
    mesh = step.after.mesh
    details: dict[str, Any]
    match step.action:
        case Slice(moves, pending_op, pending):
            details = {"moves": [[part.text(mesh), dim] for part, dim in moves]}
            if pending_op is not None:
                details["pending"] = {pending_op: [part.text(mesh) for part in pending]}
        case AllGather(moves):
            details = {"moves": [[part.text(mesh), dim] for part, dim in moves]}
        case AllToAll(triples):
            details = {"moves": [[format_axes(mesh, block), i, j] for block, i, j in triples]}
        case AllPermute() | Exchange() | ReduceScatter():
            details = {}
        case AllReduce(axes):
            details = {"axes": [part.text(mesh) for part in axes]}
    return {
        "op": OP_NAMES[type(step.action)],
        **details,
        "after": _type_to_dict(step.after, meshes),
        "over": [part.text(mesh) for part in step.over],
        "group": step.group,
        "messages": list(step.messages_range),
        "received_bytes": step.received_bytes,
        "received_range_bytes": list(step.received_range_bytes),
        "sent_worst_bytes": step.sent_worst_bytes,
        "rounds": step.rounds,
        "time_ps": step.time_ps,
        "peak_bytes": step.peak_bytes,
        "events": [_event_to_dict(event) for event in step.events],
    }


def _moves_block(step: Step) -> bool:
    match step.action:
        case AllToAll(triples):
            return any(len(block) > 1 for block, _, _ in triples)
        case _:
            return False


def _event_to_dict(event: Event) -> dict[str, Any]:
    """An event; version 1 of the format calls what lies between the steps ``out``."""
    return {**asdict(event), "what": "out" if event.what == MIDDLE else event.what}


def plan_from_json(text: str) -> Plan:
    """Read the plan that ``text`` describes; any other text raises one clear error."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanFormatError(f"cannot read the plan: it is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise PlanFormatError("cannot read the plan: expected a JSON object")
    if data.get("version") not in VERSIONS:
        raise PlanFormatError(
            f"cannot read the plan: version {data.get('version')!r}; "
            f"this redist reads {VERSIONS[0]} to {VERSIONS[-1]}"
        )
    try:
        return _plan(data)
    except RedistError as error:
        raise PlanFormatError(f"cannot read the plan: {error}") from None
    except KeyError as error:
        raise PlanFormatError(f"cannot read the plan: field {error} is missing") from None
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise PlanFormatError(f"cannot read the plan: {error}") from None


def _plan(data: Mapping[str, Any]) -> Plan:
    meshes = [
        Mesh([(str(name), size) for name, size in item["axes"]], ranks=item["ranks"])
        for item in data["meshes"]
    ]

    def read_type(item: Mapping[str, Any]) -> ArrayType:
        mesh = meshes[_one_of(item["mesh"], range(len(meshes)))]
        pending = item["pending"]
        texts = {i: dim for i, dim in enumerate(item["dims"]) if isinstance(dim, str)}
        plain = ArrayType.of(
            mesh,
            str(data["dtype"]),
            [_int(n) for n in data["shape"]],
            [() if i in texts else _parts(dim, mesh) for i, dim in enumerate(item["dims"])],
            {op: _parts(axes, mesh) for op, axes in pending.items()},
        )
        if not texts:
            return plain
        own = plain.shape, plain.dims, plain.pending_op, plain.pending_axes
        segments = tuple(parse_dim(texts[i], mesh) if i in texts else () for i in range(plain.ndim))
        return ArrayType(mesh, plain.dtype, *own, segments)

    return Plan(
        source=read_type(data["source"]),
        target=read_type(data["target"]),
        steps=tuple(_step(item, read_type) for item in data["steps"]),
        lower_bound_bytes=_int(data["lower_bound_bytes"]),
        naive_received_bytes=_int(data["naive_received_bytes"]),
        naive_peak_bytes=_int(data["naive_peak_bytes"]),
        limit_bytes=None if data["limit_bytes"] is None else _int(data["limit_bytes"]),
        objective=_one_of(data["objective"], OBJECTIVES),
        strategy=_one_of(data["strategy"], STRATEGIES),
        donate=bool(_one_of(data["donate"], (True, False))),
        search=_one_of(data["search"], ("exact", "bounded")),
        search_bound=_int(data["search_bound"]) if "search_bound" in data else None,
        considered=tuple(_alternative(item) for item in data["considered"]),
        certificate=_certificate(data["certificate"]),
    )


def _certificate(item: Mapping[str, Any] | None) -> Certificate | None:
    if item is None:
        return None
    sizes = tuple((str(name), _int(value)) for name, value in item["counterexample"].items())
    verdict = _one_of(item["verdict"], ("proved", "refuted", "unknown"))
    texts = {name: str(item[name]) for name in ("bound", "scope", "method", "reason")}
    seconds = item["seconds"]
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise PlanFormatError(f"expected a number of seconds, found {seconds!r}")
    return Certificate(
        verdict=verdict,
        bound_bytes=_int(item["bound_bytes"]),
        counterexample=sizes,
        seconds=float(seconds),
        **texts,
    )


def _alternative(item: Mapping[str, Any]) -> Alternative:
    return Alternative(
        name=str(item["name"]),
        steps=str(item["steps"]),
        time_ps=_int(item["time_ps"]),
        received_bytes=_int(item["received_bytes"]),
        messages=_int(item["messages"]),
        peak_bytes=_int(item["peak_bytes"]),
        note=str(item["note"]),
    )


def _event(item: Mapping[str, Any]) -> Event:
    what = MIDDLE if item["what"] == "out" else str(item["what"])
    born, freed = _int(item["born"]), _int(item["freed"])
    return Event(what, _int(item["n_bytes"]), born, freed, str(item["at"]))


def _step(item: Mapping[str, Any], read_type: Callable[[Mapping[str, Any]], ArrayType]) -> Step:
    after = read_type(item["after"])
    least, most = item["received_range_bytes"]
    few, many = item["messages"]
    return Step(
        action=_action(item, after),
        after=after,
        events=tuple(_event(e) for e in item["events"]),
        rounds=_int(item["rounds"]),
        over=tuple(_part(axis, after.mesh) for axis in item["over"]),
        group=_int(item["group"]),
        received_bytes=_int(item["received_bytes"]),
        received_range_bytes=(_int(least), _int(most)),
        sent_worst_bytes=_int(item["sent_worst_bytes"]),
        messages_range=(_int(few), _int(many)),
        time_ps=_int(item["time_ps"]),
        peak_bytes=_int(item["peak_bytes"]),
    )


def _action(item: Mapping[str, Any], after: ArrayType) -> Action:
    mesh = after.mesh
    match item["op"]:
        case "slice":
            op, axes = next(iter(item.get("pending", {}).items()), (None, []))
            moves = tuple((_part(axis, mesh), _int(dim)) for axis, dim in item["moves"])
            return Slice(moves, op, tuple(_part(axis, mesh) for axis in axes))
        case "all_gather":
            return AllGather(tuple((_part(axis, mesh), _int(dim)) for axis, dim in item["moves"]))
        case "all_to_all":
            return AllToAll(
                tuple((_block(axes, mesh), _int(i), _int(j)) for axes, i, j in item["moves"])
            )
        case "all_permute":
            return AllPermute(after)
        case "exchange":
            return Exchange(after)
        case "reduce_scatter":
            return ReduceScatter(after)
        case "all_reduce":
            return AllReduce(tuple(_part(axis, mesh) for axis in item["axes"]))
        case other:
            known = ", ".join(OP_NAMES.values())
            raise PlanFormatError(f"unknown op {other!r}; known: {known}")


def _block(text: Any, mesh: Mesh) -> tuple[SubAxis, ...]:
    """``x,y:(2)3``."""
    return tuple(_part(axis, mesh) for axis in str(text).split(","))


def _parts(texts: Any, mesh: Mesh) -> list[SubAxis]:
    return [_part(axis, mesh) for axis in texts]


def _part(text: Any, mesh: Mesh) -> SubAxis:
    """``x`` or ``x:(2)3``."""
    name, colon, tail = str(text).partition(":")
    if not colon:
        return SubAxis(name, 1, mesh.size(name))
    pre, _, size = tail.removeprefix("(").partition(")")
    return SubAxis(name, int(pre), int(size))


def _int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise PlanFormatError(f"expected a whole number from 0, found {value!r}")
    return value


def _one_of(value: Any, known: Collection[T]) -> T:
    for item in known:
        if type(item) is type(value) and item == value:
            return item
    raise PlanFormatError(f"expected one of {', '.join(map(str, known))}, found {value!r}")
