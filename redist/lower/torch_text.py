"""A plan as the text of a program with collectives of torch.distributed, to read, to run and to keep."""

from __future__ import annotations

from redist.errors import ConversionError
from redist.layout.dtype import DType
from redist.lower.rank_text import PLACE, RankText, SentAs, System
from redist.plan.plan import Plan
from redist.plan.rates import FLAT
from redist.plan.topology import Topology

DTYPES = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
OPS = {"sum": "SUM", "prod": "PRODUCT", "max": "MAX", "min": "MIN"}
FUNCTIONS = {
    "place": PLACE,
    "group": '''
def group(comm, sizes, ranks, axes):
    """The ranks that differ from this one along these axes alone. All ranks make all groups."""
    members, mine = {}, None
    for rank in ranks:
        at = place(sizes, ranks, rank)
        members.setdefault(tuple(at[axis] for axis in sizes if axis not in axes), []).append(rank)
    for some in members.values():
        made = dist.new_group([dist.get_global_rank(comm, rank) for rank in some])
        mine = made if dist.get_rank(comm) in some else mine
    return mine
''',
    "all_to_all": '''
def all_to_all(comm, blocks):
    """Send block k to member k, get one from each."""
    sent = blocks.contiguous()
    got = torch.empty_like(sent)
    dist.all_to_all_single(got.view(-1), sent.view(-1), group=comm)
    return got
''',
    "all_gather": '''
def all_gather(comm, tile):
    """Get the tiles of all members, one after another."""
    got = torch.empty((dist.get_world_size(comm), *tile.shape), dtype=tile.dtype)
    dist.all_gather_into_tensor(got.view(-1), tile.contiguous().view(-1), group=comm)
    return got
''',
    "reduce_scatter": '''
def reduce_scatter(comm, blocks, op):
    """Combine block k of all members at member k."""
    sent = blocks.contiguous().view(dist.get_world_size(comm), -1)
    got = torch.empty_like(sent[0])
    dist.reduce_scatter_tensor(got, sent.view(-1), op, group=comm)
    return got
''',
    "all_reduce": '''
def all_reduce(comm, tile, op):
    """Combine the tiles of all members, for all of them."""
    got = tile.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(got, op, group=comm)
    return got
''',
    "embed": '''
def embed(comm, tile, identity):
    """The tile as one of as many blocks as there are members; the others hold nothing yet."""
    blocks = torch.full((dist.get_world_size(comm), *tile.shape), identity, dtype=tile.dtype)
    blocks[dist.get_rank(comm)] = tile
    return blocks
''',
    "hand_over": '''
def hand_over(comm, tile, shape, moves, fill=0, combine=None):
    """Send boxes of the tile to other ranks, and put what they send into a new one.

    A move is (sender, receiver, start in the old tile, start in the new one, shape, order); boxes of
    order 0 are written, others are combined with what is there, in their order.
    """
    me, peers = dist.get_rank(comm), dist.get_process_group_ranks(comm)
    out = None if shape is None else torch.full(shape, fill, dtype=DTYPE)
    requests, arrived, sent = [], [], []
    for tag, (sender, receiver, source, target, size, order) in enumerate(moves):
        if me == sender:
            box = tile[tuple(slice(a, a + n) for a, n in zip(source, size))]
        if me == receiver:
            got = box if sender == receiver else torch.empty(size, dtype=DTYPE)
            arrived.append((order, target, got))
        if me == receiver != sender:
            requests.append(dist.irecv(got, peers[sender], comm, tag))
        if me == sender != receiver:
            sent.append(box.contiguous())
            requests.append(dist.isend(sent[-1], peers[receiver], comm, tag))
    for request in requests:
        request.wait()
    for order, target, got in sorted(arrived, key=lambda one: one[0]):
        at = tuple(slice(a, a + n) for a, n in zip(target, got.shape))
        out[at] = combine(out[at], got) if order else got
    return out
''',
}
MAIN = """
dist.init_process_group("gloo")
rank = dist.get_rank()
shape = {shapes}.get(rank)
before = None if shape is None else torch.ones(shape, dtype=DTYPE)
after = move(before, dist.group.WORLD)
print(f"rank {{rank}}: {{shape}} -> {{None if after is None else tuple(after.shape)}}")
dist.destroy_process_group()
"""


def carrier_of(dtype: DType) -> SentAs:
    """The dtype of PyTorch."""
    if dtype.name not in DTYPES:
        raise ConversionError(f"cannot write this plan as text: PyTorch cannot send {dtype}")
    return SentAs(f"torch.{DTYPES[dtype.name]}")


def op_of(op: str, dtype: DType) -> str:
    """PyTorch's name of a reduction."""
    return f"dist.ReduceOp.{OPS[op]}"


TORCH = System(
    name="PyTorch",
    command="torchrun --nproc-per-node {n} THIS_FILE",
    needs="PyTorch",
    imports=("import torch", "import torch.distributed as dist"),
    carrier=carrier_of,
    op=op_of,
    ufuncs={
        "sum": "torch.add",
        "prod": "torch.mul",
        "max": "torch.maximum",
        "min": "torch.minimum",
    },
    functions=FUNCTIONS,
    main=MAIN,
    rank="dist.get_rank(comm)",
    size="dist.get_world_size(comm)",
    free="dist.destroy_process_group({name})",
    transpose="permute",
    full_like="torch.full_like",
    infinity='float("inf")',
    copy="clone",
    sorts_groups=True,
)


def to_torch_text(plan: Plan, topology: Topology = FLAT) -> str:
    """The text of a program whose ``move(tile, group)`` takes a rank's tile and gives the new one.

    >>> import redist
    >>> plan = redist.synthesize("f32[8{x}]", "f32[8]", mesh=redist.Mesh(x=2))
    >>> print(to_torch_text(plan).splitlines()[2])
    Run it with: torchrun --nproc-per-node 2 THIS_FILE.
    """
    return RankText(plan, topology, TORCH).write()
