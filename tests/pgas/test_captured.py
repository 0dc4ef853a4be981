"""Parts of programs by themselves: stand-ins, what is left out, order of moves, and the judge's eyes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import redist
from redist import ArrayType, CaptureError, Mesh, pgas
from redist.graph.nodes import GraphMove, GraphNode, ProgramGraph
from redist.pgas.ghosts.stand_ins import look_at, pretend
from redist.pgas.ghosts.tape import COLLECTIVE, MoveOf, Ref, Task, TaskKind, refs_in
from redist.pgas.ghosts.traffic import TileMover
from redist.pgas.memory import BUFFERS
from redist.pgas.programs.explain import explain_elsewhere, plan_elsewhere
from redist.pgas.programs.passes.blocks import block_joins
from redist.pgas.programs.passes.judge import judge
from redist.pgas.programs.passes.order import join_moves, needed_before, ready_gaps, start_early
from redist.pgas.programs.passes.replay import RecordedRun, record_runs, write_replay
from redist.pgas.programs.passes.tidy import drop_dead, share_equal
from redist.text.call_site import Line


def training_layer(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, up: Any, down: Any, dy: Any) -> Any:
    """A layer of a language model, forward and backward: too tangled for the exact search."""
    q, k, v = (pgas.einsum("bsd,dhe->bhse", x, w) for w in (wq, wk, wv))
    s = pgas.einsum("bhse,bhte->bhst", q, k)
    s = pgas.exp(s - pgas.max(s, axis=-1, keepdims=True))
    p = s / pgas.sum(s, axis=-1, keepdims=True)
    o = pgas.einsum("bhst,bhte->bhse", p, v)
    h = x + pgas.einsum("bhse,hed->bsd", o, wo)
    g = pgas.tanh(pgas.einsum("bsd,df->bsf", h, up))
    y = h + pgas.einsum("bsf,fd->bsd", g, down)
    du = pgas.einsum("bsd,fd->bsf", dy, down) * (1.0 - g * g)
    dh = dy + pgas.einsum("bsf,df->bsd", du, up)
    do = pgas.einsum("bsd,hed->bhse", dh, wo)
    dv, dp = pgas.einsum("bhst,bhse->bhte", p, do), pgas.einsum("bhse,bhte->bhst", do, v)
    ds = p * (dp - pgas.sum(dp * p, axis=-1, keepdims=True))
    dq, dk = pgas.einsum("bhst,bhte->bhse", ds, k), pgas.einsum("bhst,bhse->bhte", ds, q)
    dx = dh
    for t, w in ((dq, wq), (dk, wk), (dv, wv)):
        dx = dx + pgas.einsum("bhse,dhe->bsd", t, w)
    return (
        y, dx, *(pgas.einsum("bsd,bhse->dhe", x, t) for t in (dq, dk, dv)),
        pgas.einsum("bhse,bsd->hed", o, dh), pgas.einsum("bsd,bsf->df", h, du),
        pgas.einsum("bsf,bsd->fd", g, dy),
    )  # fmt: skip


def test_a_tangled_program_is_planned_with_a_bound() -> None:
    mesh = Mesh(x=2, y=4)
    rows, head = "f32[8{x}, 128, 256]", "f32[256, 8, 32{y}]"
    texts = (
        rows, head, head, head, "f32[8, 32, 256{y}]", "f32[256{y}, 1024]", "f32[1024, 256{y}]", rows,
    )  # fmt: skip
    types = [ArrayType.parse(text, mesh) for text in texts]
    plan = plan_elsewhere("training_layer", training_layer, types, mesh)
    assert plan.search == "bounded" and plan.layouts == "planned"
    assert plan.bound_ps <= plan.time_ps <= 1.1 * plan.bound_ps and plan.time_ps < plan.written_ps


LINE = Line("here.py", 1)
MESH = Mesh(x=2)
ROWS, COLUMNS = (ArrayType.parse(text, MESH) for text in ("f64[8{x}, 6]", "f64[8, 6{x}]"))

# Stand-ins


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "add": (np.add, ((5, 1, 7), (4, 7)), {}),
    "matmul": (np.matmul, ((3, 6, 8), (8, 5)), {}),
    "sum": (np.sum, ((6, 4, 6),), {"axis": (1,), "keepdims": True}),
    "argmin": (np.argmin, ((6, 4),), {"axis": 0}),
    "einsum": (np.einsum, ("ij,jk->ki", (6, 4), (4, 9)), {}),
    "concatenate": (np.concatenate, ([(3, 4), (5, 4)],), {"axis": 0}),
    "stack": (np.stack, ([(3, 4), (3, 4)],), {"axis": 1}),
    "rfft": (np.fft.rfft, ((6, 9),), {"axis": 0}),
    "irfft": (np.fft.irfft, ((6, 9),), {"n": 13, "axis": 1}),
    "transpose": (np.transpose, ((3, 4, 5), (2, 0, 1)), {}),
    "broadcast_to": (np.broadcast_to, ((4, 1), (3, 4, 6)), {}),
    "diff": (np.diff, ((6, 5),), {"axis": 1}),
    "repeat": (np.repeat, ((6, 5), 3), {"axis": 0}),
    "tile": (np.tile, ((6, 5), (2, 1, 3)), {}),
    "qr": (np.linalg.qr, ((9, 4),), {}),
    "zeros_like": (np.zeros_like, ((5, 4), np.float32), {"shape": (0, 7)}),
    "where": (np.where, ((5, 4), (4,), (5, 1)), {}),
}


def filled(thing: Any, make: Callable[[tuple[int, ...]], Any], name: str = "") -> Any:
    """Arrays in the places of shapes, but for the arguments that are shapes themselves."""
    if isinstance(thing, tuple) and all(isinstance(n, int) for n in thing):
        return make(thing)
    return [filled(one, make) for one in thing] if isinstance(thing, list) else thing


@pytest.mark.parametrize("name", CALLS)
def test_stand_ins_look_like_what_numpy_gives(name: str) -> None:
    function, shapes, options = CALLS[name]
    given = 1 if name in ("transpose", "broadcast_to", "tile", "zeros_like") else len(shapes)

    def arguments(make: Callable[[tuple[int, ...]], Any]) -> list[Any]:
        return [filled(one, make) if k < given else one for k, one in enumerate(shapes)]

    want = function(*arguments(lambda s: np.random.default_rng(0).random(s)), **options)
    got = look_at(function, arguments(lambda s: pretend(s, float)), options)
    wanted = list(want) if isinstance(want, tuple) else [want]
    for one, other in zip(got if isinstance(got, list) else [got], wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert one.flags.c_contiguous == other.flags.c_contiguous or other.size == 0


def test_functions_without_a_rule_are_refused() -> None:
    with pytest.raises(CaptureError, match="has no rule"):
        look_at(np.histogram, [pretend((4,), float)], {})


# Tasks by hand


def pure(function: Any, args: Sequence[Any], out: int, reads: Sequence[int]) -> Task:
    return Task(TaskKind.PURE, function, tuple(args), {}, out, tuple(reads), (), 0)


def write(function: Any, args: Sequence[Any], into: int) -> Task:
    return Task(
        TaskKind.WRITE, function, tuple(args), {"out": Ref(into)}, None, (into,), (into,), 0
    )


def move(source: int, out: int, target: ArrayType = COLUMNS) -> Task:
    what = MoveOf(ROWS, target, (8, 3), LINE)
    mover: Any = TileMover((what,), None, BUFFERS)  # type: ignore[arg-type]
    return Task(TaskKind.MOVE, mover, (Ref(source),), {}, out, (source,), (), 0)


X = Ref(0)
PROGRAM = [
    pure(np.add, (X, 1.0), 1, (0,)),
    pure(np.add, (X, 1.0), 2, (0,)),
    move(1, 3),
    move(2, 4),
    pure(np.multiply, (Ref(3), Ref(4)), 5, (3, 4)),
    pure(np.exp, (X,), 6, (0,)),
    write(np.add, (Ref(5), 2.0), 5),
]
ROOTS = {n: n for n in range(7)}


def tidied() -> list[Task]:
    shared, firsts = share_equal(PROGRAM, [5], ROOTS)
    assert firsts == [0, 0]
    return drop_dead(shared, [5], ROOTS, [0])


def test_equal_tasks_and_moves_are_made_once_and_dead_ones_left_out() -> None:
    left = tidied()
    assert [task.out for task in left] == [1, 3, 5, None]
    assert refs_in(left[2].args) == [3, 3]
    judge(PROGRAM, left, [0], [5], ROOTS)


def test_a_value_that_is_written_is_not_shared() -> None:
    tasks = [*PROGRAM[:2], write(np.add, (Ref(1), 1.0), 1), pure(np.exp, (Ref(2),), 5, (2,))]
    shared, _ = share_equal(tasks, [1, 5], ROOTS)
    assert [task.out for task in shared] == [1, 2, None, 5]


def test_zeros_of_either_sign_differ() -> None:
    tasks = [pure(np.multiply, (X, zero), out, (0,)) for out, zero in ((1, 0.0), (2, -0.0))]
    assert len(share_equal(tasks, [], ROOTS)[0]) == 2


WRONG: dict[str, Callable[[list[Task]], list[Task]]] = {
    "a write is missing": lambda tasks: tasks[:-1],
    "a write comes first": lambda tasks: [tasks[0], tasks[1], tasks[3], tasks[2]],
    "another number": lambda tasks: [replace(tasks[0], args=(X, 2.0)), *tasks[1:]],
    "another function": lambda tasks: [replace(tasks[0], function=np.subtract), *tasks[1:]],
    "another target": lambda tasks: [tasks[0], move(1, 3, ROWS), *tasks[2:]],
    "another source": lambda tasks: [tasks[0], move(0, 3), *tasks[2:]],
    "an argument is written": lambda tasks: [write(np.add, (X, 1.0), 0), *tasks],
    "written twice": lambda tasks: [*tasks, tasks[-1]],
}


@pytest.mark.parametrize("name", WRONG)
def test_the_judge_sees_what_is_wrong(name: str) -> None:
    with pytest.raises(CaptureError, match="internal error"):
        judge(PROGRAM, WRONG[name](tidied()), [0], [5], ROOTS)


def test_the_judge_sees_what_a_move_under_way_reads_being_changed() -> None:
    program = [move(0, 3), write(np.add, (X, 1.0), 0), pure(np.exp, (Ref(3),), 5, (3,))]
    gaps = ready_gaps(program, ROOTS)
    done = start_early(program, ROOTS, gaps, [True], 10)
    assert [task.kind for task in done] == [TaskKind.MOVE, TaskKind.WRITE, TaskKind.PURE]
    judge(program, done, [0], [5], ROOTS)
    begun = replace(program[0], kind=TaskKind.START, out=10)
    waits = Task(TaskKind.WAIT, abs, (Ref(10),), {}, 3, (), (), 0)
    with pytest.raises(CaptureError, match="under way"):
        judge(program, [begun, program[1], waits, program[2]], [0], [5], ROOTS)


# Order


def random_tasks(rng: Random, n_moves: int) -> list[Task]:
    """Moves of values that are made somewhere before them, as different on every rank."""
    tasks: list[Task] = []
    made = [0]
    for number in range(n_moves):
        for k in range(rng.randint(0, 3)):
            out = 1000 + 10 * number + k
            tasks.append(pure(np.exp, (Ref(rng.choice(made)),), out, ()))
            made.append(out)
        moved = move(rng.choice(made), number + 1)
        exchange = replace(moved, kind=TaskKind.EXCHANGE)
        tasks.append(exchange if rng.random() < 0.2 else replace(moved, reads=()))
        made.append(number + 1)
    return [*tasks, pure(np.exp, tuple(map(Ref, made)), 999, ())]


def kinds_of(tasks: Sequence[Task]) -> list[TaskKind]:
    return [task.kind for task in tasks if task.kind in COLLECTIVE]


def with_kinds(tasks: Sequence[Task], kinds: Sequence[TaskKind]) -> list[Task]:
    """The tasks with moves and exchanges where another rank has them."""
    left = iter(kinds)
    return [replace(t, kind=next(left)) if t.kind in COLLECTIVE else t for t in tasks]


def begun(done: Sequence[Task]) -> list[int | None]:
    """The moves and exchanges of a rank by what they give, in the order in which they begin."""
    ends = {task.args[0].number: task.out for task in done if task.kind is TaskKind.WAIT}
    starts = [task for task in done if task.kind in (*COLLECTIVE, TaskKind.START)]
    return [ends.get(task.out or 0, task.out) for task in starts]


@pytest.mark.parametrize("seed", range(40))
def test_all_ranks_begin_moves_in_one_order(seed: int) -> None:
    rng = Random(seed)
    n = rng.randint(1, 8)
    programs = [random_tasks(Random(100 * seed + rank), n) for rank in range(3)]
    kinds = kinds_of(programs[0])
    programs = [with_kinds(tasks, kinds) for tasks in programs]
    gaps = [ready_gaps(tasks, {}) for tasks in programs]
    agreed = [max(several) for several in zip(*gaps, strict=True)]
    early = [kind is TaskKind.MOVE and rng.random() < 0.7 for kind in kinds]
    orders = []
    for tasks in programs:
        done = start_early(tasks, {}, agreed, early, 5000)
        there: set[int] = {0}
        for task in done:
            assert set(refs_in((task.args, task.options))) <= there, "used before it is there"
            there |= set() if task.out is None else {task.out}
        assert there >= set(range(n + 1))
        orders.append(begun(done))
    assert orders[0] == orders[1] == orders[2]


def test_small_moves_that_nothing_stands_between_go_together() -> None:
    tasks = [
        move(0, 1), pure(np.exp, (Ref(1),), 2, (1,)), move(0, 3), move(2, 4), move(0, 5),
    ]  # fmt: skip
    roots = {n: n for n in range(6)}
    done = join_moves(tasks, roots, needed_before(tasks, roots), 10)
    batch = done[0].function
    assert isinstance(batch, TileMover) and len(batch.moves) == 2
    assert [task.out for task in done] == [10, 1, 3, 2, 11, 4, 5]
    judge(tasks, done, [0], [3, 4, 5], roots)


def test_a_small_move_waits_for_another_that_does_not_need_it() -> None:
    tasks = [
        move(0, 1), pure(np.exp, (Ref(1),), 2, (1,)), pure(np.sin, (Ref(0),), 3, (0,)),
        move(3, 4), pure(np.add, (Ref(2), Ref(4)), 5, (2, 4)),
    ]  # fmt: skip
    roots = {n: n for n in range(6)}
    assert needed_before(tasks, roots) == [0, 0]
    done = join_moves(tasks, roots, needed_before(tasks, roots), 10)
    assert [task.out for task in done] == [3, 10, 1, 4, 2, 5]
    judge(tasks, done, [0], [5], roots)
    assert join_moves(tasks, roots, [0, 1], 10) == tasks, "on another rank it needs the first"
    over = [tasks[0], write(np.sin, (Ref(0),), 0), *tasks[1:]]
    assert needed_before(over, roots) == [0, 1], "what the first one moves is written"
    assert join_moves(over, roots, needed_before(over, roots), 10) == over


# Blocks


def test_a_join_that_one_reduction_reads_is_computed_in_blocks_with_the_same_bits() -> None:
    shapes = {0: (3000, 1, 16), 1: (1, 64, 16), 2: (3000, 64, 16), 3: (3000, 64, 16), 4: (3000, 64)}
    tasks = [
        pure(np.subtract, (Ref(0), Ref(1)), 2, (0, 1)),
        pure(np.multiply, (Ref(2), Ref(2)), 3, (2,)),
        replace(pure(np.sum, (Ref(3),), 4, (3,)), options={"axis": (2,), "keepdims": False}),
    ]
    roots = {n: n for n in shapes}
    (task,) = block_joins(tasks, [4], roots, shapes)
    judge(tasks, [task], [0, 1], [4], roots)
    rng = np.random.default_rng(1)
    x, c = rng.normal(size=shapes[0]), rng.normal(size=shapes[1])
    assert task.function(x, c).tobytes() == ((x - c) * (x - c)).sum(axis=2).tobytes()
    assert block_joins(tasks, [3, 4], roots, shapes)[0] is tasks[0], "somebody else looks at it"
    changed = [*tasks[:2], write(np.add, (Ref(1), 1.0), 1), tasks[2]]
    assert len(block_joins(changed, [4], roots, shapes)) == 4, "an operand is written in between"


# Graphs


def test_kernels_that_follow_each_other_are_one_task_and_views_are_made_anew() -> None:
    steps = (np.exp, np.sin, np.tanh, np.negative, np.square, np.abs)
    tasks = [pure(f, (Ref(k),), k + 1, (k,)) for k, f in enumerate(steps)]
    tasks.append(pure(np.transpose, (Ref(6),), 7, (6,)))  # a view
    tasks.append(pure(np.add, (Ref(7), 1.0), 8, (6,)))
    tasks.append(write(np.add, (Ref(3), 2.0), 3))
    tasks.append(pure(np.multiply, (Ref(8), Ref(8)), 9, (8,)))
    roots = {n: n for n in range(10)} | {7: 6}
    shapes = dict.fromkeys(range(10), (4, 4))
    done = record_runs(tasks, [3, 7, 9], roots, shapes, 100)
    runs = [task for task in done if isinstance(task.function, RecordedRun)]
    assert len(runs) == 1 and len(runs[0].function.tasks) == 8  # type: ignore[attr-defined]
    assert [task.out for task in done[1:]] == [3, 6, 8, 7, None, 9]
    judge(tasks, done, [0], [3, 7, 9], roots)
    x = np.random.default_rng(0).random((4, 4))
    want = write_replay(tasks, [0], [3, 7, 9])(x)
    replay = write_replay(done, [0], [3, 7, 9])
    for _ in range(3):  # on a GPU, the third has one launch
        for one, other in zip(replay(x), want, strict=True):
            assert one.tobytes() == other.tobytes()
    wrong = replace(runs[0].function, outputs=(3, 6, 6))  # type: ignore[type-var]
    with pytest.raises(CaptureError, match="is another"):
        judge(tasks, [replace(done[0], function=wrong), *done[1:]], [0], [3, 7, 9], roots)


def test_large_tiles_and_short_runs_stay_as_they_are() -> None:
    tasks = [pure(np.exp, (Ref(k),), k + 1, (k,)) for k in range(8)]
    roots = {n: n for n in range(9)}
    for shape, n in (((2**20,), 8), ((8,), 4)):
        shapes = dict.fromkeys(range(9), shape)
        assert record_runs(tasks[:n], [n], roots, shapes, 100) == tasks[:n]
    shapes = dict.fromkeys(range(9), (2**18,))
    assert len(record_runs(tasks, [8], roots, shapes, 100)) == 2  # four tiles are alive at most


def test_a_program_is_explained_for_a_machine_that_is_not_here() -> None:
    mesh = Mesh(x=1024)
    types = [
        ArrayType.parse(text, mesh)
        for text in ("f64[1048576{x}, 1048576]", "f64[1048576, 1048576{x}]")
    ]
    graph = explain_elsewhere("product", operator.matmul, types, mesh)
    assert len(graph.nodes) == 1 and len(graph.moves) == 2 and graph.received_bytes > 2**40
    assert graph.nodes[0].arguments == (0, 1)


def test_one_array_that_is_moved_together_with_no_other_is_a_move() -> None:
    def twice(x: Any) -> Any:
        one = pgas.move_together({"x": x}, {"x": "{}, {x}"})["x"]
        return one + pgas.move_together({"x": x}, {"x": "{}, {x}"})["x"]

    graph = explain_elsewhere("twice", twice, [ROWS], MESH)
    assert [move.fate for move in graph.moves] == ["", "made once, for call 0"]


def test_graphs_are_read_back_and_drawn() -> None:
    moved = GraphMove("f32[8{x}]", "f32[8]", "all_gather", 64, 2_000_000, "begun early")
    nodes = (
        GraphNode(0, "exp", "a.py:1", "y = exp(x)", "f32[8{x}]", (), (0,), False, ()),
        GraphNode(1, "add", "a.py:2", "y += z", "f32[8]", (0,), (), True, (moved, moved)),
    )
    graph = ProgramGraph("step", "x=2", ("f32[8{x}]",), nodes, (1,), {"tasks": 4})
    assert ProgramGraph.from_json(graph.to_json()) == graph
    assert "2 times f32[8{x}]" in str(graph) and "begun early" in str(graph)
    assert "add in place" in graph.svg() and "<pre>" in graph.html()
    with pytest.raises(redist.PlanFormatError):
        ProgramGraph.from_json("{}")
