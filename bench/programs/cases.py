"""Functions that are called again and again, eagerly and as programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from examples import fft3d, hand_over, heat, kmeans, least_squares, power_iteration
from redist import Mesh, pgas


@dataclass(frozen=True, slots=True)
class ProgramCase:
    """A function, its arguments, and the ratio that it should not exceed as a program; None: none."""

    name: str
    what: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    aim: float | None


def chain(x: Any, y: Any) -> Any:
    """40 element-wise operations."""
    for _ in range(20):
        x = x * y
        x = x + 1.0
    return x


def sums(*arrays: Any) -> Any:
    """Reductions that nothing stands between."""
    return [array.to("{}") for array in arrays]


def norm(x: Any) -> Any:
    """Rows of length one."""
    return x / pgas.sqrt(pgas.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def block(x: Any, w: dict[str, Any]) -> Any:
    """Attention and an MLP, forward."""
    h = norm(x)
    q, k, v = (pgas.einsum("bsd,dhe->bshe", h, w[name]) for name in "qkv")
    s = pgas.einsum("bshe,bthe->bhst", q, k)
    e = pgas.exp(s - pgas.max(s, axis=-1, keepdims=True))
    o = pgas.einsum("bhst,bthe->bshe", e / pgas.sum(e, axis=-1, keepdims=True), v)
    x = x + pgas.einsum("bshe,hed->bsd", o, w["o"])
    u = pgas.einsum("bsd,df->bsf", norm(x), w["1"])
    return x + pgas.einsum("bsf,fd->bsd", u / (1 + pgas.exp(-u)), w["2"])


def distances(x: Any, c: Any) -> Any:
    """Squared distances; the array between join and sum is the largest by far."""
    return pgas.sum((x[:, None] - c[None]) ** 2, axis=-1)


def heat_step(u: Any) -> Any:
    """One step of the heat equation, with halos."""
    share = heat.SHARE

    def kernel(t: Any) -> Any:
        inner = t[1:-1]
        out = inner.copy()
        out[:, 1:-1] = share * (t[:-2, 1:-1] + t[2:, 1:-1] + inner[:, :-2] + inner[:, 2:])
        out[:, 1:-1] += (1 - 4 * share) * inner[:, 1:-1]
        return out

    return pgas.map_tiles(kernel, u, halo={0: 1})


def power_step(a: Any, v: Any) -> Any:
    """The example without its number: a better vector."""
    w = (a @ v).to("{}")
    return w / pgas.linalg.vector_norm(w)


def cases(ranks: int) -> list[ProgramCase]:
    """Everything that is compared, on so many ranks. **Collective over all of them.**"""
    rng = pgas.random.generator(1)
    mesh = Mesh(x=2, y=ranks // 2) if ranks % 2 == 0 else Mesh(x=ranks)
    pending = [pgas.sum(rng.normal((ranks, 512), type="{x}, {}"), axis=0) for _ in range(8)]
    weights = {name: rng.normal((128, 4, 32), mesh=mesh) for name in "qkv"}
    weights |= {
        "o": rng.normal((4, 32, 128), mesh=mesh),
        "1": rng.normal((128, 512), mesh=mesh),
        "2": rng.normal((512, 128), mesh=mesh),
    }
    points = kmeans.make(2**14, 8, 8)
    many = kmeans.make(2**18, 8, 8)
    tall, _, right = least_squares.make(2**16, 32)
    matrix = power_iteration.make(2048)
    whole = pgas.ones((2048,), type="{}")
    cube = pgas.astype(
        rng.uniform((128, 128, 64), type="{}, {x}, {y}", mesh=fft3d.square_mesh(ranks)), complex
    )
    train, serve = hand_over.meshes(ranks)
    model, types = hand_over.make(128, 8, train), hand_over.types(128, 8, serve)
    small = rng.normal((1000,)), rng.normal((1000,))
    far = rng.normal((2**14, 16), type="{x}, {}"), rng.normal((64, 16), type="{}, {}")
    tokens = rng.normal((2, 64, 128), mesh=mesh)
    few = points, points[:8].to("{}, {}")

    def hand(w: Any) -> Any:
        return pgas.move_together(w, types)

    case, example = ProgramCase, 1.03
    return [
        case("chain", "40 operations on 1,000 elements", chain, small, 0.3),
        case("sums", "8 pending sums of 4 KiB", sums, tuple(pending), None),
        case("kmeans", "2^14 points of 8", kmeans.step, few, 0.9),
        case("block", "attention and MLP, 2 x 64 x 128", block, (tokens, weights), 0.9),
        case("distances", "2^14 points, 64 centres of 16", distances, far, None),
        case("example fft3d", "128 x 128 x 64 c128", pgas.fft.fftn, (cube,), example),
        case("example hand_over", f"{len(model)} arrays", hand, (model,), example),
        case("example heat", "1024^2, map_tiles", heat_step, (heat.plate(1024),), example),
        case("example kmeans", "2^18 points of 8", kmeans.step, (many, few[1]), example),
        case(
            "example least_squares",
            "2^16 x 32",
            least_squares.fit,
            (tall, right.to("{x}")),
            example,
        ),
        case("example power_iteration", "2048^2, no limit", power_step, (matrix, whole), example),
    ]
