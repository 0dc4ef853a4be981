"""A request and its answer as one line of JSON, both ways."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redist.errors import NoPlanError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.plan.request import Request
from redist.plan.topology import Level, Topology
from redist.planner import plan_request

Json = dict[str, Any]
STORED = Path(__file__).with_name("plans.jsonl")


def answer_request(request: Request) -> Json:
    """Plan a request: the plan's JSON without the prover's seconds, or the error's text."""
    try:
        plan = plan_request(request)
    except NoPlanError as error:
        return {"error": str(error), "least_bytes": error.least_bytes}
    data: Json = json.loads(plan.to_json())
    del data["certificate"]["seconds"]
    return {"plan": data}


def format_line(data: Json) -> str:
    """Write one record; fields keep their order, so equal lines mean equal bytes."""
    return json.dumps(data, separators=(",", ":"))


def request_to_data(request: Request) -> Json:
    """Write a request as plain data that needs no code of today to be understood."""
    return {
        "source": [str(request.source), _mesh_to_data(request.source.mesh)],
        "target": [str(request.target), _mesh_to_data(request.target.mesh)],
        "limit_bytes": request.limit_bytes,
        "objective": request.objective,
        "strategy": request.strategy,
        "donate": request.donate,
        "topology": _topology(request.topology),
    }


def request_from_data(data: Json) -> Request:
    """Read what :func:`request_to_data` wrote."""
    topology = data["topology"]
    levels = tuple(Level(**level) for level in topology["levels"])
    return Request(
        _type_from_data(*data["source"]),
        _type_from_data(*data["target"]),
        data["limit_bytes"],
        data["objective"],
        data["strategy"],
        data["donate"],
        Topology(levels, topology["step_ps"]),
    )


def _mesh_to_data(mesh: Mesh) -> Json:
    return {"axes": [list(axis) for axis in mesh.axes], "ranks": list(mesh.ranks)}


def _type_from_data(text: str, mesh: Json) -> ArrayType:
    axes = [(name, size) for name, size in mesh["axes"]]
    return ArrayType.parse(text, Mesh(axes, ranks=mesh["ranks"]))


def _topology(topology: Topology) -> dict[str, Any]:
    """Levels as they were stored before ranks could share links: no word of links that are not."""
    data = asdict(topology)
    for level in data["levels"]:
        if not level["link_fs"]:
            del level["link_fs"]
    return data
