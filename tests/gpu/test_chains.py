"""Reductions as chains: nothing comes before what it must follow, and every value is read once."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from redist.errors import TransferError
from redist.layout.dtype import DType
from redist.runtime.copies import reduce
from redist.runtime.copies.addresses import addresses
from redist.runtime.copies.copy_list import BufferCopy, CopyList
from redist.runtime.copies.reduce import combines_on_gpu
from redist.runtime.copies.strided import Strided
from redist.runtime.cuda.kernels import rounds
from redist.runtime.cuda.kernels.blocking import Tuning
from redist.runtime.cuda.kernels.chains import ReductionChain, chain_copies, turns_of
from redist.runtime.cuda.kernels.rounds import CudaReductionList, CudaRound
from redist.runtime.cuda.kernels.tables import tables_of
from redist.runtime.schedule.compiler import Combine, Round
from tests.programs.gpu.lists import random_reduction, same_values

F32 = DType.parse("f32")


@pytest.mark.parametrize("seed", range(60))
def test_chains_first_then_the_turns_is_all_in_order(seed: int) -> None:
    one = random_reduction(Random(seed), 3000, F32)
    chains, rest = chain_copies(one.copies, one.case.moves)
    buffers = one.after_copies({chain.move for chain in chains}).buffers
    bases = addresses(buffers)
    for chain in chains:
        first, *more = chain.moves()
        CopyList.of([first]).run(bases)
        with np.errstate(all="ignore"):
            Combine("sum", F32, CopyList.of(more)).run(bases)
    for turn in turns_of(list(rest)):
        with np.errstate(all="ignore"):
            Combine("sum", F32, CopyList.of(reversed(turn))).run(bases)
    for got, want in zip(buffers, one.wanted("sum", F32), strict=True):
        assert same_values(got, want, F32)


def a_round(target: int, sources: list[int], form: Strided) -> Round:
    """A rank that reduces tiles of all into its own."""
    copy, *more = [BufferCopy(target, 64, source, 0, form) for source in sources]
    none = CopyList.of([])
    combines = (Combine("sum", F32, CopyList.of(more)),)
    return Round(none, none, (), (), CopyList.of([copy]), (), none, combines)


def test_tiles_that_are_alike_become_one_launch_for_all_ranks() -> None:
    form = Strided(128, ((8, 128, 256),))
    made = CudaRound.of(a_round(4, [0, 1, 2, 3], form), a_round(5, [0, 1, 2, 3], form))
    assert not len(made.copies) and not len(made.unpack)
    (combine,) = made.combines
    (tables,) = combine.tables([0] * 6)
    assert tables.members["n_sources"].tolist() == [4] * 8
    assert tables.members["fresh"].all()
    assert tables.members["src"].tolist() == [0, 1, 2, 3] * 2


def test_a_tile_that_lies_otherwise_waits() -> None:
    one = a_round(4, [0, 1, 2, 3], Strided(128, ((8, 128, 256),)))
    other = BufferCopy(4, 64, 9, 0, Strided(128, ((8, 128, 512),)))
    (combine,) = one.combines
    rows = [*CopyList.of([other]).rows, *combine.moves.rows]
    unlike = Combine("sum", F32, CopyList(np.array(rows), 0))
    made = CudaRound.of(Round(one.publish, one.pack, (), (), one.copies, (), one.unpack, (unlike,)))
    assert len(made.copies) == 1
    assert not made.combines[0].chains
    assert len(made.combines[0].turns) == 4


def test_outer_dims_are_cut_for_every_source() -> None:
    form = Strided(4, tuple((2, 8 * 3**k, 12 * 4**k) for k in reversed(range(8))))
    chain = ReductionChain(BufferCopy(0, 0, 1, 0, form), ((2, 40),))
    members = tables_of([chain], [0, 0, 0], Tuning(), 4).members
    first, second = (members["src_offset"][members["src"] == k] for k in (1, 2))
    assert len(set(first.tolist())) == 4
    assert (second == first + 40).all()


@pytest.mark.parametrize(("apart", "n_members"), [(8, 2), (16, 6)])
def test_chains_become_one_row_where_all_sources_are_equally_far_apart(
    apart: int, n_members: int
) -> None:
    form = Strided(8, ((4, 64, 64),))
    chains = [
        ReductionChain(BufferCopy(0, 8 * k, 1, 8 * k, form), ((2, apart * k),)) for k in range(3)
    ]
    tables = tables_of(chains, [0, 0, 0], Tuning(), 8)
    assert len(tables.rows) == 2 and len(tables.members) == n_members


def test_copies_of_other_arrays_stay() -> None:
    copies = [BufferCopy(0, 0, 1, 0, Strided(64, ())), BufferCopy(2, 0, 3, 0, Strided(64, ()))]
    made = CudaReductionList.of(
        [BufferCopy(0, 0, 4, 0, Strided(64, ()))], "max", F32, copies=copies
    )
    assert [chain.move for chain in made.chains] == copies[:1]


def test_every_small_float_can_be_combined() -> None:
    names = ("f8e3m4", "f8e4m3", "f8e4m3fn", "f8e4m3fnuz", "f8e4m3b11fnuz", "f8e5m2", "f8e5m2fnuz")
    for name in (*names, "f8e8m0fnu", "bf16", "bool", "c128"):
        assert combines_on_gpu("sum", DType.parse(name))
    assert not combines_on_gpu("sum", DType.parse("S1"))


def test_what_gpus_combine_is_what_the_kernel_knows() -> None:
    assert set(rounds._ITEMS) == reduce._GPU


def test_too_many_tiles_are_refused() -> None:
    with pytest.raises(TransferError, match="in one launch"):
        tables_of([BufferCopy(0, 0, 1, 0, Strided(2**46, ()))], [0, 0], Tuning())
