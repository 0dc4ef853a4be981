"""A plan as the text of a program with plain mpi4py collectives, to read, to run and to keep."""

from __future__ import annotations

import numpy as np

from redist.errors import ConversionError
from redist.layout.dtype import DType
from redist.lower.rank_text import PLACE, RankText, SentAs, System
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.topology import Topology

OPS = {"sum": "MPI.SUM", "prod": "MPI.PROD", "max": "MPI.MAX", "min": "MPI.MIN"}
FUNCTIONS = {
    "place": PLACE,
    "group": '''
def group(comm, sizes, ranks, axes):
    """The ranks that differ from this one along these axes alone, in the order of their places."""
    at = place(sizes, ranks, comm.rank)
    color = key = 0
    for axis, size in sizes.items() if at else ():
        if axis in axes:
            key = key * size + at[axis]
        else:
            color = color * size + at[axis]
    return comm.Split(color if at else MPI.UNDEFINED, key)
''',
    "all_to_all": '''
def all_to_all(comm, blocks):
    """Send block k to member k, get one from each."""
    sent = np.ascontiguousarray(blocks)
    got = np.empty_like(sent)
    comm.Alltoall(sent, got)
    return got
''',
    "all_gather": '''
def all_gather(comm, tile):
    """Get the tiles of all members, one after another."""
    got = np.empty((comm.size, *tile.shape), tile.dtype)
    comm.Allgather(np.ascontiguousarray(tile), got)
    return got
''',
    "reduce_scatter": '''
def reduce_scatter(comm, blocks, op):
    """Combine block k of all members at member k."""
    sent = np.ascontiguousarray(blocks).reshape(comm.size, -1)
    got = np.empty_like(sent[0])
    comm.Reduce_scatter_block(sent, got, op)
    return got
''',
    "all_reduce": '''
def all_reduce(comm, tile, op):
    """Combine the tiles of all members, for all of them."""
    got = np.empty(tile.shape, tile.dtype)
    comm.Allreduce(np.ascontiguousarray(tile), got, op)
    return got
''',
    "embed": '''
def embed(comm, tile, identity):
    """The tile as one of as many blocks as there are members; the others hold nothing yet."""
    blocks = np.full((comm.size, *tile.shape), identity, tile.dtype)
    blocks[comm.rank] = tile
    return blocks
''',
    "hand_over": '''
def hand_over(comm, tile, shape, moves, fill=0, combine=None):
    """Send boxes of the tile to other ranks, and put what they send into a new one.

    A move is (sender, receiver, start in the old tile, start in the new one, shape, order); boxes of
    order 0 are written, others are combined with what is there, in their order.
    """
    out = None if shape is None else np.full(shape, fill, DTYPE)
    requests, arrived = [], []
    for tag, (sender, receiver, source, target, size, order) in enumerate(moves):
        if comm.rank == sender:
            box = tile[tuple(slice(a, a + n) for a, n in zip(source, size))]
        if comm.rank == receiver:
            got = box if sender == receiver else np.empty(size, DTYPE)
            arrived.append((order, target, got))
        if comm.rank == receiver != sender:
            requests.append(comm.Irecv(got, sender, tag))
        if comm.rank == sender != receiver:
            requests.append(comm.Isend(np.ascontiguousarray(box), receiver, tag))
    MPI.Request.Waitall(requests)
    for order, target, got in sorted(arrived, key=lambda one: one[0]):
        at = tuple(slice(a, a + n) for a, n in zip(target, got.shape))
        out[at] = combine(out[at], got) if order else got
    return out
''',
}

MAIN = """
world = MPI.COMM_WORLD
shape = {shapes}.get(world.rank)
before = None if shape is None else np.ones(shape, DTYPE)
after = move(before, world)
print(f"rank {{world.rank}}: {{shape}} -> {{None if after is None else after.shape}}")
"""


def carrier_of(dtype: DType) -> SentAs:
    """The NumPy dtype that MPI has a name for."""
    found = dtype.to_numpy()
    if found.kind in "Mm" or dtype.name == "f16":
        return SentAs(f'np.dtype("u{dtype.itemsize}")', True, f'"{found}"')
    if found.kind not in "buifc":
        raise ConversionError(f"cannot write this plan as text: MPI has no type like {dtype}")
    return SentAs(f'np.dtype("{found}")', dtype.extended_name is not None)


def op_of(op: str, dtype: DType) -> str:
    """MPI's name of a reduction; it has others for truth values."""
    if dtype.to_numpy() == np.bool_:
        return "MPI.LOR" if op in ("sum", "max") else "MPI.LAND"
    return OPS[op]


MPI4PY = System(
    name="MPI",
    command="mpirun -n {n} python THIS_FILE",
    needs="numpy and mpi4py",
    imports=("import numpy as np", "from mpi4py import MPI"),
    carrier=carrier_of,
    op=op_of,
    ufuncs={"sum": "np.add", "prod": "np.multiply", "max": "np.maximum", "min": "np.minimum"},
    functions=FUNCTIONS,
    main=MAIN,
    rank="comm.rank",
    size="comm.size",
    free="{name}.Free()",
    transpose="transpose",
    full_like="np.full_like",
    infinity="np.inf",
    copy="copy",
)


def to_mpi4py(plan: Plan, topology: Topology = FLAT) -> str:
    """The text of a program that runs the plan's steps; :meth:`redist.Plan.to_mpi4py` tells more."""
    return RankText(plan, topology, MPI4PY).write()
