"""Write a program out as one function of Python: a line for every task, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redist.pgas.ghosts.tape import Ref, Task, refs_in
from redist.pgas.memory import as_tile
from redist.text.call_site import PACKAGE

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
