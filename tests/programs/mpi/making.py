"""Transfers that are asked for in a wrong way, by some ranks or by all."""

from __future__ import annotations

import redist
from redist.errors import NoPlanError, RedistError
from tests.programs.mpi.rows_to_columns import SOON_S, Scene, fault


@fault("cannot make a transfer: rank 1: cannot parse", "expected")
def text_of_one_rank_is_wrong(s: Scene) -> None:
    s.transfer("f32[8{x" if s.on(1) else None)


@fault("cannot parse 'f32[8{x'")
def text_of_all_ranks_is_wrong(s: Scene) -> None:
    s.transfer("f32[8{x")


@fault("shapes (8,) and (9,) differ")
def shapes_differ(s: Scene) -> None:
    s.transfer("f32[8]", "f32[9]")


@fault("ranks disagree on the request", "rank 2: ", "ranks 0-1, 3")
def one_rank_has_another_target(s: Scene) -> None:
    s.transfer(None, s.rows if s.on(2) else None)


@fault("ranks disagree on the request", "ranks 0, 2: ", "limit_bytes=1000000")
def limits_differ(s: Scene) -> None:
    s.transfer(limit_bytes=10**6 if s.on(0, 2) else None)


@fault("ranks disagree on the request", "rank 3: ", "donate=True")
def one_rank_donates(s: Scene) -> None:
    s.transfer(donate=s.on(3))


@fault("ranks disagree on the request", "rank 1: ", "x=1")
def one_rank_has_another_mesh(s: Scene) -> None:
    one = redist.Mesh(x=1)
    s.transfer("f32[8]", "f32[8]", mesh=one if s.on(1) else s.mesh)


@fault("ranks disagree on the request", "rank 2: ", "a: ")
def one_rank_has_a_batch(s: Scene) -> None:
    if s.on(2):
        s.transfer({"a": s.rows}, {"a": s.columns})
    s.transfer()


@fault("ranks disagree on the request", "rank 1: ", "b: ")
def one_rank_has_another_name(s: Scene) -> None:
    name = "b" if s.on(1) else "a"
    s.transfer({name: s.rows}, {name: s.columns})


@fault("the communicator has", "needs rank")
def mesh_is_larger_than_the_communicator(s: Scene) -> None:
    s.transfer("f32[64{y}]", "f32[64]", mesh=redist.Mesh(y=64))


@fault("no plan fits the limit of 1 bytes", "the least that would do is", kind=NoPlanError)
def no_plan_fits(s: Scene) -> None:
    s.transfer(limit_bytes=1)


@fault("unknown transport 'pigeon'")
def transport_is_unknown(s: Scene) -> None:
    s.transfer(transport="pigeon")


@fault("unknown strategy 'luck'")
def strategy_is_unknown(s: Scene) -> None:
    s.transfer(strategy="luck")


@fault("node_size=0")
def node_size_is_zero(s: Scene) -> None:
    s.transfer(node_size=0)


@fault("cannot read '64 megs' as a number of bytes")
def limit_is_no_number_of_bytes(s: Scene) -> None:
    s.transfer(limit_bytes="64 megs")


@fault("rank 1: ", "mesh")
def mesh_of_one_rank_is_a_number(s: Scene) -> None:
    s.transfer(mesh=4 if s.on(1) else s.mesh)


@fault("rank 1: ", "expected an axis and its size")
def mesh_of_one_rank_is_wrong_text(s: Scene) -> None:
    s.transfer(mesh="x=" if s.on(1) else s.mesh)


@fault("rank 0: ", "None is not a type")
def type_of_one_rank_is_missing(s: Scene) -> None:
    options = {"mesh": s.mesh, "timeout_s": SOON_S, **s.options}
    redist.Transfer(None if s.on(0) else s.rows, s.columns, s.comm, **options)  # type: ignore[arg-type]


@fault("rank 1: ", "must both be types or both be dicts")
def one_rank_mixes_type_and_dict(s: Scene) -> None:
    s.transfer({"a": s.rows} if s.on(1) else None)


@fault("b: given as source or as target")
def names_differ_between_source_and_target(s: Scene) -> None:
    s.transfer({"a": s.rows, "b": s.rows}, {"a": s.columns})


@fault("no arrays are named")
def nothing_is_named(s: Scene) -> None:
    options = {"mesh": s.mesh, "timeout_s": SOON_S, **s.options}
    redist.Transfer({}, {}, s.comm, **options)


@fault("cannot reduce S5: it has no arithmetic", kind=RedistError)
def text_has_no_sum(s: Scene) -> None:
    s.transfer("S5[8] sum{x}", "S5[8]")


@fault("cannot take the max of c64", kind=RedistError)
def complex_numbers_have_no_maximum(s: Scene) -> None:
    s.transfer("c64[8] max{x}", "c64[8]")
