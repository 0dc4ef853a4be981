"""Operations too large for a limit are cut into blocks: right, within the limit, the least limit exact."""

from __future__ import annotations

import contextlib
import gc
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import redist
from redist import NoPlanError, pgas
from redist.pgas.memory import BUFFERS, GRAIN
from redist.pgas.programs.limited.agreed_fit import AgreedFit
from redist.pgas.programs.limited.limited_program import LimitedProgram
from redist.text import progress
from redist.text.units import format_bytes, format_time
from tests.programs.pgas.limited import high_water, planned_within, small_blocks
from tests.programs.together import all_well, main
from tests.tiers import THOROUGH, sample

CHECKS = (
    "exact",
    "sums",
    "pairs",
    "no_folder",
    "put_away",
    "refused",
    "dead_views",
    "folders",
    "eager_words",
    "least_planned",
    "figures",
    "order",
    "files",
    "small",
    "rightly_named",
    "still_planning",
)
N, M = 360, 96
SLACK = 2**17

Function = Callable[..., Any]


def kernel(a: Any, v: Any) -> Any:
    """A matrix, its sum, and a product."""
    k = pgas.exp(-a)
    return (k / pgas.sum(k)) @ v


def chain(a: Any, v: Any) -> Any:
    """Element by element, with rows that stretch; the largest of every row."""
    b = pgas.where(a > 0.5, a * 2 - v, pgas.sqrt(a)) + a
    c = pgas.clip(b, 0.1, 2.0) - pgas.mean(b, axis=1, keepdims=True)
    return pgas.max(c * c + b, axis=1)


def ordered(a: Any, v: Any) -> Any:
    """Sorted along rows, running sums, positions."""
    b = pgas.sort(a + v, axis=1)
    return pgas.argmax(pgas.cumulative_sum(b, axis=1) * -1.0, axis=1)


def created(a: Any, v: Any) -> Any:
    """Arrays made inside."""
    n, m = a.shape
    b = pgas.from_function(lambda i, j: 1.0 / (1 + i + j), (n, m), type="{x}, {}")
    return pgas.max(b * a + pgas.full((n, m), 3.0, type="{x}, {}"), axis=1)


def drawn(a: Any, v: Any) -> Any:
    """Random numbers: the first call draws what the function itself draws first."""
    return pgas.max(pgas.random.generator(5).uniform(a.shape, type="{x}, {}") * a, axis=1)


def turned(a: Any, v: Any) -> Any:
    """Through a transposed view, down columns."""
    b = a * 2 + 1
    return pgas.max(b.T * 0.5, axis=1), pgas.min(b, axis=0)


def gram(a: Any, v: Any) -> Any:
    """Products along the dim that is cut and along the other."""
    b = a - 0.5
    return b.T @ b, pgas.einsum("ij,j->i", b, v), pgas.sum(b, axis=0), pgas.vecdot(b, b + 1)


def wide(a: Any, v: Any) -> Any:
    """A large result of two large operands."""
    b = a + 1
    return pgas.sum(b @ b.T, axis=1)


EXACT = (chain, ordered, created, drawn, turned)[:: 1 if THOROUGH else 4]
SUMS = (kernel, wide, gram)[: sample(2, of=3)]


def arguments(comm: MPI.Comm) -> tuple[Any, Any]:
    """A matrix cut by rows, and a vector that all have."""
    draw = pgas.random.generator(3)
    return draw.uniform((N * comm.size - 1, M), type="{x}, {}"), draw.uniform((M,), type="{}")


def tile_bytes(a: Any) -> int:
    """What a rank has of the matrix at most."""
    return int(a.type.tile_bytes)


def differ(got: Any, want: Any, exact: bool) -> str | None:
    """How results differ."""
    several = [(got, want)] if not isinstance(got, tuple) else [*zip(got, want, strict=True)]
    for one, other in several:
        a, b = one.gather(), other.gather()
        same = np.array_equal(a, b) if exact else np.allclose(a, b, rtol=1e-12)
        if not same:
            return f"largest difference {np.abs(a - b).max()}"
    return None


