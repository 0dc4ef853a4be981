"""Refits as values: limits, casts, topologies, JSON, files, and errors."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import redist
from redist import Mesh, RefitPlan, Topology, Weights
from redist.errors import (
    ArgumentError,
    ArgumentTypeError,
    LayoutError,
    MemoryLimitError,
    PlanFormatError,
    RedistError,
    WriteError,
)
from redist.plan.topology import Level
from redist.refits.senders import filled
from tests.problems.refits import random_refit
from tests.refits.test_random import plan_of
from tests.tiers import sample


def rows_to_columns(n: int = 4, **how: object) -> RefitPlan:
    source = Weights({"w": "f32[16{x}, 16]"}, Mesh(x=n))
    target = Weights({"w": "f32[16, 16{y}]"}, Mesh({"y": n}, ranks=range(n, 2 * n)))
    return redist.refit(source, target, **how)  # type: ignore[arg-type]


def test_one_byte_less_takes_another_round() -> None:
    free = rows_to_columns()
    assert free.rounds == 1
    assert rows_to_columns(limit_bytes=free.staging_bytes).rounds == 1
    less = rows_to_columns(limit_bytes=free.staging_bytes - 1)
    assert less.rounds == 2
    assert less.certificate.verdict == "proved"


def test_the_least_limit_is_one_element() -> None:
    plan = rows_to_columns(limit_bytes=4)
    assert plan.staging_bytes == 4
    assert plan.certificate.verdict == "proved"
    with pytest.raises(MemoryLimitError, match="one element has 4"):
        rows_to_columns(limit_bytes=3)


def test_copies_share_what_they_send() -> None:
    source = Weights({f"w{k}": "f32[8{x}]" for k in range(6)}, Mesh(copy=3, x=2))
    target = Weights({f"w{k}": "f32[8]" for k in range(6)}, Mesh({"y": 1}, ranks=[9]))
    plan = redist.refit(source, target)
    assert set(plan.sent_bytes.values()) == {plan.least_sent_bytes} == {32}


def test_ranks_of_the_same_node_are_preferred_and_links_are_loaded_evenly() -> None:
    nodes = Topology((Level("node", 2, 10**6, 10**5), Level("net", None, 10**7, 10**5, 10**5)))
    source = Weights({"w": "f32[64]"}, Mesh({"copy": 3}, ranks=[0, 2, 4]))
    target = Weights({"w": "f32[64]"}, Mesh({"copy": 3}, ranks=[1, 3, 5]))
    plan = redist.refit(source, target, topology=nodes)
    assert [plan.runs(rank)["peer"].tolist() for rank in (1, 3, 5)] == [[0], [2], [4]]
    # Three ranks of node 0 and one of node 1 hold all: each link takes half, not each rank a quarter.
    wide = Topology((Level("node", 4, 10**6, 10**4), Level("net", None, 10**7, 10**4, 10**5)))
    names = {f"w{k}": "f32[8]" for k in range(64)}
    source = Weights(names, Mesh({"copy": 4}, ranks=[0, 1, 2, 4]))
    sent = redist.refit(source, Weights(names, Mesh({"x": 1}, ranks=[8])), topology=wide).sent_bytes
    assert abs(sent[0] + sent[1] + sent[2] - sent[4]) <= 2 * 32


def test_loads_may_be_large_numbers() -> None:
    """Times of many terabytes are near the end of 64 bits."""
    counts = filled(np.full(300, 5 * 10**16), 10**10, 5000)
    assert counts.sum() == 5000 and set(counts.tolist()) == {16, 17}


def test_casts_count_the_narrower_dtype() -> None:
    source = Weights({"w": "f32[8{x}, 6]"}, Mesh(x=2))
    target = Weights({"w": "bf16[8, 6{y}]"}, Mesh({"y": 3}, ranks=[2, 3, 4]))
    plan = redist.refit(source, target, cast=True)
    assert plan.received_bytes == 8 * 6 * 2
    run = plan.runs(3)[0]
    assert (run["bytes"], run["count"], run["step"], run["there_step"]) == (4, 4, 4, 24)
    assert (run["offset"], run["there_offset"]) == (0, 8)
    assert plan.certificate.verdict == "proved"


def test_json_both_ways(tmp_path: Path) -> None:
    plan = plan_of(random_refit(5))
    again = RefitPlan.from_json(plan.to_json())
    assert again == plan
    for rank in plan.ranks:
        assert np.array_equal(again.runs(rank), plan.runs(rank))
    plan.save(tmp_path / "a.refit")
    assert RefitPlan.load(tmp_path / "a.refit").digest == plan.digest
    assert [p.name for p in tmp_path.iterdir()] == ["a.refit"]


def test_plans_may_be_pickled_and_copied() -> None:
    plan = plan_of(random_refit(5))
    for again in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert again == plan and again.certificate == plan.certificate
        for rank in plan.ranks:
            assert np.array_equal(again.runs(rank), plan.runs(rank))


def test_a_tensor_may_be_stored_in_two_dtypes_at_the_target_alone() -> None:
    both = {"a": "bf16[8]", "w": "f32[8]"}
    train = Weights({"w": "f32[8{x}]"}, Mesh(x=2))
    serve = Weights(both, Mesh({"y": 2}, ranks=[2, 3]), names="a = w")
    plan = redist.refit(train, serve, cast=True)
    for name, n_bytes in (("a", 8), ("w", 16)):
        runs = plan.runs(3)
        own = runs[runs["tensor"] == plan.target.stored.index(name)]
        assert (own["bytes"] * own["count"]).tolist() == [n_bytes, n_bytes]
    assert plan.certificate.verdict == "proved" and plan.check().is_right
    with pytest.raises(ArgumentError, match="the source stores it as bf16 and as f32; leave one"):
        redist.refit(serve, train, cast=True)


def test_a_tensor_has_one_shape_on_a_side() -> None:
    odd = Weights({"a": "f32[4]", "w": "f32[8]"}, Mesh(x=2), names="a = w")
    even = Weights({"w": "f32[8]"}, Mesh(x=2))
    for sides in ((odd, even), (even, odd)):
        with pytest.raises(ArgumentError, match=r"'w' makes it \[8\], another stored tensor \[4\]"):
            redist.refit(*sides)


def test_json_that_was_changed_is_refused() -> None:
    data = json.loads(rows_to_columns().to_json())
    assert data["version"] == 1
    data["source"]["types"][0][1] = "f32[16, 16{x}]"
    with pytest.raises(PlanFormatError, match="cannot read the refit"):
        RefitPlan.from_json(json.dumps(data))
    for wrong in ("", "[]", "{}", '{"kind": "refit"}', '{"kind": "refit", "version": 9}'):
        with pytest.raises(PlanFormatError):
            RefitPlan.from_json(wrong)


@pytest.mark.parametrize("seed", range(sample(40, of=4000)))
def test_json_with_anything_in_it_is_the_plan_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    plan = with_topology()
    data = json.loads(plan.to_json())
    places = list(_places(data))
    where, key = rng.choice(places)
    where[key] = rng.choice([None, -1, 10**30, "", "x", [], {}, [0], 1.5, True, "AAAA", "8"])
    with contextlib.suppress(PlanFormatError):
        assert RefitPlan.from_json(json.dumps(data)) == plan


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every dict or list with every key in it."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def with_topology() -> RefitPlan:
    odd = Topology(
        (Level('a "node"', 2, 10**6, 123_456_789), Level("net", None, 10**7, 10**9 + 7, 3))
    )
    return rows_to_columns(limit_bytes=64, topology=odd)


def test_a_topology_comes_back_as_it_was() -> None:
    plan = with_topology()
    again = RefitPlan.from_json(plan.to_json())
    assert again == plan and again.topology == plan.topology


def test_what_was_asked_is_of_the_digest() -> None:
    plans = [rows_to_columns(), rows_to_columns(cast=True), rows_to_columns(limit_bytes=2**20)]
    assert len({plan.digest for plan in plans}) == 3


def test_a_kept_file_that_is_not_the_plan_is_written_anew(tmp_path: Path) -> None:
    plan = rows_to_columns(folder=tmp_path)
    (kept,) = tmp_path.iterdir()
    good = kept.read_bytes()
    other = rows_to_columns(limit_bytes=64)
    for wrong in (b"", good[:-9], b"{}", good[:40] + b"x" + good[41:]):
        kept.write_bytes(wrong)
        assert rows_to_columns(folder=tmp_path) == plan
        assert kept.read_bytes() == good
    other.save(kept)
    assert rows_to_columns(folder=tmp_path) == plan
    assert [*tmp_path.iterdir()] == [kept] and kept.read_bytes() == good


def test_several_processes_may_keep_a_plan_at_once(tmp_path: Path) -> None:
    """As ranks of several hosts do, whose process numbers may be equal."""
    plan, path = rows_to_columns(), tmp_path / "a.refit"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: plan.save(path), range(40)))
    assert RefitPlan.load(path) == plan and [*tmp_path.iterdir()] == [path]
    with pytest.raises(WriteError, match=r"cannot write the refit to .*nowhere"):
        plan.save(tmp_path / "nowhere" / "a.refit")
    with pytest.raises(WriteError, match="cannot keep refits in"):
        rows_to_columns(folder=path)


def test_plans_are_kept_by_the_digest_of_what_was_asked(tmp_path: Path) -> None:
    first = rows_to_columns(folder=tmp_path)
    kept = [*tmp_path.iterdir()]
    assert len(kept) == 1
    assert rows_to_columns(folder=tmp_path) == first
    rows_to_columns(folder=tmp_path, limit_bytes=64)
    assert len([*tmp_path.iterdir()]) == 2


def test_a_table_says_types_bytes_senders_rounds_and_other_schedules() -> None:
    text = str(rows_to_columns(limit_bytes=256))
    for words in (
        "f32[16{x}, 16]",
        "1.00 x lower bound",
        "limit 256 B",
        "stage by stage",
        "whole tensors",
    ):
        assert words in text, text
    plan = rows_to_columns()
    assert "certificate" not in str(plan)
    assert plan.certificate.verdict == "proved"
    assert "certificate proved" in str(plan)


def test_types_by_pattern_are_settled_by_the_other_side() -> None:
    train = Weights({f"l.{n}.{x}": "bf16[8{dp}, 4]" for n in range(2) for x in "qk"}, Mesh(dp=2))
    serve = Weights.declare({"*.qk": "8{tp}+8{tp}, {}"}, Mesh({"tp": 2}, ranks=[2, 3]))
    plan = redist.refit(train, serve, names="*.qk[8|8, :] = *.q, *.k")
    assert plan.target.stored == ("l.0.qk", "l.1.qk")
    assert str(plan.target.types["l.0.qk"]) == "bf16[2*8{tp}, 4]"
    assert plan.received_bytes == plan.lower_bound_bytes == 2 * 2 * 8 * 4 * 2


@pytest.mark.parametrize(
    ("source", "target", "how", "words"),
    [
        ({"a": "f32[8]"}, {"b": "f32[8]"}, {}, "the target needs 'b', which the source does not have"),
        ({"a": "f32[8]"}, {"a": "f32[9]"}, {}, r"shape \(8,\) at the source and \(9,\)"),
        ({"a": "f32[8]"}, {"a": "f16[8]"}, {}, "say cast=True"),
        ({"a": "f32[8] sum{x}"}, {"a": "f32[8]"}, {}, "reduce it first"),
        ({"a": "f32[8]"}, {"a": "f32[8"}, {}, "cannot parse"),
        ({"a": "f32[8]"}, {"a": "f32[8]"}, {"limit_bytes": "much"}, "cannot read 'much'"),
        ({"a": 7}, {"a": "f32[8]"}, {}, "need an ArrayType or text"),
    ],
)  # fmt: skip
def test_errors(
    source: dict[str, str], target: dict[str, str], how: dict[str, object], words: str
) -> None:
    with pytest.raises(RedistError, match=words):
        redist.refit(Weights(source, Mesh(x=2)), Weights(target, Mesh(x=2)), **how)  # type: ignore[arg-type]


def test_errors_of_sides() -> None:
    w = Weights({"a": "f32[8]"}, Mesh(x=2), names="a[4|4] = b, c")
    with pytest.raises(ArgumentError, match="has rules already"):
        redist.refit(w, w, names="a[4|4] = d, e")
    with pytest.raises(ArgumentError, match=r"need redist\.Weights"):
        redist.refit({"a": "f32[8]"}, w)  # type: ignore[arg-type]
    for wrong in ({1: "f32[8]"}, ["f32[8]"]):
        with pytest.raises(ArgumentTypeError, match="need a dict of types by name"):
            Weights(wrong, Mesh(x=2))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"source does not have \(it has no tensors\)"):
        redist.refit(Weights({}, Mesh(x=2)), w)
    with pytest.raises(ArgumentError, match="no mesh"):
        Weights({"a": "f32[8]"})
    open_ = Weights.declare({"*": None}, Mesh(x=2))
    with pytest.raises(ArgumentError, match="patterns alone"):
        redist.refit(open_, open_)
    with pytest.raises(ArgumentError, match="no pattern matches 'b'"):
        Weights.declare({"a": None}, Mesh(x=2), shapes={"a": "f32[2]", "b": "f32[2]"})
    with pytest.raises(ArgumentError, match=r"'c\.\*' matches none"):
        Weights.declare({"c.*": None, "*": None}, Mesh(x=2), shapes={"a": "f32[2]"})
    with pytest.raises(LayoutError, match="it has shape"):
        Weights.declare({"a": "f32[4]"}, Mesh(x=2), shapes={"a": (2,)})
    with pytest.raises(ArgumentError, match="its dtype is not known"):
        Weights.declare({"a": "{x}"}, Mesh(x=2), shapes={"a": (2,)})
