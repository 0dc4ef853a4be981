"""docs/reference/plan.schema.json: it accepts every plan and refuses what is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import redist
from redist.plan.steps import OP_NAMES
from tests.docs.documents import ROOT
from tests.golden.records import STORED

SCHEMA = json.loads((ROOT / "docs/reference/plan.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
LINES = [json.loads(line) for line in STORED.read_text(encoding="utf-8").splitlines()]
GOLDEN = {line["id"]: line["plan"] for line in LINES if "plan" in line}
MESH = redist.Mesh(x=2, y=4)


def complete(plan: dict[str, Any]) -> dict[str, Any]:
    """A stored plan with the prover's seconds, which are not stored."""
    return {**plan, "certificate": {**plan["certificate"], "seconds": 0.5}}


def fresh() -> dict[str, Any]:
    plan = redist.synthesize("f32[8{x}, 8{y}]", "f32[8, 8]", mesh=MESH, strategy="collectives")
    data: dict[str, Any] = json.loads(plan.to_json())
    return data


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_every_golden_plan_is_valid() -> None:
    wrong = {
        name: [error.message for error in VALIDATOR.iter_errors(complete(plan))][:3]
        for name, plan in GOLDEN.items()
    }
    assert len(wrong) > 100
    assert not {name: errors for name, errors in wrong.items() if errors}


def test_golden_plans_have_every_step_and_the_schema_too() -> None:
    used = {step["op"] for plan in GOLDEN.values() for step in plan["steps"]}
    assert used == set(OP_NAMES.values())
    assert set(SCHEMA["$defs"]["step"]["properties"]["op"]["enum"]) == used


def test_a_plan_of_today_is_valid() -> None:
    assert not list(VALIDATOR.iter_errors(fresh()))


@pytest.mark.parametrize(
    "dim", ["8{x}+2*4{x}", "2*8{x}", "3*(4{x}+1)+1", "16{x,y/1@1}", "16{x=7;9}", "8+8{y:(1)2}"]
)
def test_plans_of_dims_that_are_not_plain_are_valid(dim: str) -> None:
    plan = redist.synthesize(f"f32[{dim}, 8]", "f32[16, 8{y}]", mesh=MESH)
    data = json.loads(plan.to_json())
    assert data["version"] == 2 and data["source"]["dims"][0] == dim
    assert not list(VALIDATOR.iter_errors(data))


@pytest.mark.parametrize("field", SCHEMA["required"])
def test_no_field_may_be_missing(field: str) -> None:
    data = fresh()
    del data[field]
    assert not VALIDATOR.is_valid(data)


def _set(*path: Any) -> Callable[[Any], None]:
    """A change: the value at the end of a path."""
    *way, last, value = path

    def change(data: Any) -> None:
        for key in way:
            data = data[key]
        data[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("version", 3),
        _set("surprise", 1),
        _set("received_bytes", -1),
        _set("received_bytes", 1.5),
        _set("shape", [8, "8"]),
        _set("meshes", []),
        _set("meshes", 0, "axes", [["x"]]),
        _set("meshes", 0, "ranks", [0, 0]),
        _set("source", "dims", [["x:2"], []]),
        _set("source", "dims", ["8", []]),
        _set("source", "dims", ["x", []]),
        _set("source", "dims", ["8{x} + 8", []]),
        _set("source", "pending", {"mean": ["x"]}),
        _set("source", "pending", {"sum": ["x"], "max": ["y"]}),
        _set("steps", 0, "op", "teleport"),
        _set("steps", 0, "moves", [["x", 0, 1]]),
        _set("steps", 0, "op", "all_reduce"),
        _set("steps", 0, "op", "exchange"),
        _set("steps", 0, "axes", ["x"]),
        _set("steps", 0, "pending", {"sum": ["x"]}),
        _set("steps", 0, "surprise", 1),
        _set("steps", 0, "messages", [1]),
        _set("steps", 0, "events", 0, "at", "nowhere"),
        _set("objective", "beauty"),
        _set("donate", 1),
        _set("certificate", "verdict", "likely"),
    ],
)
def test_what_is_no_plan_is_refused(change: Callable[[Any], None]) -> None:
    data = deepcopy(fresh())
    change(data)
    assert not VALIDATOR.is_valid(data)