def run_one(function: Function, comm: MPI.Comm, folder: str, exact: bool) -> str | None:
    """In less memory than its operations need: in blocks."""
    a, v = arguments(comm)
    want = function(a, v)
    limit = tile_bytes(a) * (6 * comm.size if function is wide else 3) // 2
    step: Any = pgas.program(limit=limit, spill=folder, layouts="as written")(function)
    for call in range(1 if function is drawn else 2):
        before = BUFFERS.live_bytes
        with high_water() as most:
            got = step(a, v)
        found = differ(got, want, exact)
        if found:
            return f"{function.__name__}, call {call}: {found}"
        if call and most[0] > limit + limit // 100 + SLACK:
            return f"{function.__name__}: {most[0]} bytes held, limit {limit}, {before} before"
        del got
    for one in planned_within(step):
        assert one.fitted is not None
        if one.fitted.fitter.cut is None:
            return f"{function.__name__} was not cut within {limit}"
        if one.fitted.certificate.verdict != "proved" or one.peak_bytes[0] > one.fitted.bound_bytes:
            return f"{function.__name__}: {one.fitted.certificate}, {one.peak_bytes[0]} counted"
    return None if planned_within(step) else f"{function.__name__} was not planned"


def exact(comm: MPI.Comm, folder: str) -> str | None:
    """Element by element results have the bits of the function itself."""
    return next((bad for one in EXACT if (bad := run_one(one, comm, folder, True))), None)


def sums(comm: MPI.Comm, folder: str) -> str | None:
    """Sums and products are joined block by block."""
    return next((bad for one in SUMS if (bad := run_one(one, comm, folder, False))), None)


def pairs(comm: MPI.Comm, folder: str) -> str | None:
    """The least limit that an error names does, and one byte less does not."""
    for function in (kernel, gram, chain)[: sample(1, of=3)]:
        a, v = arguments(comm)
        least = 0
        for limit in (1, None, -1):
            tried = limit if limit == 1 else least + (limit or 0)
            step: Any = pgas.program(limit=tried, spill=folder, layouts="as written")(function)
            try:
                step(a, v)
                if limit is not None:
                    return f"{function.__name__} runs within {tried}"
            except NoPlanError as error:
                if limit is None or (limit == -1 and error.least_bytes != least):
                    return f"{function.__name__}: {least}, then {error.least_bytes} at {tried}"
                least = error.least_bytes
    return None


def no_folder(comm: MPI.Comm, folder: str) -> str | None:
    """Without a folder nothing is cut: the limit that is named does, and is what the error says is needed."""
    a, v = arguments(comm)
    want = kernel(a, v)
    for layouts in ("planned", "as written")[: sample(1, of=2)]:

        def run(limit: int, layouts: str = layouts) -> Any:
            return pgas.program(limit=limit, layouts=layouts)(kernel)(a, v)

        try:
            run(2 * tile_bytes(a))  # between one tile and all that is needed at once
            return f"{layouts}: it runs within two tiles"
        except NoPlanError as error:
            least, said = error.least_bytes, str(error)
        others = BUFFERS.live_bytes - held(a, v)
        if f"needs {format_bytes(least - others // GRAIN * GRAIN)} at once" not in said:
            return f"{layouts}: {said}"
        bad = differ(run(least), want, False)
        if bad:
            return f"{layouts}: {bad}"
        try:
            run(least - 1)
            return f"{layouts}: it runs within {least - 1}"
        except NoPlanError as error:
            if error.least_bytes != least:
                return f"{layouts}: {least}, then {error.least_bytes}"
    return None


def held(*arrays: Any) -> int:
    """What memory counts of arrays."""
    return sum(BUFFERS.counted_for(one.tile) for one in arrays)


