"""Transfers as ModelExpress and vLLM describe them: right ones pass, planted faults are named."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import redist
from redist.check import modelexpress, vllm
from redist.check.run_rows import copied
from redist.check.verdict import Verdict
from redist.errors import ArgumentError

NAMES = {"q": [12, 8], "k": [4, 8], "out": [8, 12]}


def refit() -> dict[str, Any]:
    """Trainers that hold rows; two receivers with q and k fused, and columns of out, transposed on one."""
    tensors, at = [], itertools.count(4096, 4096)
    for name, shape in NAMES.items():
        half = shape[0] // 2
        shards = [
            {
                "agent_name": f"t{k}",
                "addr": next(at),
                "shard_offset": [k * half, 0],
                "shape": [half, shape[1]],
            }
            for k in range(2)
        ]
        tensors.append(
            {
                "name": name,
                "dtype": "torch.bfloat16",
                "elsize": 2,
                "full_shape": shape,
                "shards": shards,
            }
        )
    return {"tensors": tensors, "receivers": [receiver(tensors, k) for k in range(2)]}


def receiver(tensors: list[dict[str, Any]], tp: int) -> dict[str, Any]:
    rows = lambda name: [[tp * NAMES[name][0] // 2, (tp + 1) * NAMES[name][0] // 2], [0, 8]]  # noqa: E731
    columns = [[0, 8], [tp * 6, tp * 6 + 6]]
    out_stride = [1, 8] if tp else [6, 1]
    copies = [
        {
            "src_name": "q",
            "box": rows("q"),
            "param_name": "qk",
            "dest_offset": 0,
            "dest_stride": [8, 1],
        },
        {
            "src_name": "k",
            "box": rows("k"),
            "param_name": "qk",
            "dest_offset": 48,
            "dest_stride": [8, 1],
        },
        {
            "src_name": "out",
            "box": columns,
            "param_name": "out",
            "dest_offset": 0,
            "dest_stride": out_stride,
        },
    ]
    by_name = {one["name"]: one for one in tensors}
    segments = [s for one in copies for s in segments_of(one, by_name[one["src_name"]])]
    return {"agent_name": f"r{tp}", "copies": copies, "segments": segments}


def segments_of(one: dict[str, Any], tensor: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An element a segment, from the shard that has it."""
    for index in itertools.product(*(range(*b) for b in one["box"])):
        for shard in tensor["shards"]:
            place = [a - b for a, b in zip(index, shard["shard_offset"], strict=True)]
            if all(0 <= a < b for a, b in zip(place, shard["shape"], strict=True)):
                at = shard["addr"] + 2 * (place[0] * shard["shape"][1] + place[1])
                steps = zip(index, one["box"], one["dest_stride"], strict=True)
                to = 2 * (one["dest_offset"] + sum((a - b[0]) * step for a, b, step in steps))
                yield {
                    "session": shard["agent_name"],
                    "src_addr": at,
                    "param_name": one["param_name"],
                    "dst_byte": to,
                    "nbytes": 2,
                }


def judged(data: dict[str, Any]) -> Verdict:
    return redist.check_runs(*modelexpress.transfer_of(data))


def test_a_refit_of_modelexpress_is_right() -> None:
    verdict = judged(refit())
    assert verdict.is_right, verdict
    assert verdict.received_bytes == verdict.lower_bound_bytes == 2 * (96 + 32 + 96)


def test_planted_faults_in_a_refit_are_named() -> None:
    data = refit()
    last = data["receivers"][1]["segments"][-1]
    shifted, lost, twice, beyond, stranger = (copy.deepcopy(data) for _ in range(5))
    shifted["receivers"][1]["segments"][-1]["src_addr"] -= 2
    assert named(shifted)[0] == ("wrong bytes", 3, "out", (7, 11))
    del lost["receivers"][0]["segments"][50]
    assert named(lost) == [("never written", 2, "k", (0, 2))]
    twice["receivers"][1]["segments"].append(last)
    assert named(twice) == [("written twice", 3, "out", (7, 11))]
    beyond["receivers"][1]["segments"][-1]["dst_byte"] += 2
    assert named(beyond)[0][0] == "out of bounds"
    stranger["receivers"][1]["segments"][-1]["param_name"] = "new"
    assert {kind for kind, *_ in named(stranger)} == {"out of bounds", "never written"}


def named(data: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(one.kind, one.rank, one.tensor, one.index) for one in judged(data).faults]


