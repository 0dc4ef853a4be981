"""Meshes: axes, ranks, text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redist.errors import LayoutError, ParseError, RedistError
from redist.layout.axes import coordinates
from redist.layout.mesh import Mesh
from tests.problems import oracle
from tests.problems.strategies import chains, meshes
from tests.tiers import sample


@settings(max_examples=sample(25, of=100), deadline=None, derandomize=True)
@given(meshes())
def test_text_round_trips(mesh: Mesh) -> None:
    assert Mesh.parse(str(mesh)) == mesh
    assert hash(Mesh.parse(str(mesh))) == hash(mesh)
    assert eval(repr(mesh), {"Mesh": Mesh}) == mesh
    assert mesh.rank_array().tolist() == list(mesh.ranks)


@settings(max_examples=sample(25, of=100), deadline=None, derandomize=True)
@given(st.data(), meshes())
def test_coordinates_are_those_of_the_oracle(data: st.DataObject, mesh: Mesh) -> None:
    parts = [part for name, size in mesh.axes for part in data.draw(chains(name, size))]
    parts = data.draw(st.permutations(parts)) if len(parts) > 1 else parts
    expected = [oracle.shard_index(mesh, parts, at)[0] for at in oracle.devices(mesh)]
    assert coordinates(mesh, parts).tolist() == expected


def test_axes_are_ordered() -> None:
    assert Mesh(x=2, y=3) == Mesh({"x": 2, "y": 3}) == Mesh([("x", 2)], y=3)
    assert Mesh(x=2, y=3) != Mesh(y=3, x=2)
    assert Mesh(x=2, y=3).n_devices == 6
    assert Mesh().n_devices == 1
    assert Mesh.parse("") == Mesh()
    assert Mesh.parse(" x = 2 , y = 3 ") == Mesh(x=2, y=3)


@pytest.mark.parametrize(
    "ranks",
    [[3, 4, 5], (3, 4, 5), range(3, 6), np.arange(3, 6), iter([3, 4, 5])],
)
def test_equal_ranks_make_equal_meshes(ranks: Any) -> None:
    mesh = Mesh({"z": 3}, ranks=ranks)
    assert mesh == Mesh.parse("z=3@3")
    assert mesh.ranks == range(3, 6)
    assert hash(mesh) == hash(Mesh.parse("z=3@3"))


def test_ranges_with_a_step() -> None:
    assert Mesh({"z": 3}, ranks=range(4, -1, -2)).ranks == (4, 2, 0)
    assert Mesh({"z": 1}, ranks=range(0, 1, 2)) == Mesh(z=1)
    assert Mesh({"z": 2}, ranks=[0, 1]) == Mesh(z=2)
    assert Mesh({"z": 2}, ranks=[1, 0]) != Mesh(z=2)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("=2", 0),
        ("2", 0),
        ("x", 1),
        ("x=", 2),
        ("x=a", 2),
        ("x= a", 3),
        ("x=-1", 2),
        ("x 2", 2),
        ("x=2,", 4),
        ("x=2,,y=3", 4),
        ("x=2,y", 5),
        ("x=2, 3y=2", 5),
        ("x=2 y=3", 4),
        ("x=2;y=3", 3),
        ("x:2", 1),
        ("x=2.5", 3),
        ("x=" + "9" * 5000, 2),
        ("x=2@", 4),
        ("@", 1),
        ("x=2@a", 4),
        ("x=2@-1", 4),
        ("x=2@1;b", 6),
        ("x=2@1; b", 7),
        ("x=2@1;", 6),
        ("x=2@1,2", 5),
        ("x=2@4@5", 5),
        ("x=2@" + "9" * 5000, 4),
    ],
)
def test_parse_errors_point_at_the_character(text: str, position: int) -> None:
    with pytest.raises(ParseError) as caught:
        Mesh.parse(text)
    assert caught.value.position == position
    assert "\n" not in str(caught.value)
    assert f"at character {position + 1} " in str(caught.value)


@settings(max_examples=sample(50, of=200), deadline=None, derandomize=True)
@given(st.text(alphabet="xy=,@;0129 -\n", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        mesh = Mesh.parse(text)
    except RedistError as error:
        assert "\n" not in str(error)
    else:
        assert Mesh.parse(str(mesh)) == mesh


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mesh({"2x": 2}), "'2x' is not a valid axis name"),
        (lambda: Mesh({"x y": 2}), "'x y' is not a valid axis name"),
        (lambda: Mesh({"x\n": 2}), r"'x\\n' is not a valid axis name"),
        (lambda: Mesh([("x", 2), ("x", 2)]), "axis 'x' appears twice"),
        (lambda: Mesh({"x": 2}, x=2), "axis 'x' appears twice"),
        (lambda: Mesh(x=0), "axis 'x' has size 0"),
        (lambda: Mesh(x=-2), "axis 'x' has size -2"),
        (lambda: Mesh(x=True), "axis 'x' has size True"),
        (lambda: Mesh({"x": 2.0}), "axis 'x' has size 2.0"),  # type: ignore[arg-type]
        (lambda: Mesh(x=2, ranks=[0, 1, 2]), "2 devices but 3 ranks"),
        (lambda: Mesh(x=2, ranks=[0]), "2 devices but 1 rank"),
        (lambda: Mesh(x=2, ranks=[1, 1]), "a rank appears twice"),
        (lambda: Mesh(x=2, ranks=[-1, 0]), "rank -1 is negative"),
        (lambda: Mesh(x=2, ranks=range(-1, 1)), "rank -1 is negative"),
        (lambda: Mesh(x=2, ranks=[0, 1.5]), "rank 1.5 is not an int"),  # type: ignore[list-item]
        (lambda: Mesh(x=10**9, y=10**9), "1000000000000000000 devices; at most 2147483647"),
        (lambda: Mesh.parse("x=2@5;5"), "a rank appears twice"),
        (lambda: Mesh.parse("x=2,x=2"), "axis 'x' appears twice"),
        (lambda: Mesh(x=2).size("y"), "the mesh x=2 has no axis 'y'"),
    ],
)
def test_meshes_that_cannot_exist(make: Any, message: str) -> None:
    with pytest.raises(LayoutError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_mesh_does_not_change() -> None:
    mesh = Mesh(x=2)
    with pytest.raises(AttributeError):
        mesh.axes = ()  # type: ignore[misc]


@pytest.mark.parametrize("axes", [4, (2, 2), "x=4"], ids=str)
def test_axes_without_names_are_refused(axes: Any) -> None:
    with pytest.raises(LayoutError, match="axes need names"):
        Mesh(axes)
