"""Tables, progress, and the reading of XLA's programs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from bench.report.report import Table, save_json
from redist.lower.hlo import group_size, received_elems
from redist.text import progress


def test_a_table_needs_a_name_for_every_column() -> None:
    with pytest.raises(AssertionError):
        Table("t", ("a", "a"), ())


def test_a_table_lines_up_and_says_what_is_missing() -> None:
    table = Table("T", ("kind", "n"), (("a", 1.5), ("long name", None)), ("remark",))
    lines = str(table).splitlines()
    assert lines[0] == "T" and lines[-1] == "  remark"
    assert len({len(line) for line in lines[1:-1]}) == 1
    assert lines[-2].split() == ["long", "name", "-"]


def test_a_report_is_plain_data(tmp_path: Path) -> None:
    save_json(tmp_path / "r.json", {"r": (Table("t", ("a",), ((1,),)),)}, {})
    (report,) = json.loads((tmp_path / "r.json").read_text())["reports"]
    assert report["name"] == "r" and report["tables"][0]["rows"] == [{"a": 1}]


def test_rows_of_a_table_name_the_same_columns() -> None:
    with pytest.raises(AssertionError, match="rows of other columns"):
        Table.of("t", "T", [{"a": 1}, {"b": 1}])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "REDRAW_S", 0.0)
    out = Terminal()
    assert list(progress.track(range(4), 4, "work", out)) == [0, 1, 2, 3]
    assert "work [" in out.getvalue() and out.getvalue().endswith("\r\x1b[K")


def test_progress_is_a_line_now_and_then_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    assert list(progress.track(range(4), 4, "work", out)) == [0, 1, 2, 3]
    assert out.getvalue() == ""
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    list(progress.track(range(4), 4, "work", out))
    assert out.getvalue().splitlines()[1].startswith("work: 2 of 4 done")
    assert "\r" not in out.getvalue()


PROGRAM = """
ENTRY %main.0_spmd (param: f32[8,4]) -> f32[4,8] {
  %param = f32[8,4]{1,0} parameter(0), sharding={devices=[2,4]<=[8]}, metadata={op_name="v"}
  %a = f32[1,4,4]{2,1,0} fusion(%param), kind=kLoop, calls=%fused_computation.1
  %b = f32[1,4,4]{2,1,0} fusion(%param), kind=kLoop, calls=%fused_computation.2
  %all-to-all.1 = (f32[1,4,4]{2,1,0}, /*index=1*/f32[1,4,4]{2,1,0}) all-to-all(%a, /*index=1*/%b), \
channel_id=1, replica_groups=mesh['axis_0'=4,'axis_1'=2], device_ids=([2,2,2]T(0,2,1)) {'axis_0':(2)2}
  %c = f32[4,8]{1,0} fusion(%all-to-all.1), kind=kLoop, calls=%fused_computation
  ROOT %p = f32[4,8]{1,0} collective-permute(%c), channel_id=2, \
source_target_pairs={{0,0},{2,4},{1,1},{3,5},{4,2},{6,6},{5,3},{7,7}}
}
"""


def test_a_compiled_program_is_counted() -> None:
    # Eight devices get 16 of their 32 elements anew, then four of them 32 each.
    assert received_elems(PROGRAM, 8) == 8 * 16 + 4 * 32


@pytest.mark.parametrize(
    ("line", "elems"),
    [
        ("%r = f32[16]{0} all-reduce(%p), replica_groups=[2,4]<=[8], to_apply=%add", 8 * 24),
        ("%r = f32[4]{0} reduce-scatter(%p), replica_groups={{0,1,2,3},{4,5,6,7}}", 8 * 12),
        ("%r = f32[16]{0} all-to-all(%p), replica_groups=[4,2]<=[8], dimensions={0}", 8 * 8),
        ("%r = (f32[16], f32[64]) all-gather-start(%p), replica_groups=[2,4]<=[8]", 8 * 48),
        ("%r = f32[64]{0} all-gather-done(%p)", 0),
        ("%r = f32[2]{0} dynamic-slice(%p, %i), dynamic_slice_sizes={2}", 0),
    ],
)
def test_every_collective_has_its_price(line: str, elems: int) -> None:
    assert received_elems(f"  %p = f32[16]{{0}} parameter(0)\n  {line}\n", 8) == elems


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(ValueError, match="collective-broadcast"):
        received_elems("  %p = f32[4]{0} parameter(0)\n  %r = f32[4] collective-broadcast(%p)", 8)
    with pytest.raises(ValueError, match="3 pieces in groups of 2"):
        received_elems(
            "  %p = f32[4]{0} parameter(0)\n"
            "  %r = (f32[4], f32[4], f32[4]) all-to-all(%p, %p, %p), replica_groups=[4,2]<=[8]",
            8,
        )


def test_no_groups_means_all_devices() -> None:
    assert group_size("channel_id=1, replica_groups={}, dimensions={0}", 12) == 12