def test_what_is_no_refit_is_refused() -> None:
    data = refit()
    data["receivers"][0]["segments"][0]["session"] = "nobody"
    wrongs: list[dict[str, Any]] = [data, {}, {"tensors": 1}, {"tensors": [], "receivers": [{}]}]
    for wrong in wrongs:
        with pytest.raises(ArgumentError, match="cannot read a transfer of ModelExpress"):
            judged(wrong)


def test_segments_may_cover_shards_that_touch() -> None:
    shards = [
        {"agent_name": "t", "addr": 100 + 12 * k, "shard_offset": [k, 0], "shape": [1, 6]}
        for k in range(2)
    ]
    tensors = [{"name": "w", "elsize": 2, "full_shape": [2, 6], "shards": shards}]
    one = {
        "src_name": "w",
        "box": [[0, 2], [0, 6]],
        "param_name": "w",
        "dest_offset": 0,
        "dest_stride": [6, 1],
    }
    segment = {"session": "t", "src_addr": 100, "param_name": "w", "dst_byte": 0, "nbytes": 24}
    data = {
        "tensors": tensors,
        "receivers": [{"agent_name": "r", "copies": [one], "segments": [segment]}],
    }
    assert judged(data).is_right


SENT: dict[str, list[Any]] = {
    "names": ["a", "b", "c", "d"],
    "dtype_names": ["bfloat16", "float32", "bool", "bfloat16"],
    "shapes": [[4, 6], [3], [5], [2, 2]],
}


def part(first: int, last: int, **more: Any) -> dict[str, Any]:
    return {key: value[first:last] for key, value in SENT.items()} | more


@pytest.mark.parametrize("size", [1, 12, 48, 60, 64, 10**9])
def test_buffers_of_nccl_agree_if_both_sides_count_alike(size: int) -> None:
    transfer = vllm.transfer_of(SENT, [SENT], workers=2, packed_buffer_size_bytes=size)
    verdict = redist.check_runs(*transfer)
    assert verdict.is_right, verdict
    assert verdict.received_bytes == 2 * (48 + 12 + 5 + 8)
    assert verdict.rounds == {1: 4, 12: 3, 48: 2, 60: 2, 64: 2, 10**9: 1}[size] - (size == 64) * 0


def test_buffers_of_ipc_are_told_one_by_one() -> None:
    told = [part(0, 2, tensor_sizes=[48, 12]), part(2, 4, tensor_sizes=[5, 8])]
    right = vllm.transfer_of(SENT, told, engine="ipc", packed_buffer_size_bytes=60)
    assert redist.check_runs(*right).is_right
    other = vllm.transfer_of(SENT, told, engine="ipc", packed_buffer_size_bytes=50)
    found = redist.check_runs(*other).faults
    assert next((one.kind, one.rank, one.tensor, one.index) for one in found) == (
        "out of bounds",
        0,
        "b",
        (0,),
    )


def test_updates_that_say_another_thing_are_found() -> None:
    swapped = {key: [value[1], value[0], *value[2:]] for key, value in SENT.items()}
    wider = {**SENT, "dtype_names": ["bfloat16", "bfloat16", "bool", "bfloat16"]}
    for told, kind, tensor in (
        ([part(0, 3)], "never written", "d"),
        ([SENT, part(3, 4)], "out of bounds", "d"),
        ([swapped], "wrong bytes", "b"),
        ([wider], "never written", "b"),
        ([{**SENT, "names": ["a", "b", "c", "e"]}], "writes what nobody asked for", "d"),
    ):
        found = redist.check_runs(*vllm.transfer_of(SENT, told)).faults
        assert (kind, tensor) in [(one.kind, one.tensor) for one in found], (told, found)


def test_what_is_no_update_is_refused() -> None:
    for told in ({}, {**SENT, "names": ["a"]}, {**SENT, "dtype_names": ["?"] * 4}):
        with pytest.raises(ArgumentError, match="cannot read an update_info"):
            vllm.transfer_of(SENT, [told])
    with pytest.raises(ArgumentError, match="need 'nccl' or 'ipc'"):
        vllm.transfer_of(SENT, [], engine="rdma")


def test_copies_are_runs_of_the_longest_blocks() -> None:
    assert list(copied((), 4, (3, ()), (5, ()))) == [(3, 5, 4, 1, 0, 0)]
    assert list(copied((2, 3), 1, (0, (3, 1)), (0, (1, 2)))) == [
        (0, 0, 1, 3, 1, 2),
        (3, 1, 1, 3, 1, 2),
    ]
    assert list(copied((0, 3), 1, (0, (3, 1)), (0, (3, 1)))) == []
