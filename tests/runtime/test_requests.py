"""Requests in words: what is wrong is refused, what is the same reads the same."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import redist
from redist import ArrayType, Mesh, RedistError, Topology
from redist.plan.rates import FLAT
from redist.plan.topology import Level
from redist.runtime.ranks.tokens import Token
from redist.runtime.request import TransferOptions, TransferRequest

MESH = Mesh(x=2, y=2)
ROWS, COLUMNS = "f32[4{x}, 4]", "f32[4, 4{x}]"


def asked(
    source: Any = ROWS, target: Any = COLUMNS, mesh: Any = MESH, size: int = 4, **options: Any
) -> TransferRequest:
    target_mesh = options.pop("target_mesh", None)
    return TransferRequest.of(source, target, mesh, target_mesh, size, TransferOptions(**options))


def test_the_same_request_in_other_words_is_the_same() -> None:
    t = ArrayType.parse(ROWS, MESH)
    same = [asked(), asked(t), asked("float32[ 4{x},4 ]"), asked("f32[2{x}4, 4]")]
    assert len({one.text for one in same}) == 1
    assert len({one.token for one in same}) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"target": ROWS},
        {"source": "f64[4{x}, 4]", "target": "f64[4, 4{x}]"},
        {"mesh": Mesh(x=2)},
        {"target_mesh": Mesh({"x": 2, "y": 2}, ranks=[3, 2, 1, 0])},
        {"limit_bytes": 1000},
        {"donate": True},
        {"objective": "bytes"},
        {"strategy": "direct"},
        {"transport": "mpi"},
        {"node_size": 2},
        {"topology": FLAT},
        {"topology": Topology((Level("node", None, 7, 8),))},
        {"source": {"a": ROWS}, "target": {"a": COLUMNS}},
        {"source": {"b": ROWS}, "target": {"b": COLUMNS}},
        {"source": {"": ROWS}, "target": {"": COLUMNS}},
    ],
    ids=str,
)
def test_another_request_has_another_text_and_token(other: dict[str, Any]) -> None:
    one, two = asked(), asked(**other)
    assert one.text != two.text
    assert one.token != two.token


def test_a_limit_in_text_is_that_number() -> None:
    assert asked(limit_bytes="1MiB").text == asked(limit_bytes=2**20).text
    assert asked(limit_bytes=np.int64(2**20)).token == asked(limit_bytes=2**20).token


def test_tokens_are_even_and_fit_a_control_word() -> None:
    tokens = {asked(f"f32[{n}{{x}}]", f"f32[{n}]").token for n in range(200)}
    assert len(tokens) == 200
    assert all(token % 2 == 0 and 0 <= token < 2**57 for token in tokens)
    assert not tokens & set(Token)


def test_a_batch_knows_its_names() -> None:
    batch = asked({"w": ROWS, "b": "f32[4{x}]"}, {"w": COLUMNS, "b": "f32[4]"})
    assert batch.is_batch and list(batch.pairs) == ["w", "b"]
    assert "w: f32[4{x}, 4] on x=2,y=2 -> f32[4, 4{x}]" in batch.text
    assert not asked().is_batch


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"source": "f32[4{x"}, "cannot parse"),
        ({"source": "f32[4{q}, 4]"}, "q"),
        ({"source": 7}, "7 is not a type"),
        ({"source": None}, "None is not a type"),
        ({"mesh": None}, "is text; give mesh="),
        ({"mesh": "x=2"}, "mesh='x=2'"),
        ({"mesh": {"x": 2}}, "mesh="),
        ({"target_mesh": 3}, "target_mesh=3"),
        ({"source": {"a": ROWS}}, "must both be types or both be dicts"),
        ({"source": {"a": ROWS}, "target": {"b": COLUMNS}}, "a, b: given as source or as target"),
        ({"source": {}, "target": {}}, "no arrays are named"),
        ({"size": 3}, "needs rank 3, but the communicator has 3 ranks"),
        ({"transport": "pigeon"}, "unknown transport 'pigeon'; known: auto, mpi"),
        ({"node_size": 0}, "node_size=0"),
        ({"node_size": "2"}, "node_size='2'"),
        ({"donate": 1}, "donate=1"),
        ({"node_size": True}, "cannot use node_size=True: need a number of ranks"),
        ({"limit_bytes": "1 million"}, "cannot read '1 million' as a number of bytes"),
        ({"limit_bytes": 1.5}, "cannot use limit_bytes=1.5: need bytes"),
        ({"limit_bytes": -1}, "cannot use limit_bytes=-1: need bytes"),
        ({"limit_bytes": "99999999TiB"}, "limits go up to"),
        ({"limit_bytes": True}, "limit_bytes=True"),
        ({"topology": "fast"}, "topology='fast'"),
        ({"source": "S5[4] sum{x}", "target": "S5[4]"}, "no arithmetic"),
        ({"source": "c64[4] max{x}", "target": "c64[4]"}, "no order"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(RedistError) as caught:
        asked(**wrong)
    assert says in str(caught.value)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_function_for_another_framework_is_named(framework: str) -> None:
    foreign = type("DeviceMesh", (), {"__module__": f"{framework}.distributed"})()
    with pytest.raises(RedistError, match=f"cannot read a DeviceMesh .*redist.{framework}.redistr"):
        asked(source=foreign, target={"w": COLUMNS})


def test_without_mpi_the_functions_that_need_none_are_named() -> None:
    program = """
