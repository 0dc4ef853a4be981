"""Plans that were stored are found again, byte for byte; ``python -m tests.golden --write`` renews."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import pytest

from tests.golden.records import (
    STORED,
    Json,
    answer_request,
    format_line,
    request_from_data,
    request_to_data,
)
from tests.tiers import THOROUGH

N_REQUESTS = 200


@cache
def _groups() -> dict[str, dict[str, Json]]:
    """The stored records by group and name."""
    groups: dict[str, dict[str, Json]] = {}
    for line in STORED.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        assert format_line(record) == line
        groups.setdefault(record["id"].rpartition("-")[0], {})[record["id"]] = record
    return groups


@pytest.mark.parametrize("group", sorted(_groups()))
def test_plans_are_found_again(group):
    changed = []
    for name, record in list(_groups()[group].items())[:: 1 if THOROUGH else 3]:
        request = request_from_data(record["request"])
        found = {"id": name, "request": request_to_data(request), **answer_request(request)}
        if format_line(found) != format_line(record):
            changed.append(f"{name}: {_first_difference(record, found)}")
    assert not changed, "\n".join(changed)


def test_every_kind_of_request_is_there():
    records = [record for group in _groups().values() for record in group.values()]
    assert len(records) == N_REQUESTS
    plans = [record["plan"] for record in records if "plan" in record]
    ops = Counter(step["op"] for plan in plans for step in plan["steps"])
    assert len(ops) == 7, ops
    asked = [record["request"] for record in records]
    assert {r["strategy"] for r in asked} == {"auto", "collectives", "no_permute", "direct"}
    assert {r["objective"] for r in asked} == {"time", "bytes"}
    assert {len(r["topology"]["levels"]) for r in asked} == {1, 2, 3}
    assert sum(r["donate"] for r in asked) >= 20
    assert sum("error" in record for record in records) >= 5
    assert sum(len(plan["meshes"]) > 1 for plan in plans) >= 20
    assert any(step["rounds"] > 1 for plan in plans for step in plan["steps"])


def test_a_changed_figure_is_noticed():
    record = _groups()["even"]["even-00"]
    other = json.loads(format_line(record))
    other["plan"]["steps"][0]["rounds"] += 1
    assert "plan.steps.0.rounds" in _first_difference(record, other)


def _first_difference(stored: object, found: object, where: str = "") -> str:
    """Say where two records differ first."""
    if isinstance(stored, dict) and isinstance(found, dict) and list(stored) == list(found):
        pairs = [(key, stored[key], found[key]) for key in stored]
    elif isinstance(stored, list) and isinstance(found, list) and len(stored) == len(found):
        pairs = [(str(i), a, b) for i, (a, b) in enumerate(zip(stored, found, strict=True))]
    else:
        return f"{where}: stored {stored!r:.200}, found {found!r:.200}"
    different = ((key, a, b) for key, a, b in pairs if json.dumps(a) != json.dumps(b))
    key, a, b = next(different)
    return _first_difference(a, b, f"{where}.{key}" if where else key)
