"""Types as descriptors of ScaLAPACK, against its own definitions of who holds what."""

from __future__ import annotations

import random

import pytest

from redist.errors import ConversionError
from redist.layout.array_type import ArrayType
from redist.layout.mesh import Mesh
from redist.layout.scalapack import from_scalapack, to_scalapack
from redist.layout.tiles import indices_of, same_layout, tile_shapes
from tests.tiers import sample


def numroc(n: int, nb: int, iproc: int, isrc: int, nprocs: int) -> int:
    """Rows or columns of a process, from the definition: blocks are dealt from process isrc on."""
    return sum(
        min(nb, n - lo) for k, lo in enumerate(range(0, n, nb)) if (k + isrc) % nprocs == iproc
    )


def test_matrices_of_scalapack_lie_where_it_says() -> None:
    """Sizes, owners and local places of 10,000 random matrices, as numroc, indxg2p and indxg2l have them."""
    rng = random.Random(0)
    for _ in range(sample(500, of=10_000)):
        n, nb, p = rng.randint(1, 200), rng.randint(1, 40), rng.randint(1, 5)
        source = rng.randrange(p)
        desc = (1, 0, n, 1, nb, 1, source, 0, max(1, n))
        t = from_scalapack(desc, (p, 1), "f64")
        i = rng.randrange(n)
        owner = (i // nb + source) % p
        local = nb * (i // (nb * p)) + i % nb
        assert [tile_shapes(t)[rank][0] for rank in range(p)] == [
            numroc(n, nb, rank, source, p) for rank in range(p)
        ]
        assert int(indices_of(t, owner)[0][local]) == i
        back = to_scalapack(t, owner)
        again = from_scalapack(back.desc, back.grid, "f64")
        assert again == t or same_layout(again, t)


@pytest.mark.parametrize("order", ["R", "C"])
def test_grids_of_scalapack(order: str) -> None:
    desc = (1, 0, 100, 90, 16, 8, 1, 2, 60)
    t = from_scalapack(desc, (2, 3), "f64", order=order)
    for i in range(2):
        for j in range(3):
            rank = i * 3 + j if order == "R" else j * 2 + i
            rows = [k for k in range(100) if (k // 16 + 1) % 2 == i]
            columns = [k for k in range(90) if (k // 8 + 2) % 3 == j]
            found = indices_of(t, rank)
            assert (found[0].tolist(), found[1].tolist()) == (rows, columns)
    back = to_scalapack(t, 0)
    assert back.desc[2:8] == desc[2:8]
    assert back.grid == (2, 3)
    assert back.ranks[0][1] == (1 if order == "R" else 2)
    part = from_scalapack(desc, (2, 3), "f64", order=order, at=(20, 30), shape=(50, 40))
    assert part.shape == (50, 40)
    rows = [k for k in range(20, 70) if (k // 16 + 1) % 2 == 0]
    assert (indices_of(part, 0)[0] + 20).tolist() == rows


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f64[8{p}]", "it has 1 dims; need 2"),
        ("f64[8{p}, 8] sum{q}", "a sum is pending"),
        ("f64[8{p}, 8]", "some axis of the mesh cuts no dim"),
        ("f64[8{p}+8{p}, 8{q/3}]", None),
        ("f64[9{p}+6{p}, 8{q}]", r"dim 0, 9\{p\}\+6\{p\}, is not dealt in blocks of one size"),
        ("f64[9{p/4@1}, 8{q}]", "dim 0 begins within a block of 4"),
    ],
)
def test_what_scalapack_cannot_say(text: str, reason: str | None) -> None:
    t = ArrayType.parse(text, Mesh(p=2, q=2))
    if reason is None:
        assert to_scalapack(t, 0).desc[4:6] == (4, 3)
        return
    with pytest.raises(ConversionError, match=reason):
        to_scalapack(t, 0)
    with pytest.raises(ConversionError, match="need 9 integers"):
        from_scalapack((1, 2), (2, 2), "f64")
