"""What only arrays on GPUs have to show: places, transfers, streams, counts, errors."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import redist
from redist import pgas
from redist.errors import ArgumentTypeError, MemoryLimitError, RequestError
from redist.pgas.global_array import Array
from redist.pgas.joins import ein_kernel as block_shapes
from redist.pgas.memory import BUFFERS, DEVICE
from redist.pgas.programs import prepare
from redist.pgas.random import generator
from redist.runtime.copies.gpu_arrays import is_device
from redist.runtime.cuda.arrays import to_host
from redist.runtime.ranks.world import world_of
from tests.programs.pgas.drawing import Draw, Values, xp

ODD, ENDS = np.array([1.0, -2.0, 0.0, 3.0]), np.array([-np.inf, np.inf, -np.inf, 2.0])
Check = Callable[["OnGpu"], str | None]


class OnGpu(Draw):
    """Random arrays on GPUs."""

    def array(self, values: Values, mesh: Any) -> Any:
        """The values under any layout, some with a reduction pending, on GPUs."""
        return super().array(values, mesh).to_device("cuda")


def hosted(got: Any) -> Any:
    """Results in memory, after a look at where they were."""
    if isinstance(got, (tuple, list)):
        return [hosted(one) for one in got]
    if not (isinstance(got, Array) and got.memory.on_device):
        raise TypeError(f"the result is a {type(got).__name__}, not on a GPU")
    if got.local is not None and not is_device(got.local):
        raise TypeError(f"the tile is a {type(got.local).__name__}")
    return got.to_device("cpu")


def near(got: Any, want: Any, what: str) -> str | None:
    """What differs between a global array on GPUs and the whole array that it should be."""
    have = to_host(hosted(got).gather())
    want = np.asarray(want)
    if (have.shape, have.dtype) != (want.shape, want.dtype):
        return f"{what}: {have.dtype}{have.shape}, not {want.dtype}{want.shape}"
    eps = 0.0 if want.dtype.kind in "biu" else float(np.finfo(want.dtype).eps)
    most = float(np.abs(want).max(initial=1.0))
    if np.allclose(have, want, rtol=0, atol=512 * eps * most):
        return None
    return f"{what}: {have.tolist()}, not {want.tolist()}"[:600]


def first(*said: str | None) -> str | None:
    """The first complaint."""
    return next((one for one in said if one), None)


def moves(draw: OnGpu) -> str | None:
    """Between layouts, to every rank, and to memory and back."""
    values = draw.values((13, 6), "f4")
    a = draw.array(values, draw.mesh())
    b = draw.array(values, a.mesh)
    moved = a.to(b.settled().type)
    whole = a.gather()
    if not is_device(whole):
        return "gather() gave no array of a GPU"
    pair = pgas.move_together({"a": a.settled(), "b": b.settled()}, {
        "a": b.settled().type, "b": a.settled().type,
    })  # fmt: skip
    back = a.to_device("cpu")
    if back.device != "cpu" or a.device != "cuda:0" or back.to_device("cpu") is not back:
        return f"devices are {back.device} and {a.device}"
    return first(
        near(moved, values, "moved"),
        near(a, values, "gathered"),
        near(pair["a"], values, "moved together"),
        near(back.to_device("cuda"), values, "there and back"),
    )


def indexes(draw: OnGpu) -> str | None:
    """Parts by slices, ints, masks and lists; and writing to them."""
    values = draw.values((9, 8), "f8")
    a = draw.array(values, draw.mesh())
    mask = values > 0.5
    keys: list[Any] = [
        (slice(1, 7, 2), slice(None)), (3,), (slice(None), 2), (..., None, slice(5, 1, -1)),
        ([1, 4, 2],), (slice(None), np.array([0, 3])), (mask,),
    ]  # fmt: skip
    for key in keys:
        said = near(a[key], values[key], f"a[{key}]")
        if said:
            return said
    said = near(a[a > 0.5], values[mask], "a[a > 0.5]")
    for key in keys:
        b, want = a.copy(), values.copy()
        b[key], want[key] = 7.0, 7.0
        said = said or near(b, want, f"a[{key}] = 7")
    rows = draw.values((8,), "f8")
    b, want = a.copy(), values.copy()
    b[2], want[2] = draw.array(rows, a.mesh), rows
    return said or near(b, want, "a[2] = row")


def made(draw: OnGpu) -> str | None:
    """New arrays: the same as in memory."""
    where: dict[str, Any] = {"device": "cuda", "comm": draw.comm}
    random = [generator(3).uniform((7, 9), **where), generator(3).uniform((7, 9))]
    normal = [
        generator(4).normal(40, dtype=np.float32, **where),
        generator(4).normal(40, dtype="f4"),
    ]
    whole = draw.values((5, 4), "f8")
    tile = pgas.asarray(whole, device="cuda", comm=draw.comm)
    own = pgas.from_local(tile.local, tile.type, comm=draw.comm)
    big = pgas.asarray(np.arange(300000).reshape(300, 1000), device="cuda")
    return first(
        near(pgas.zeros((4, 5), **where), np.zeros((4, 5)), "zeros"),
        near(pgas.full((4,), 3, dtype="i4", **where), np.full((4,), 3, "i4"), "full"),
        near(xp.asarray(ODD, **where) % -np.inf, ODD % -np.inf, "% -infinity"),
        near(xp.asarray(ODD, **where) % xp.asarray(ENDS, **where), ODD % ENDS, "% infinities"),
        near(pgas.signbit(pgas.full((4,), -0.0, **where)), np.full(4, True), "full of -0.0"),
        near(pgas.arange(11, **where), np.arange(11), "arange"),
        near(pgas.linspace(0, 1, 7, **where), np.linspace(0, 1, 7), "linspace"),
        near(pgas.eye(5, 4, k=1, **where), np.eye(5, 4, k=1), "eye"),
        near(pgas.from_function(lambda i, j: i + 2 * j, (4, 5), **where),
             np.fromfunction(lambda i, j: i + 2 * j, (4, 5)), "from_function"),
        near(random[0], random[1].gather(), "uniform"),
        near(normal[0], normal[1].gather(), "normal"),
        near(pgas.fft.fftfreq(8, **where), np.fft.fftfreq(8), "fftfreq"),
        near(own, whole, "from_local"),
        near(pgas.asarray(own, device="cuda"), whole, "asarray of a global array"),
        near(pgas.asarray(own.gather()), whole, "asarray of a whole array on a GPU"),
        near(pgas.zeros_like(own), np.zeros_like(whole), "zeros_like"),
        near(big, np.arange(300000).reshape(300, 1000), "asarray of a large one"),
        None if own.local is tile.local else "from_local made a copy",
        None if pgas.asarray(own, device="cpu").device == "cpu" else "asarray stayed on the GPU",
    )  # fmt: skip


def foreign(draw: OnGpu) -> str | None:
    """DLPack in both directions, without a copy, and how an array prints."""
    import cupy

    whole = cupy.asarray(np.arange(12.0).reshape(3, 4))
    a = pgas.from_dlpack(whole)
    given = cupy.from_dlpack(a)
    if given.data.ptr != whole.data.ptr or a.__dlpack_device__()[0] != 2:
        return "DLPack made a copy"
    text = repr(a)
    if "cuda:0" not in text or "6." not in text:
        return f"it prints as {text}"
    names = pgas.__array_namespace_info__().devices()
    return None if names[:2] == ("cpu", "cuda:0") else f"devices are {names}"


def reduces(draw: OnGpu) -> str | None:
    """Reductions of the whole array, numbers of it, and updates."""
    values = draw.values((6, 7), "f8")
    a = draw.array(values, draw.mesh())
    said = first(
        near(pgas.argmax(a), values.argmax(), "argmax"),
        near(pgas.argmin(a, keepdims=True), np.argmin(values, keepdims=True), "argmin"),
        near(pgas.sum(a), values.sum(), "sum"),
        near(pgas.sum(pgas.sum(a, axis=0)), values.sum(), "sum of a sum"),
        near(pgas.linalg.vector_norm(a, axis=1), np.linalg.norm(values, axis=1), "vector_norm"),
        near(pgas.linalg.vector_norm(a, ord=3), np.linalg.norm(values.ravel(), 3), "3-norm"),
        near(pgas.linalg.matrix_norm(a, ord=1), np.linalg.norm(values, 1), "matrix_norm"),
        near(np.float32(2) * a, np.float32(2) * values, "a number of NumPy's"),
    )
    b, want = a.copy(), values.copy()
    b += a
    b *= 2.0
    b -= pgas.mean(a)
    want = (want + values) * 2.0 - values.mean()
    number = float(pgas.max(a))
    return first(
        said,
        near(b, want, "updated"),
        None if number == values.max() else f"float() gave {number}",
    )


def products(draw: OnGpu) -> str | None:
    """Contractions of several kinds."""
    x, y = draw.values((4, 6, 5), "f4"), draw.values((4, 5, 3), "f4")
    mesh = draw.mesh()
    a, b = draw.array(x, mesh), draw.array(y, mesh)
    square = draw.values((6, 6), "f8")
    s = draw.array(square, mesh)
    u, v = (np.round(draw.values(shape, "f2")) for shape in ((4, 6, 5), (4, 5, 3)))  # exact
    p, q = draw.array(u, mesh), draw.array(v, mesh)
    halves, turned = p @ q, pgas.einsum("bji,bjk->bik", p, p)
    return first(
        near(a @ b, x @ y, "stack @ stack"),
        None if halves.dtype == np.float16 else f"stack @ stack of f16 is {halves.dtype}",
        near(pgas.astype(halves, np.float64), u.astype("f8") @ v, "stack @ stack of f16"),
        near(pgas.astype(turned, np.float64), u.swapaxes(1, 2).astype("f8") @ u, "turned stack of f16"),
        near(pgas.einsum("bij,bjk->k", a, b), np.einsum("bij,bjk->k", x, y), "einsum"),
        near(pgas.einsum("bij->jb", a), np.einsum("bij->jb", x), "einsum of one"),
        near(pgas.einsum("ii->i", s), np.einsum("ii->i", square), "diagonal"),
        near(pgas.tensordot(a, b, axes=((0, 2), (0, 1))),
             np.tensordot(x, y, axes=((0, 2), (0, 1))), "tensordot"),
        near(pgas.vecdot(a, a), np.vecdot(x, x), "vecdot"),
        near(pgas.linalg.outer(s[0], s[1]), np.outer(square[0], square[1]), "outer"),
        near(pgas.linalg.trace(s), np.trace(square), "trace"),
        near(pgas.linalg.matrix_power(s, 3), np.linalg.matrix_power(square, 3), "matrix_power"),
        near(pgas.linalg.matrix_power(s, 0), np.eye(6), "matrix_power 0"),
    )  # fmt: skip


def joins(draw: OnGpu) -> str | None:
    """Elements joined and aggregated in blocks, of one dtype and of several."""
    x, y, whole = draw.values((6, 5), "f4"), draw.values((4, 5), "f8"), draw.values((6, 5), "i4")
    mesh = draw.mesh()
    a, b, n = (draw.array(one, mesh) for one in (x, y, whole))
    far = x[:, None] - y[None]
    with mock.patch.object(block_shapes, "DEVICE_BLOCK_BYTES", 512):
        return first(
            near(pgas.ein("ik,jk->ij", a, b, join=lambda a, b: (a - b) ** 2), (far**2).sum(2), "far"),
            near(pgas.ein("ik,jk->ji", a, b, join="subtract", agg="max"), far.max(2).T, "max"),
            near(pgas.ein("ik,jk->", a, b, agg="min"), (x[:, None] * y[None]).min(), "min"),
            # exp of f32 has other last bits on a GPU, and the sum is one of f64
            near(pgas.astype(pgas.ein("ik,ik->i", n, a, join=lambda n, a: n // 2 + pgas.exp(a)), "f4"),
                 (whole // 2 + np.exp(x)).sum(1).astype("f4"), "mixed"),
            near(pgas.ein("ik->k", n, agg="prod", join=lambda n: n % 3), (whole % 3).prod(0), "prod"),
            near(pgas.ein("ik,k->ik", a, b[0], join="hypot"), np.hypot(x, y[0]), "hypot"),
            near(pgas.ein("ik,ij->jk", a, a), x.T @ x, "contracted"),
            near(pgas.ein("ik->i", a > 0, join="copy"), (x > 0).sum(1), "truth"),
        )  # fmt: skip


def decompositions(draw: OnGpu) -> str | None:
    """Linear algebra that is done in memory."""
    values = draw.values((6, 6), "f8") + 6 * np.eye(6)
    side = draw.values((6, 2), "f8")
    mesh = draw.mesh()
    a, b = draw.array(values, mesh), draw.array(side, mesh)
    q, r = pgas.linalg.qr(a)
    return first(
        near(pgas.linalg.solve(a, b), np.linalg.solve(values, side), "solve"),
        near(pgas.linalg.inv(a), np.linalg.inv(values), "inv"),
        near(pgas.linalg.det(a), np.linalg.det(values), "det"),
        near(q @ r, values, "qr"),
        near(pgas.linalg.svdvals(a), np.linalg.svd(values, compute_uv=False), "svdvals"),
        near(pgas.linalg.eigvalsh(a + a.T), np.linalg.eigvalsh(values + values.T), "eigvalsh"),
    )


def spectra(draw: OnGpu) -> str | None:
    """Fourier transforms along whole dims, by pencils, and of lines that stay cut."""
    z = draw.values((8, 6, 4), "c16")
    r = draw.values((8, 6), "f4")
    line = draw.values((64,), "c16")
    mesh = draw.mesh()
    a, b = draw.array(z, mesh), draw.array(r, mesh)
    c = xp.asarray(line, device="cuda", comm=draw.comm)
    return first(
        near(pgas.fft.fftn(a), np.fft.fftn(z), "fftn"),
        near(pgas.fft.ifft(a, axis=1), np.fft.ifft(z, axis=1), "ifft"),
        near(pgas.fft.rfftn(b), np.fft.rfftn(r), "rfftn"),
        near(pgas.fft.irfft(a, n=7, axis=0), np.fft.irfft(z, n=7, axis=0), "irfft"),
        near(pgas.fft.hfft(a, axis=0), np.fft.hfft(z, axis=0), "hfft"),
        near(pgas.fft.fft(c, norm="ortho"), np.fft.fft(line, norm="ortho"), "fft of a line"),
        near(pgas.fft.fftshift(a), np.fft.fftshift(z), "fftshift"),
    )


def mistakes(draw: OnGpu) -> str | None:
    """Errors that all ranks have alike, and that name the way out."""
    values = draw.values((6, 4), "f8")
    mesh = draw.mesh()
    a, b = draw.array(values, mesh), draw.array(values, mesh).to_device("cpu")
    calls: list[Callable[[], Any]] = [
        lambda: a + b, lambda: pgas.where(a > 0, a, b), lambda: a @ b.T, lambda: pgas.concat([a, b]),
        lambda: a.__iadd__(b), lambda: a.__setitem__(0, b[0]), lambda: b[b > 0] + b[a > 0],
        lambda: pgas.linalg.solve(a[:4], b[:4]), lambda: pgas.move_together(
            {"a": a, "b": b}, {"a": "{}, {}", "b": "{}, {}"}),
    ]  # fmt: skip
    for number, call in enumerate(calls):
        try:
            call()
        except RequestError as problem:
            if "to_device" not in str(problem):
                return f"call {number}: {problem}"
        else:
            return f"call {number}: no error"
    for device in ("gpu", "cuda:99", 3):
        try:
            a.to_device(device)
        except ValueError:
            continue
        return f"device {device!r} was taken"
    return None


def limits(draw: OnGpu) -> str | None:
    """Bytes of GPUs are counted apart from those in memory, and bounded by the same limit."""
    before = DEVICE.live_bytes, BUFFERS.live_bytes
    a: Any = pgas.zeros((256, 1024), device="cuda", comm=draw.comm)
    held = a.type.tile_bytes
    if DEVICE.live_bytes - before[0] != held or BUFFERS.live_bytes != before[1]:
        return f"{DEVICE.live_bytes - before[0]} on the GPU for a tile of {held}"
    view = a.T
    with redist.memory_limit(DEVICE.live_bytes + 2 * held):
        c = a + 1.0
        try:
            pgas.stack([a] * 4)
        except MemoryLimitError:
            pass
        else:
            return "no error beyond the limit"
        del c
    del a
    if view.local is not None and DEVICE.live_bytes - before[0] != held:
        return "a view does not hold its memory"
    del view
    return None if DEVICE.live_bytes == before[0] else "dead tiles count"


def large(draw: OnGpu) -> str | None:
    """Tiles that are not small, and operands that pass in blocks."""
    x, y = draw.values((1500, 700), "f8"), draw.values((700, 1100), "f8")
    mesh = draw.mesh()
    a, b = draw.array(x, mesh), draw.array(y, mesh)
    one = xp.asarray(x, type="{x}, {}", device="cuda", comm=draw.comm)
    other = xp.asarray(y, type="{}, {x}", device="cuda", comm=draw.comm)
    with redist.memory_limit(DEVICE.live_bytes + 3 * x.nbytes + 3 * y.nbytes):
        product = one @ other
    text = str(redist.explain(lambda: a + a.T.to(a.T.settled().type).T))
    return first(
        near(a @ b, x @ y, "a large product"),
        near(product, x @ y, "a product under a limit"),
        near(pgas.sin(a) + a, np.sin(x) + x, "a large sum"),
        near(a.to("{}, {}").T, x.T, "a large move"),
        near(pgas.cumulative_sum(a, axis=0), np.cumsum(x, 0), "large running sums"),
        None if text else "nothing was explained",
    )


def files(draw: OnGpu) -> str | None:
    """Tiles of GPUs are written to files: in place, moved to rows, pending, beside each other."""
    comm = draw.comm
    name = tempfile.mkdtemp(prefix="redist-") if comm.rank == 0 else ""
    folder = Path(comm.bcast(name))
    values = draw.values((90, 70), "f8")
    for i in range(4):
        a = draw.array(values, draw.mesh())
        pgas.write_npy(folder / f"{i}.npy", a, limit_bytes=2**18)
        if not np.array_equal(np.load(folder / f"{i}.npy"), values):
            return f"{a.type}: another file"
    pgas.write_csv(folder / "a.csv", {"x": a, "sum": a[:, 0]})
    found = np.loadtxt(folder / "a.csv", skiprows=1, delimiter=",")
    back = pgas.read_npy(folder / "0.npy", device="cuda", comm=comm)
    said = near(back, values, "what is read")
    comm.barrier()
    if comm.rank == 0:
        shutil.rmtree(folder)
    return said if np.array_equal(found[:, :70], values) else "another text"


def streams(draw: OnGpu) -> str | None:
    """Work on a stream of its own, begun before the tiles are ready."""
    import cupy

    values = draw.values((1024, 1024), "f4")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        a = xp.asarray(values, type="{x}, {}", device="cuda", comm=draw.comm)
        for _ in range(20):
            a = pgas.sqrt(a * a + 1.0) - 0.5
        b = a.to("{}, {x}")
        b = b.copy() if b is a else b  # one rank: nothing to move
        a *= 0.0  # after the move on the same stream: it may not see this
        total = pgas.sum(b, axis=0)
        want = values
        for _ in range(20):
            want = np.sqrt(want * want + np.float32(1.0)) - np.float32(0.5)
        said = first(
            near(b, want, "moved on a stream"),
            near(total, want.sum(0), "summed on a stream"),
            near(a, 0 * want, "cleared on a stream"),
        )
        stream.synchronize()
    return said


def kernels(draw: OnGpu) -> str | None:
    """Functions of the user's own on tiles of GPUs, with halos and without, eagerly and in programs."""
    n = 5 * draw.comm.size + 1
    values = draw.values((n, 10), "f8")
    u = pgas.asarray(values, type="{x}, {}").to_device("cuda")
    padded = np.pad(values, ((1, 1), (0, 0)))
    wrapped = np.pad(values, ((1, 1), (1, 1)), mode="wrap")

    def smooth(x: Any) -> Any:
        return pgas.map_tiles(lambda t: (t[:-2] + t[1:-1] + t[2:]) / 3, x, halo={0: 1})

    def around(x: Any) -> Any:
        both = {0: 1, 1: 1}
        return pgas.map_tiles(lambda t: t[:-2, :-2] + 2 * t[2:, 2:], x, halo=both, edges="wrap")

    def written(x: Any) -> Any:
        def kernel(t: Any) -> Any:
            t *= 2.0  # a copy: the array stays as it is
            return t > 0

        return pgas.map_tiles(kernel, x, dtype="f4")

    def cornered(x: Any) -> Any:
        """Of three dims: what is above and what is below, along all of them."""
        cube = pgas.reshape(x, (n, 2, 5)).to("{x}, {}, {}")
        made = pgas.map_tiles(
            lambda t: t[:-2, :-2, :-2] - 2 * t[2:, 2:, 2:], cube, halo={0: 1, 1: 1, 2: 1}, edges=3.0
        )
        return pgas.reshape(made, (n, 10))

    cubes = np.pad(values.reshape(n, 2, 5), 1, constant_values=3.0)
    cubes = (cubes[:-2, :-2, :-2] - 2 * cubes[2:, 2:, 2:]).reshape(n, 10)
    wants = (
        (cornered, cubes),
        (smooth, (padded[:-2] + padded[1:-1] + padded[2:]) / 3),
        (around, wrapped[:-2, :-2] + 2 * wrapped[2:, 2:]),
        (written, (values > 0).astype("f4")),
    )
    for function, want in wants:
        for run in (function, pgas.program(function), pgas.program(layouts="as written")(function)):
            for _ in range(2):
                found = near(run(u), want, function.__name__) or near(u, values, "the argument")
                if found:
                    return found
    try:
        pgas.map_tiles(lambda t: np.zeros(t.shape), u)
    except ArgumentTypeError as problem:
        return None if "array of CuPy" in str(problem) else str(problem)
    return "an array of NumPy was taken for one on a GPU"


