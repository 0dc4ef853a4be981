"""Pictures and pages: well-formed, complete, and true to the plan."""

from __future__ import annotations

import re
from base64 import b64decode
from pathlib import Path
from xml.etree import ElementTree

import pytest

from redist import Mesh, Plan, synthesize
from redist.draw.flows import arrows_of
from redist.draw.picture import draw, make_page
from redist.draw.view import Seats, View
from redist.plan.rates import FLAT
from redist.plan.topology import Level, Topology

SVG = "{http://www.w3.org/2000/svg}"

PLANS: dict[str, tuple[str, str, str, str | None]] = {
    "even": ("f32[64{x}, 64{y}]", "f32[64{y}, 64{x}]", "x=2,y=4", None),
    "uneven": ("f32[10{x}, 7]", "f32[10, 7{x}]", "x=3", None),
    "tiles that are empty": ("f32[5{x}]", "f32[5]", "x=4", None),
    "replicated": ("f32[8{x}, 8]", "f32[8, 8]", "x=2,y=2", None),
    "pending": ("f32[8{x}, 8] sum{y}", "f32[8, 8{x}]", "x=2,y=2", None),
    "becomes pending": ("f32[8{x}, 8]", "f32[8{x}, 8] max{y}", "x=2,y=2", None),
    "all pending": ("f32[8] sum{x,y}", "f32[8]", "x=2,y=3", None),
    "two meshes": ("i16[12{x}]", "i16[12{z}]", "x=4", "z=3@2"),
    "any ranks": ("i16[12{x}]", "i16[12{z}]", "x=2@700;3", "z=3@4;700;9"),
    "rank 0": ("f32[] sum{x}", "f32[]", "x=2", None),
    "rank 4": ("f32[4{x}, 6, 8{y}, 2{z}]", "f32[4, 6{x}, 8{z}, 2{y}]", "x=2,y=2,z=2", None),
    "rank 3, not cut": ("f32[4, 6, 8]", "f32[4, 6, 8]", "x=2", None),
    "no elements": ("f32[0{x}, 4]", "f32[0, 4{x}]", "x=2", None),
    "nothing to reduce": ("u8[0{x}, 6] sum{y}", "u8[0{x}, 6]", "x=2,y=3", None),
    "one device": ("f32[4]", "f32[4]", "x=1", None),
    "no axes": ("f32[4]", "f32[4]", "", None),
    "long and thin": ("f32[1000000{x}, 2]", "f32[1000000, 2{x}]", "x=2", None),
    "many devices": ("f32[300{x}, 300]", "f32[300, 300{x}]", "x=100", None),
    "a block of devices": ("f32[64{x}, 64{y}]", "f32[64, 64{x}]", "x=4,y=20", None),
}


def plan_of(name: str, **options: object) -> Plan:
    source, target, mesh, other = PLANS[name]
    target_mesh = None if other is None else Mesh.parse(other)
    return synthesize(
        source,
        target,
        mesh=Mesh.parse(mesh),
        target_mesh=target_mesh,
        **options,  # type: ignore
    )


def texts(root: ElementTree.Element) -> str:
    return "\n".join("".join(node.itertext()) for node in root.iter(f"{SVG}text"))


@pytest.mark.parametrize("strategy", ["auto", "collectives"])
@pytest.mark.parametrize("name", PLANS)
def test_pictures_are_well_formed_and_name_every_step(name: str, strategy: str) -> None:
    plan = plan_of(name, strategy=strategy)
    root = ElementTree.fromstring(draw(plan))
    assert root.tag == f"{SVG}svg"
    shown = texts(root)
    for number, step in enumerate(plan.steps):
        assert f"step {number + 1}: {step.op}" in shown
    for kind in {event.what for event in plan.events if event.n_bytes} - {"out"}:
        assert f"{kind}:" in shown
    inside = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(0 < size < 20_000 for size in inside)
    for node in root.iter(f"{SVG}rect"):
        assert float(node.attrib["width"]) >= 0
        assert float(node.attrib["height"]) >= 0