import sys
sys.modules["mpi4py"] = None
import redist
for name in ("redistribute", "pgas"):
    try:
        getattr(redist, name)
    except redist.LaunchError as problem:
        assert ("for DTensors use redist.torch.redistribute" in str(problem)) == (name != "pgas"), problem
    else:
        raise AssertionError("MPI is there")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("timeout_s", ["5", 0, -5, True, float("nan")])
def test_a_time_that_is_none_is_refused_before_anybody_waits(timeout_s: Any) -> None:
    calls: tuple[Any, Any] = redist.redistribute, redist.Transfer
    for call in calls:
        ends = (np.zeros(4),) if call is redist.redistribute else ()
        with pytest.raises(RedistError, match="need seconds above 0, or None for ever"):
            call(*ends, "f64[4{x}]", "f64[4]", mesh=Mesh(x=1), timeout_s=timeout_s)


@pytest.mark.parametrize("comm", [Mesh(x=4), "world"], ids=str)
def test_what_is_not_a_communicator_is_refused(comm: Any) -> None:
    with pytest.raises(RedistError, match=r"as a communicator: .* meshes as mesh="):
        redist.redistribute(np.zeros(4), "f64[4{x}]", "f64[4]", comm, mesh=Mesh(x=1))


@pytest.mark.parametrize("mesh", [{"x": 1}, "x=1"], ids=str)
def test_meshes_may_be_dicts_or_text(mesh: Any) -> None:
    assert redist.redistribute(np.ones(4), "f64[4{x}]", "f64[4]", mesh=mesh).tolist() == [1] * 4


def test_meshes_are_taken_as_dicts_and_text_wherever_plans_are_made() -> None:
    plan = redist.synthesize(ROWS, COLUMNS, mesh={"x": 2, "y": 2})
    assert plan == redist.synthesize(ROWS, COLUMNS, mesh="x=2,y=2")
    for wrong in (lambda: redist.synthesize(ROWS, COLUMNS, mesh=2), lambda: asked(mesh=2)):  # type: ignore[arg-type]
        with pytest.raises(RedistError, match=r"mesh=2.*Mesh, a dict or text"):
            wrong()


@pytest.mark.parametrize("name", ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_ranks_of_another_mpi_are_told_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "4")
    words = "belongs to another MPI than mpi4py: see redist doctor"
    with pytest.raises(RedistError, match=words):
        asked(size=1)
    with pytest.raises(RedistError, match=words):
        redist.pgas.ones((8, 8), mesh={"x": 4})


def test_a_closed_transfer_cannot_be_started() -> None:
    transfer = redist.Transfer("f64[4{x}]", "f64[4]", mesh=Mesh(x=1))
    transfer.close()
    words = "this transfer is closed; make a new one, or call it inside the with"
    with pytest.raises(redist.TransferError, match=f"cannot start: {words}"):
        transfer.start(np.ones(4))
    with pytest.raises(redist.TransferError, match=f"cannot run: {words}"):
        transfer(np.ones(4))


@pytest.mark.parametrize(
    ("tile", "target", "words"),
    [
        (np.ones(4), "f32[4]", "a move changes the layout only, use astype first"),
        (np.ones(4), "f64[5]", "a move changes the layout only, give both ends one shape"),
        (redist.pgas.ones(4), "f64[4]", r"a\.local is this rank's tile, and a\.to\(type\) moves"),
    ],
)
def test_what_is_no_move_says_what_to_do(tile: Any, target: str, words: str) -> None:
    with pytest.raises(RedistError, match=words):
        redist.redistribute(tile, "f64[4{x}]", target, mesh=Mesh(x=1))


def test_repeat_prints_the_type_of_an_array_in_the_place_of_a_number() -> None:
    with pytest.raises(RedistError, match=r"a step f64\[4\] times: need an int >= 0"):
        redist.pgas.repeat(abs, redist.pgas.ones(4), 3)


def test_masked_arrays_are_refused() -> None:
    masked = np.ma.masked_less(np.arange(4.0), 2)
    with pytest.raises(RedistError, match=r"cannot take a MaskedArray: its mask would be lost"):
        redist.redistribute(masked, "f64[4{x}]", "f64[4]", mesh=Mesh(x=1))