def put_away(comm: MPI.Comm, folder: str) -> str | None:
    """An argument that lies in a file is read in blocks, and stays there."""
    a, v = arguments(comm)
    want = kernel(a, v)
    with redist.memory_limit(tile_bytes(a) // 2 + 2**16, spill=folder):
        step: Any = pgas.program(kernel)
        for _ in range(2):
            got = step(a, v)
        one = planned_within(step)[0]
        assert isinstance(one, LimitedProgram) and one.fitted is not None
        if one.fitted.fitter.cut is None or not one.fitted.fitter.argument_blocks:
            return "the argument was not read in blocks"
        bad = differ(got, want, False)
    return bad


def refused(comm: MPI.Comm, folder: str) -> str | None:
    """What must be there as a whole is named: an inverse cannot be cut."""
    a = arguments(comm)[0]
    b = a[:M, :]

    def invert(b: Any) -> Any:
        return pgas.linalg.inv(b @ b.T + 1.0)

    try:
        pgas.program(limit=2**10, spill=folder)(invert)(b)
    except NoPlanError as error:
        words = (
            "cannot run invert within 1 KiB a rank: ",
            "(cutting.py:",
            "at once: ",
            " f64[",
            "held by",
        )
        missing = [word for word in words if word not in str(error)]
        return f"{missing} not in {error}" if missing else None
    return "it was not refused"


def dead_views(comm: MPI.Comm, folder: str) -> str | None:
    """What once had a view, or was asked for, may leave as soon as nobody holds that any more."""
    draw = pgas.random.generator(7)
    weights = [draw.normal((256 * comm.size, 256), type="{x}, {}") for _ in range(3)]

    def total(several: Any) -> Any:
        return sum(pgas.sum(one * 2) for one in several)

    def least() -> int:
        try:
            pgas.program(limit=1, spill=folder)(total)(weights)
        except NoPlanError as error:
            return error.least_bytes
        return 0

    fresh = least()
    turned = [one.T for one in weights]
    held = least()
    del turned
    asked = [one.local for one in weights]
    del asked
    if not fresh or held <= fresh:
        return f"{held} with live views, {fresh} without"
    kept: Any = weights[1].local
    try:
        pgas.program(limit=1, spill=folder)(lambda several: pgas.sum(several[1] * 2))(weights)
    except NoPlanError as error:
        named = f"argument 1, {weights[1].type} (512 KiB), cannot be put away: a view of it or its"
        if named not in str(error) or "argument 0, " in str(error) or kept is None:
            return str(error)
    kept = [one.local for one in weights]
    try:
        pgas.program(limit=1, spill=folder)(total)(weights)
    except NoPlanError as error:
        if str(error).count("cannot be put away") != 1:  # one reason is said once
            return str(error)
    del kept
    return None if least() == fresh else f"{least()} after views have died, {fresh} before"


def folders(comm: MPI.Comm, folder: str) -> str | None:
    """A folder that is not there or takes no files, limits of nothing, the host for arrays in memory."""
    a, v = arguments(comm)
    odd: Any = True
    for options, kind, words in (
        ({"limit": "1MiB", "spill": f"{folder}/nowhere"}, redist.SpillError, "no such folder"),
        ({"limit": "1MiB", "spill": __file__}, redist.SpillError, "is a file, not a folder"),
        ({"limit": "1MiB", "spill": "/proc"}, redist.SpillError, "no file can be made there"),
        ({"limit": "1MiB", "spill": odd}, redist.ArgumentError, "cannot spill to True: give a"),
        ({"limit": "1MiB", "spill": ""}, redist.ArgumentError, "cannot spill to '': give a"),
        ({"limit": "40M"}, redist.RequestError, "write 40MiB (powers of 2) or 40MB"),
        ({"limit": 0}, redist.RequestError, "cannot use limit=0"),
    ):
        try:
            pgas.program(**options)(kernel)(a, v)
            return f"{options} was taken"
        except kind as error:
            if words not in str(error):
                return f"{options}: {error}"
    try:
        pgas.program(limit="1MiB", spill="host")(kernel)(a, v)
        return "the host was taken"
    except redist.RequestError as error:
        return None if "give spill= a folder" in str(error) else str(error)


def eager_words(comm: MPI.Comm, folder: str) -> str | None:
    """Errors of eager arrays say what helps: blocks for one that is too large alone, a folder for several."""
    a = arguments(comm)[0]
    n_bytes = tile_bytes(a)
    gc.collect()
    for limit, words in (
        (n_bytes // 2, "this array alone exceeds the limit"),
        (
            BUFFERS.live_bytes + n_bytes // 2,
            "free arrays, give spill= a folder, call it in a @pgas",
        ),
    ):
        try:
            with redist.memory_limit(limit):
                a + 1
            return f"{limit} bytes were enough"
        except redist.MemoryLimitError as error:
            if words not in str(error):
                return str(error)
    return None


def least_planned(comm: MPI.Comm, folder: str) -> str | None:
    """A plan says the least limit, and draws itself into files."""
    a, v = arguments(comm)
    step: Any = pgas.program(limit=tile_bytes(a) * 3 // 2, spill=folder, layouts="as written")
    plan = step(kernel).plan(a, v)
    try:
        pgas.program(limit=1, spill=folder, layouts="as written")(kernel)(a, v)
    except NoPlanError as error:
        if error.least_bytes != plan.least_bytes:
            return f"{plan.least_bytes} planned, {error.least_bytes} named"
    file = Path(folder) / f"{comm.rank}.svg"
    same = file.read_text() == plan.svg(file) if plan.svg(file) else False
    file.unlink()
    if not same or "is kept in the file" not in str(plan):
        return f"{plan}"
    step(kernel)(
        a, v
    )  # from now on the matrix lies in a file, so that less will do without a folder
    least = pgas.program(limit="1GiB", layouts="as written")(kernel).plan(a, v).least_bytes
    plan = pgas.program(limit=least)(kernel).plan(a, v)
    proved = plan.certificate is not None and plan.certificate.verdict == "proved"
    return None if proved and "cannot plan" not in plan.headline() else f"{plan}"


def figures(comm: MPI.Comm, folder: str) -> str | None:
    """A plan has the peak, time and traffic of what will run, everywhere the same; planning is told."""
    a, v = arguments(comm)
    limit = tile_bytes(a) * 3 / 2
    step: Any = pgas.program(limit=limit, spill=folder, progress=True)(kernel)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        plan = step.plan(a, v)
    if ("kernel: planning within" in said.getvalue()) != (comm.rank == 0):
        return f"while it plans, {said.getvalue()!r} is said"
    shown = plan.certificate
    if (
        plan.peak_bytes != shown.bound_bytes[0]
        or not plan.peak_bytes <= limit < plan.unlimited_bytes
    ):
        return f"{plan.peak_bytes} at most, {plan.unlimited_bytes} without {limit}, {shown}"
    if plan.loaded_bytes < a.tile.nbytes:
        return f"{plan.loaded_bytes} loaded, {plan.stored_bytes} stored"
    time, text = f"modelled {format_time(plan.time_ps)}", str(plan)
    need = f"memory     {format_bytes(plan.unlimited_bytes)} without a limit; within "
    if time not in text or time not in plan.svg() or need not in text or need not in plan.svg():
        return f"{time}, {need}: {text}"
    if any(word in text for word in ("truediv", "neg (", "rmul")) or "negative (" not in text:
        return text
    same = type(plan).from_json(plan.to_json()) == plan
    return None if same else "another plan out of JSON"


def waiting(a: Any, v: Any) -> Any:
    """Results that wait for the last operation."""
    several = [a * float(k) for k in range(1, 7)]
    return sum((pgas.sum(one * several[-1 - k]) for k, one in enumerate(several)), 0.0)


def order(comm: MPI.Comm, folder: str) -> str | None:
    """Without a folder, where each operation fits and their order does not, the error says so."""
    a, v = arguments(comm)
    gc.collect()
    limit = BUFFERS.live_bytes + tile_bytes(a) * 4
    try:
        pgas.program(limit=limit, layouts="as written")(waiting)(a, v)
    except NoPlanError as error:
        said = f"each operation fits, but the order found needs {format_bytes(error.least_bytes)}"
        return None if said in str(error) else str(error)
    return f"{limit} bytes are enough"


def files(comm: MPI.Comm, folder: str) -> str | None:
    """A file that exceeds a limit is read outside: both errors name it and say so, and it is true."""
    a, v = arguments(comm)
    file = Path(folder) / "a.npy"
    named = f"cannot read {str(file)!r}, f64[", f" of {format_bytes(a.nbytes)}, within the limit"
    pgas.write_npy(file, a)
    limit = tile_bytes(a) * 3 // 4
    gc.collect()
    try:
        with redist.memory_limit(limit, spill=folder):
            pgas.read_npy(file)
        return f"{limit} bytes are enough"
    except redist.MemoryLimitError as error:
        advice = "read it outside the limit and give it to a @pgas.program"
        if not all(words in str(error) for words in (*named, format_bytes(limit), advice)):
            return str(error)
    try:
        pgas.program(limit=limit, spill=folder)(lambda v: kernel(pgas.read_npy(file), v))(v)
        return "a file was read in a program"
    except redist.CaptureError as error:
        if "read it before the call" not in str(error) or "pgas.where" in str(error):
            return str(error)
    want = kernel(a, v)
    del a
    got = pgas.program(limit=limit, spill=folder)(kernel)(pgas.read_npy(file, type="{x}, {}"), v)
    return differ(got, want, False)


def small(comm: MPI.Comm, folder: str) -> str | None:
    """Small arrays count while they are there; less than 64 KiB of them do not."""
    a, v = arguments(comm)
    step: Any = pgas.program(limit="64MiB", spill=folder)(kernel)
    gc.collect()
    before, many = step.plan(a, v).least_bytes, 400
    kept = [pgas.ones((1024 * comm.size,), type="{x}") for _ in range(many)]
    more = step.plan(a, v).least_bytes - before
    if abs(more - many * 8192) > 2**16:
        return f"{many} arrays of 8 KiB count as {format_bytes(more)}"
    least: Any = pgas.program(limit=before, spill=folder)(kernel)
    try:
        least(a, v)
        return "a limit was taken that small arrays exceed"
    except NoPlanError as error:
        if f"{format_bytes(more)} are held by arrays outside" not in str(error):
            return str(error)
    del kept
    results = [least(a, v) for _ in range(3)]
    after = step.plan(a, v).least_bytes
    return None if after == before else f"{before}, then {after} with {len(results)} results"


def layers(x: Any, several: list[Any]) -> Any:
    """Products of which sums are pending, each settled for the next."""
    for w in several:
        x = pgas.tanh(x @ w)
    return x


def rightly_named(comm: MPI.Comm, folder: str) -> str | None:
    """Errors give operands their own types, nothing that is 0, and a limit that does if it is typed."""
    draw = pgas.random.generator(3)
    x = draw.normal((256, 468), type="{x}, {}")
    several = [draw.normal((468, 468), type="{x}, {}") for _ in range(3)]
    gc.collect()
    step: Any = pgas.program(limit="1KiB", spill=folder)(layers)
    try:
        step(x, several)
        return "1 KiB is enough"
    except NoPlanError as error:
        words, least = str(error), error.least_bytes
    cut = str(x.type).replace("256{x}, 468", "256, 468{x}")
    if words.count("sum{x}") > 1 or f"array {cut}, " not in words or " 0 B " in words:
        return words
    short = words.rpartition(f"give limit={least} (")[2].partition(")")[0]
    typed: Any = pgas.program(limit=short, spill=folder)(layers)
    plan = typed.plan(x, several)
    return None if f"limit={least} ({short})" in str(plan) else f"{words}, {plan}"


def still_planning(comm: MPI.Comm, folder: str) -> str | None:
    """Rank 0 says that planning goes on while a plan is looked for or fitted, with progress or without."""
    a, v = arguments(comm)
    asked_s, unasked_s = progress.ASKED_S, progress.UNASKED_S
    choose, slow_s, wrong = AgreedFit.choose_plans, 0.2, []

    def slowly(self: AgreedFit, arrays: Any) -> Any:
        time.sleep(slow_s)
        return choose(self, arrays)

    progress.ASKED_S, progress.UNASKED_S = (slow_s / 2,), slow_s / 2  # type: ignore[assignment]
    AgreedFit.choose_plans = slowly  # type: ignore[method-assign]
    try:
        for asked in (True, False):
            for way in ("plan", "__call__"):
                step: Any = pgas.program(limit="64MiB", spill=folder, progress=asked)(kernel)
                said = io.StringIO()
                with contextlib.redirect_stderr(io.StringIO()):
                    if way == "plan":
                        step.plan(a, v)  # layouts are decided: what is left is to look how it fits
                with contextlib.redirect_stderr(said):
                    getattr(step, way)(a, v)
                told = "the planner of kernel within 64 MiB a rank" in said.getvalue()
                if told != (comm.rank == 0):
                    wrong.append(f"{way}, progress={asked}: {said.getvalue()!r}")
    finally:
        progress.ASKED_S, progress.UNASKED_S = asked_s, unasked_s
        AgreedFit.choose_plans = choose  # type: ignore[method-assign]
    return "; ".join(wrong) or None


def program() -> int:
    """0 if all is well."""
    comm, bad = MPI.COMM_WORLD, 0
    with tempfile.TemporaryDirectory() as own, small_blocks(2**14):
        folder = comm.bcast(own)
        for check in (
            exact,
            sums,
            pairs,
            no_folder,
            put_away,
            refused,
            dead_views,
            folders,
            eager_words,
            least_planned,
            figures,
            order,
            files,
            small,
            rightly_named,
            still_planning,
        ):
            bad += not all_well(comm, check.__name__, check(comm, folder), "")
        comm.barrier()
    return bad


if __name__ == "__main__":
    main(program)
