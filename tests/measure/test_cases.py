"""Cases: what they move, for any number of ranks."""

from __future__ import annotations

import pytest

from redist.errors import RequestError
from redist.measure.cases import KINDS, make_case

MIB = 2**20


@pytest.mark.parametrize("n_ranks", [2, 3, 4, 6, 7, 8, 9, 12])
@pytest.mark.parametrize("name", KINDS)
def test_every_case_exists_or_says_what_it_needs(name: str, n_ranks: int) -> None:
    try:
        case = make_case(name, 128 * MIB, n_ranks)
    except RequestError as error:
        assert n_ranks in (2, 3, 7)
        assert "need a product, such as 4, 6 or 8" in str(error)
        return
    assert case.source != case.target
    assert (case.source.dtype, case.source.shape) == (case.target.dtype, case.target.shape)
    assert case.held_bytes == pytest.approx(128 * MIB, rel=0.1)
    assert {*case.source.mesh.ranks, *case.target.mesh.ranks} == set(range(n_ranks))
    is_plain = case.source.is_plain and case.target.is_plain
    if is_plain and name != "uneven" and (name != "two-meshes" or n_ranks % 2 == 0):
        assert case.source.is_even and case.target.is_even


def test_cases_are_those_known_from_elsewhere() -> None:
    made = [str(make_case(name, 128 * MIB, 4)) for name in list(KINDS)[:8]]
    assert made == [
        "f64[4096{x}, 4096] -> f64[4096, 4096{x}] on x=4",
        "f64[4096, 4096{x}] -> f64[4096{x}, 4096] on x=4",
        "f64[256{x,y}, 256, 256] -> f64[256{x}, 256{y}, 256] on x=2,y=2",
        "f64[256{x}, 256, 256] -> f64[256, 256{x}, 256] on x=4",
        "f64[256{x}, 256, 256] -> f64[256, 256, 256{x}] on x=4",
        "f64[256, 256, 256{x}] -> f64[256{x}, 256, 256] on x=4",
        "f64[256{x}, 256{y}, 256] -> f64[256{x}, 256, 256{y}] on x=2,y=2",
        "f64[4093{x}, 4101] -> f64[4093, 4101{x}] on x=4",
    ]


@pytest.mark.parametrize("name", KINDS)
def test_tiny_arrays_leave_no_case_out(name: str) -> None:
    assert make_case(name, 1, 8).source.global_elems >= 1


def test_unknown_names_and_lonely_ranks_are_refused() -> None:
    with pytest.raises(RequestError, match="no such case; known: rows-columns, columns-rows"):
        make_case("rows", MIB, 4)
    with pytest.raises(RequestError, match="need at least 2"):
        make_case("gather", MIB, 1)