def early(draw: OnGpu) -> str | None:
    """Moves begin early in programs, where each rank has a GPU of its own: they pass kernels of others."""
    n = draw.comm.size
    values = draw.values((8 * n, 4 * n), "f8")
    u = pgas.asarray(values, type="{x}, {}").to_device("cuda")
    v = pgas.asarray(values + 1.0, type="{x}, {}").to_device("cuda")

    def function(x: Any, y: Any) -> Any:
        moved = (x + 1.0).to("{}, {x}")
        for _ in range(3):
            y = xp.tanh(y * 1.5)
        whole = (moved * 2.0).to("{}, {}")
        x += 0.5  # while it may still be read
        return moved * 2.0, y, whole + xp.sum(y)

    step = pgas.program(layouts="as written", cache=False)(function)
    near_gpus = mock.patch.multiple(prepare, GPU_EARLY_BYTES=0, have_own_gpus=lambda world: True)
    with near_gpus:
        for call in range(3):
            want = function(u.copy(), v)
            before = u.copy()
            found = first(
                *(
                    near(one, to_host(hosted(other).gather()), f"early, call {call}")
                    for one, other in zip(step(before, v), want, strict=True)
                )
            )
            if found:
                return found
        fates = [move.fate for move in step.graph(u.copy(), v).moves]
    if n > 1 and world_of(draw.comm).one_node and "begun early" not in fates:
        return f"nothing began early: {fates}"
    return None


REAL = {"foreign", "streams"}
"""Checks that need a real GPU."""
OWN: dict[str, Check] = {
    "moves": moves, "made": made, "foreign": foreign, "reduces": reduces, "indexes": indexes,
    "products": products, "joins": joins, "spectra": spectra, "decompositions": decompositions,
    "mistakes": mistakes, "limits": limits, "large": large, "files": files, "streams": streams,
    "kernels": kernels, "early": early,
}  # fmt: skip
