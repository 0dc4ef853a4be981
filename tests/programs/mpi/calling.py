"""Transfers that are called with the wrong arrays, by some ranks or by all."""

from __future__ import annotations

import numpy as np

import redist
from redist.errors import NoPlanError, RequestError
from tests.programs.mpi.rows_to_columns import Scene, fault


@fault("cannot transfer: rank 1: passed float32[3, 4] as source tile", "is float32[2, 4]")
def shape_of_one_rank_is_wrong(s: Scene) -> None:
    with s.transfer() as t:
        t(np.zeros((3, s.comm.size), "f4") if s.on(1) else s.local, s.out)


@fault("ranks 0, 2: passed float64[2, 4] as source tile")
def dtype_of_two_ranks_is_wrong(s: Scene) -> None:
    with s.transfer() as t:
        t(s.local.astype("f8") if s.on(0, 2) else s.local, s.out)


@fault("passed int32[2, 4] as source tile")
def dtype_of_all_ranks_is_wrong(s: Scene) -> None:
    with s.transfer() as t:
        t(s.local.view("i4"), s.out)


@fault("rank 0: passed float64[2, 4] as", "rank 3: passed float32[8] as")
def two_ranks_are_wrong_in_their_own_ways(s: Scene) -> None:
    with s.transfer() as t:
        wrong = {0: s.local.astype("f8"), 3: s.local.reshape(-1)}
        t(wrong.get(s.rank, s.local), s.out)


@fault("rank 2: a list is not a source tile: need a NumPy array f32[2, 4]")
def one_rank_has_a_list(s: Scene) -> None:
    with s.transfer() as t:
        t(s.local.tolist() if s.on(2) else s.local, s.out)


@fault("rank 3: no source tile is wanted here: the rank is not in the mesh")
def a_rank_outside_the_mesh_has_a_tile(s: Scene) -> None:
    two = redist.Mesh(y=2)
    with s.transfer("f32[4{y}]", "f32[4]", mesh=two) as t:
        t(np.zeros(2, "f4") if s.on(0, 1, 3) else None)


@fault("rank 2: no out is wanted here")
def a_rank_outside_the_mesh_has_an_out(s: Scene) -> None:
    two = redist.Mesh(y=2)
    with s.transfer("f32[4{y}]", "f32[4]", mesh=two) as t:
        t(np.zeros(2, "f4") if s.rank < 2 else None, np.zeros(4, "f4") if s.on(2) else None)


@fault("rank 1: out is read-only")
def out_of_one_rank_is_read_only(s: Scene) -> None:
    s.out.setflags(write=not s.on(1))
    with s.transfer() as t:
        t(s.local, s.out)


@fault("rank 0: passed float32[8, 2] as out")
def out_of_one_rank_has_another_shape(s: Scene) -> None:
    with s.transfer() as t:
        t(s.local, np.zeros((2 * s.comm.size, 2), "f4") if s.on(0) else s.out)


@fault("rank 3: out overlaps the source tile")
def out_overlaps_the_source(s: Scene) -> None:
    with s.transfer() as t:
        t(s.local, s.local.reshape(-1, 1) if s.on(3) else s.out)


@fault("ranks 1-2: the source tile is read-only and cannot be donated")
def a_donated_tile_is_read_only(s: Scene) -> None:
    s.local.setflags(write=not s.on(1, 2))
    with s.transfer(donate=True) as t:
        t(s.local, s.out)


def batch(s: Scene) -> redist.Transfer:
    return s.transfer({"a": s.rows, "b": s.rows}, {"a": s.columns, "b": s.columns})


@fault("rank 1: None is not a source tile 'b'")
def one_rank_leaves_an_array_out(s: Scene) -> None:
    with batch(s) as t:
        t({"a": s.local} if s.on(1) else {"a": s.local, "b": s.local})


@fault("rank 2: local must be a dict with names among a, b")
def one_rank_has_an_array_too_many(s: Scene) -> None:
    with batch(s) as t:
        both = {"a": s.local, "b": s.local}
        t({**both, "c": s.local} if s.on(2) else both)


@fault("rank 3: passed float64[2, 4] as source tile 'b'")
def an_array_of_a_known_batch_is_wrong(s: Scene) -> None:
    with batch(s) as t:
        for _ in range(3):
            t({"a": s.local, "b": s.local})
        t({"a": s.local, "b": s.local.astype("f8") if s.on(3) else s.local})


