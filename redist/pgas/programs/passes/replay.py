"""Write a program out as one function of Python: a line for every task, nothing else."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redist.pgas.ghosts.tape import Ref, Task, TaskKind, refs_in
from redist.pgas.memory import as_tile
from redist.runtime.cuda.recording import KernelRecording, record_kernels
from redist.text.call_site import PACKAGE

# Runs of small kernels on a GPU are recorded and launched together, from the second call on.
#
# A kernel of a small tile takes less time than Python takes to launch it. Where tasks that follow each other
# only launch kernels, they are given as one to the GPU.


MOST_ELEMS = 2**18
"""Of a tile: kernels of larger ones take longer than their launch."""
MOST_TOGETHER = 2**21
"""Elements that are alive at a time in a run: its graph keeps memory for them."""
MORE_KERNELS = 3
"""A run has this many kernels more than tiles that go in and out: those are copied."""
REDUCTIONS = (np.sum, np.max, np.min)


@dataclass(slots=True, eq=False)
class RecordedRun:
    """Tasks that only launch kernels: run one by one at first, as one graph after that."""

    tasks: tuple[Task, ...]
    outputs: tuple[int, ...]
    plain: Replay
    _recording: KernelRecording | None = None
    _calls: int = field(default=0)

    def __call__(self, *tiles: Any) -> tuple[Any, ...]:
        """**Local.** The values of ``outputs``."""
        if self._recording is not None:
            return self._recording(*tiles)
        self._calls += 1
        if self._calls == 2:
            self._recording = record_kernels(self.plain, tiles)
        return self.plain(*tiles)


def record_runs(
    tasks: Sequence[Task],
    kept: Sequence[int],
    roots: Mapping[int, int],
    shapes: Mapping[int, tuple[int, ...]],
    next_value: int,
) -> list[Task]:
    """**Local.** The tasks with runs that are worth it in the hands of the GPU."""
    out: list[Task] = []
    run: list[Task] = []
    for place, task in enumerate(tasks):
        if _only_launches(task, roots, shapes):
            run.append(task)
            continue
        out += _as_one(run, tasks[place:], kept, roots, shapes, next_value + len(out))
        out.append(task)
        run = []
    return out + _as_one(run, (), kept, roots, shapes, next_value + len(out))


def _only_launches(
    task: Task, roots: Mapping[int, int], shapes: Mapping[int, tuple[int, ...]]
) -> bool:
    """Whether a task is a view, or one kernel of small tiles and numbers."""
    if task.kind is not TaskKind.PURE or task.out is None:
        return False
    if any(refs_in(one) for one in task.options.values()):
        return False
    if roots.get(task.out, task.out) != task.out:
        return True
    if task.function not in REDUCTIONS and not _is_elementwise(task.function):
        return False
    sizes = [math.prod(shapes.get(n, (MOST_ELEMS + 1,))) for n in (task.out, *refs_in(task.args))]
    return max(sizes) <= MOST_ELEMS and all(
        isinstance(one, Ref) or type(one) in (int, float) for one in task.args
    )


def _is_elementwise(function: Any) -> bool:
    """Whether a function has a kernel of its own: products go through a library that is not recorded."""
    return isinstance(function, np.ufunc) and function.signature is None and function.nout == 1


def _as_one(
    run: Sequence[Task],
    later: Sequence[Task],
    kept: Sequence[int],
    roots: Mapping[int, int],
    shapes: Mapping[int, tuple[int, ...]],
    number: int,
) -> list[Task]:
    """One task for a run, with one for each value that is needed after it; or the run as it is."""
    kernels = [task for task in run if roots.get(task.out or 0, task.out) == task.out]
    made = {task.out for task in kernels}
    views = [task for task in run if task.out not in made]
    inner = made | {task.out for task in views}
    inputs = dict.fromkeys(n for task in run for n in refs_in(task.args) if n not in inner)
    needed = {*kept, *(n for task in later for n in refs_in((task.args, task.options)))}
    left = _needed_views(views, needed)  # views are made anew, of the values that come out
    needed |= {n for task in left for n in refs_in(task.args)}
    outputs = tuple(task.out for task in kernels if task.out in needed and task.out is not None)
    if len(kernels) < len(inputs) + len(outputs) + MORE_KERNELS:
        return list(run)
    if _most_alive(kernels, (*inputs, *outputs), roots, shapes) > MOST_TOGETHER:
        return list(run)
    plain = write_replay(run, tuple(inputs), outputs)
    together = RecordedRun(tuple(run), outputs, plain)
    args = tuple(map(Ref, inputs))
    reads = tuple(dict.fromkeys(roots[n] for n in inputs if n in roots))
    node = run[0].node
    whole = Task(TaskKind.PURE, together, args, {}, number, reads, (), node)
    parts = [
        Task(TaskKind.PURE, operator.getitem, (Ref(number), at), {}, value, (), (), node)
        for at, value in enumerate(outputs)
    ]
    return [whole, *parts, *left]


def _most_alive(
    kernels: Sequence[Task],
    always: Sequence[int],
    roots: Mapping[int, int],
    shapes: Mapping[int, tuple[int, ...]],
) -> int:
    """The most elements that a run has at a time; what goes in and out is there all the time."""
    last = {roots.get(n, n): at for at, task in enumerate(kernels) for n in refs_in(task.args)}
    alive = most = sum(math.prod(shapes.get(n, ())) for n in always)
    inner = [task.out for task in kernels if task.out is not None and task.out not in always]
    ends: dict[int, list[int]] = {}
    for n in inner:
        ends.setdefault(last.get(n, -1), []).append(n)
    for at, task in enumerate(kernels):
        if task.out is not None and task.out not in always:
            alive += math.prod(shapes.get(task.out, ()))
        most = max(most, alive)
        alive -= sum(math.prod(shapes.get(n, ())) for n in ends.get(at, ()))
    return most


def _needed_views(views: Sequence[Task], needed: set[int]) -> list[Task]:
    """The views that something needs after a run, and those that they are views of."""
    wanted, left = set(needed), []
    for task in reversed(views):
        if task.out in wanted:
            left.append(task)
            wanted.update(refs_in(task.args))
    return left[::-1]


Replay = Callable[..., tuple[Any, ...]]


def write_replay(
    tasks: Sequence[Task], inputs: Sequence[int | None], kept: Sequence[int]
) -> Replay:
    """**Local.** A function of the tiles of ``inputs`` that gives the values in ``kept``."""
    constants: dict[int, str] = {}
    space: dict[str, Any] = {"asarray": as_tile}

    def name(thing: Any) -> str:
        """How a constant is called."""
        if thing is None or thing is True or thing is False or type(thing) is int:
            return repr(thing)
        if id(thing) not in constants:
            constants[id(thing)] = f"c{len(constants)}"
            space[constants[id(thing)]] = thing
        return constants[id(thing)]

    def text(thing: Any) -> str:
        """An operand as it stands in the source."""
        if isinstance(thing, Ref):
            return f"v{thing.number}"
        if type(thing) is tuple and refs_in(thing):
            return "(" + "".join(f"{text(one)}, " for one in thing) + ")"
        if type(thing) is list and refs_in(thing):
            return "[" + ", ".join(map(text, thing)) + "]"
        return name(thing)

    last = _last_uses(tasks, kept)
    names = [f"v{n}" if n is not None else f"_{i}" for i, n in enumerate(inputs)]
    lines = [f"def replay({', '.join(names)}):"]
    for at, task in enumerate(tasks):
        call = f"{name(task.function)}({_operands(task, text)})"
        call = f"asarray({call})" if task.is_scalar else call
        lines.append(f"    {call}" if task.out is None else f"    v{task.out} = {call}")
        gone = [f"v{number}" for number in last.get(at, ())]
        if gone:
            lines.append(f"    del {', '.join(gone)}")
    lines.append(f"    return ({''.join(f'v{number}, ' for number in kept)})")
    exec(compile("\n".join(lines), f"{PACKAGE}<program>", "exec"), space)
    replay: Replay = space["replay"]
    return replay


def _operands(task: Task, text: Callable[[Any], str]) -> str:
    named = [f"{key}={text(one)}" for key, one in task.options.items()]
    return ", ".join([*map(text, task.args), *named])


def _last_uses(tasks: Sequence[Task], kept: Sequence[int]) -> dict[int, list[int]]:
    """By the place of a task: the values that nothing needs after it."""
    seen = set(kept)
    found: dict[int, list[int]] = {}
    for at in reversed(range(len(tasks))):
        task = tasks[at]
        used = refs_in((task.args, task.options))
        used += [task.out] if task.out is not None else []
        gone = [number for number in dict.fromkeys(used) if number not in seen]
        if gone:
            found[at] = gone
            seen.update(gone)
    return found