@pytest.mark.parametrize("name", PLANS)
def test_pages_need_nothing_else(name: str) -> None:
    plan = plan_of(name)
    page = make_page(plan)
    root = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    blocks = ["".join(node.itertext()) for node in root.iter("pre")]
    assert blocks == [str(plan), plan.explain()]
    assert not re.search(r"""(?:src|href)\s*=|url\((?!#)|@import|<script""", page)
    assert set(re.findall(r"https?://[^\"'\s]+", page)) == {"http://www.w3.org/2000/svg"}


def test_same_plan_same_picture() -> None:
    assert draw(plan_of("uneven")) == draw(plan_of("uneven"))


def test_every_device_has_a_thumbnail_up_to_64() -> None:
    root = ElementTree.fromstring(draw(plan_of("even")))
    titles = [node.text or "" for node in root.iter(f"{SVG}title")]
    for rank in range(8):
        assert sum(title.startswith(f"device {rank} holds") for title in titles) == 2
    picture = draw(plan_of("many devices"))
    assert "the first 64 of 100 devices" in picture
    assert "device 63 holds" in picture
    assert "device 64 holds" not in picture


@pytest.mark.parametrize("name", PLANS)
def test_moves_add_up_to_the_bytes_of_the_step(name: str) -> None:
    plan = plan_of(name)
    for before, step in zip(plan.types, plan.steps, strict=False):
        moves = arrows_of(step, before, FLAT)
        if moves is None or step.op == "all_reduce" or step.after.mesh.n_devices > 64:
            continue
        assert sum(moves.pairs.values()) == step.received_bytes


def test_large_meshes_draw_the_same_moves_as_the_whole() -> None:
    plan = plan_of("many devices", strategy="direct")
    moves = arrows_of(plan.steps[0], plan.source, FLAT)
    assert moves is not None
    received = [0] * 64
    for (_, receiver), n_bytes in moves.pairs.items():
        received[receiver] += n_bytes
    assert received == [3 * 297 * 4] * 64


def test_views_show_the_dims_that_are_cut() -> None:
    plan = plan_of("rank 4")
    view = View.of(plan.types)
    assert (view.down, view.across) == (0, 1)
    assert "dims 2, 3 are cut too" in view.caption()
    assert View.of(plan_of("rank 3, not cut").types).caption().count("dim 1 runs down") == 1


def test_seats_follow_the_mesh() -> None:
    seats = Seats.of(Mesh(x=2, y=4, z=2))
    assert (seats.columns, seats.corner()) == (8, "y,z")
    assert seats.row_labels() == ["x=0", "x=1"]
    assert seats.column_labels()[:3] == ["0,0", "0,1", "1,0"]
    assert Seats.of(Mesh(x=20)).row_labels() == ["x=0..", "x=8..", "x=16.."]


def test_limits_are_drawn_near_and_told_when_far() -> None:
    peak = plan_of("even").peak_bytes
    assert "limit" in draw(plan_of("even", limit_bytes=peak))
    assert "far to the right" in draw(plan_of("even", limit_bytes=100 * peak))


def test_a_plan_draws_itself(tmp_path: Path) -> None:
    plan = plan_of("even")
    assert plan.svg() == draw(plan) and plan.html() == make_page(plan)
    for name, text in (("plan.svg", plan.svg()), ("plan.html", plan.html())):
        method = plan.svg if name == "plan.svg" else plan.html
        assert method(tmp_path / name) == text
        assert (tmp_path / name).read_text(encoding="utf-8") == text


def test_the_topology_says_who_sends() -> None:
    plan = plan_of("replicated")
    near = Topology((Level("node", 2, 1, 1), Level("network", None, 10**6, 10**5)), 0)
    assert plan.svg(topology=near) == draw(plan, near)


@pytest.mark.parametrize("name", ["even", "pending", "rank 0", "no elements"])
def test_a_notebook_shows_text_and_a_picture_of_its_own(name: str) -> None:
    plan = plan_of(name)
    root = ElementTree.fromstring(f"<div>{plan._repr_html_()}</div>")
    text, image = root.find("pre"), root.find("img")
    assert text is not None and text.text == str(plan)
    assert image is not None and image.get("alt") == f"{plan.source} -> {plan.target}"
    kind, _, data = image.get("src", "").partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert b64decode(data).decode() == plan.svg()
    assert root.find("style") is None  # nothing reaches the rest of the notebook