@fault("rank 0: out 'a' overlaps")
def out_of_one_array_is_the_source_of_another(s: Scene) -> None:
    with batch(s) as t:
        other = s.local.copy()
        both = {"a": s.local, "b": other}
        t(both, {"a": other.reshape(-1, 1)} if s.on(0) else None)


@fault("rank 1: out 'b' overlaps")
def two_results_have_one_array(s: Scene) -> None:
    with batch(s) as t:
        outs = {"a": s.out, "b": s.out if s.on(1) else s.out.copy()}
        t({"a": s.local, "b": s.local.copy()}, outs)


@fault("ranks disagree on the request", "rank 3: ")
def ranks_call_different_transfers(s: Scene) -> None:
    with s.transfer() as t, s.transfer(objective="bytes") as u:
        (u if s.on(3) else t)(s.local, s.out)


@fault("ranks disagree on the request", "rank 0: ")
def ranks_start_in_different_orders(s: Scene) -> None:
    with s.transfer() as t, s.transfer(objective="bytes") as u:
        first, second = (u, t) if s.on(0) else (t, u)
        first.start(s.local)
        second.start(s.local)
        try:
            first.wait()
        finally:
            try:
                second.wait()
            except RequestError:
                pass
            else:
                raise AssertionError("the second was moved")


@fault("rank 1: passed float32[64, 128] as source tile")
def out_of_a_failed_call_is_left_alone(s: Scene) -> None:
    """Also by the calls after it, which give the pages of their targets back for a while."""
    ends = "f64[128{x}, 256{y}]", "f64[128{y}, 256{x}]"
    mesh = redist.Mesh(x=2, y=2)
    with s.transfer(*ends, mesh=mesh, strategy="no_permute") as t:
        local, out = np.full((64, 128), 3.0), np.full((64, 128), 7.0)
        t(local, np.empty_like(out))
        try:
            t(local.astype("f4") if s.on(1) else local, out)
        finally:
            assert (t(local, np.empty_like(out)) == 3.0).all() and (out == 7.0).all(), "touched"


# In one call; `warm` has been moved before, so its preparation is remembered.


def warm(s: Scene) -> None:
    for _ in range(3):
        s.redistribute(s.local)


@fault("rank 1: passed float64[2, 4] as source tile")
def redistribute_new_with_a_wrong_dtype(s: Scene) -> None:
    s.redistribute(s.local.astype("f8") if s.on(1) else s.local, out=s.out)


@fault("rank 1: passed float64[2, 4] as source tile")
def redistribute_known_with_a_wrong_dtype(s: Scene) -> None:
    warm(s)
    s.redistribute(s.local.astype("f8") if s.on(1) else s.local, out=s.out)


@fault("rank 2: None is not a source tile")
def redistribute_without_a_tile(s: Scene) -> None:
    s.redistribute(None if s.on(2) else s.local, out=s.out)


@fault("ranks disagree on the request", "rank 0: ", "limit_bytes=")
def redistribute_new_with_different_limits(s: Scene) -> None:
    s.redistribute(s.local, limit_bytes=12345678 if s.on(0) else None, out=s.out)


@fault("ranks disagree on the request", "rank 0: ")
def redistribute_known_and_new(s: Scene) -> None:
    warm(s)
    if s.on(0):
        s.redistribute(s.local, s.rows, s.rows)
    s.redistribute(s.local, out=s.out)


@fault("ranks disagree on the request", "rank 3: ")
def redistribute_known_and_also_known(s: Scene) -> None:
    warm(s)
    s.redistribute(s.local, s.rows, s.rows)
    s.redistribute(s.local, s.rows, s.rows if s.on(3) else None, out=None if s.on(3) else s.out)


@fault("rank 2: cannot parse")
def redistribute_known_with_one_wrong_text(s: Scene) -> None:
    warm(s)
    s.redistribute(s.local, "f32[8{x" if s.on(2) else None, out=s.out)


@fault("rank 1: ", "is not a type")
def redistribute_with_one_wrong_kind_of_type(s: Scene) -> None:
    warm(s)
    s.redistribute(s.local, ["f32", 8] if s.on(1) else None, out=s.out)


@fault("no plan fits the limit of 1 bytes", kind=NoPlanError)
def redistribute_without_a_plan(s: Scene) -> None:
    s.redistribute(s.local, limit_bytes=1, out=s.out)
