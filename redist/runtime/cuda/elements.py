"""Element-wise functions of arrays on a GPU as one kernel: read in words of 16 bytes, computed in registers.

CuPy launches a kernel for every function, and for every conversion before and after it, which read and write
an element at a time. Here some functions, each of which takes results of those before it, become one kernel::

    steps of 0 (bf16), 1 (a number)      for every word of 16 bytes: 8 elements of bf16
        2 = multiply 0, 1                    real v2 = rounded_bf16(v0 * v1);
        3 = tanh 2                           real v3 = rounded_bf16(tanh(v2));

A step of 16-bit floats is rounded in its register, so that one kernel gives the bits of one for each step.
Products are not fused with sums (``-fmad=false``), for the same reason.

Operands that are stretched to the shape of the result, and views, are read where they lie: dims that lie
alike in all arrays become one, and a word finds its place in each by the strides of those that are left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from redist.runtime.cuda.loops import n_processors, run_loop
from redist.runtime.cuda.strides import WORD_BYTES, Lies, joined_dims, lies_of, stretched

EXPRESSIONS: dict[str, str] = {
    "absolute": "fabs({0})", "add": "{0} + {1}", "arccos": "acos({0})", "arccosh": "acosh({0})",
    "arcsin": "asin({0})", "arcsinh": "asinh({0})", "arctan": "atan({0})", "arctan2": "atan2({0}, {1})",
    "arctanh": "atanh({0})", "ceil": "ceil({0})", "copysign": "copysign({0}, {1})", "cos": "cos({0})",
    "cosh": "cosh({0})", "divide": "{0} / {1}", "equal": "{0} == {1}", "exp": "exp({0})",
    "expm1": "expm1({0})", "floor": "floor({0})", "greater": "{0} > {1}", "greater_equal": "{0} >= {1}",
    "hypot": "hypot({0}, {1})", "isnan": "{0} != {0}", "less": "{0} < {1}", "less_equal": "{0} <= {1}",
    "log": "log({0})", "log10": "log10({0})", "log1p": "log1p({0})", "log2": "log2({0})",
    "maximum": "largest({0}, {1})", "minimum": "least({0}, {1})", "multiply": "{0} * {1}",
    "negative": "-{0}", "not_equal": "{0} != {1}", "positive": "{0}", "reciprocal": "(real)1 / {0}",
    "rint": "rint({0})", "round": "rint({0})", "sin": "sin({0})", "sinh": "sinh({0})",
    "sqrt": "sqrt({0})", "square": "{0} * {0}", "subtract": "{0} - {1}", "tan": "tan({0})",
    "tanh": "tanh({0})", "trunc": "trunc({0})", "where": "{0} ? {1} : {2}",
}  # fmt: skip
"""By NumPy's name of a function: what it is of its operands, which are real numbers or truth values."""
ROUNDED_AFTER = {
    "divide": "quick_quotient({0}, {1})", "exp": "quick_exp({0})", "reciprocal": "quick_quotient(1, {0})",
}  # fmt: skip
"""Where an f32 value is rounded to 16 bits at once: 16 right bits of its 24 do, and are made faster."""
TRUTHS = frozenset(
    {"equal", "greater", "greater_equal", "isnan", "less", "less_equal", "not_equal"}
)
ITEMS = {"bool": "unsigned char", "float16": "Half", "bfloat16": "Brain", "float32": "float",
         "float64": "double"}  # fmt: skip
"""The types of elements in memory, by NumPy's names."""
N_THREADS = 256
MOST_STRIDED = 6
"""Arrays that lie by strides have no more dims, once neighbours are joined."""
BLOCKS_EACH = 32
"""A processor works on no more blocks of threads."""

PRELUDE = """
typedef long long i64;
#ifndef ON_HOST
#define EACH_THREAD for (int tid = (int)threadIdx.x, once = 1; once; once = 0)
#define N_THREADS ((int)blockDim.x)
#endif
struct Half { unsigned short bits; };
struct Brain { unsigned short bits; };
union Bits { unsigned bits; float value; };
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T at[N]; };

static __device__ __forceinline__ float real_of(Brain x)
{
    Bits b;
    b.bits = (unsigned)x.bits << 16;
    return b.value;
}
static __device__ __forceinline__ float real_of(float x) { return x; }
static __device__ __forceinline__ double real_of(double x) { return x; }
static __device__ __forceinline__ bool real_of(unsigned char x) { return x != 0; }
static __device__ __forceinline__ float real_of(Half h)
{
#ifdef ON_HOST
    _Float16 x;
    memcpy(&x, &h, 2);
    return (float)x;
#else
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h.bits));
    return x;
#endif
}
static __device__ __forceinline__ void put(Brain &to, float x)
{
#if !defined(ON_HOST) && __CUDA_ARCH__ >= 900
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
    Bits b;
    b.value = x;
    if (x != x)
        to.bits = (unsigned short)(b.bits >> 16 | 0x40);
    else
        to.bits = (unsigned short)((b.bits + 0x7fff + (b.bits >> 16 & 1)) >> 16);
#endif
}
static __device__ __forceinline__ void put(Half &to, float x)
{
#ifdef ON_HOST
    _Float16 h = (_Float16)x;
    memcpy(&to, &h, 2);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#endif
}
static __device__ __forceinline__ void put(float &to, float x) { to = x; }
static __device__ __forceinline__ void put(double &to, double x) { to = x; }
static __device__ __forceinline__ void put(unsigned char &to, bool x) { to = x; }
template <class T> static __device__ __forceinline__ float rounded(float x)
{
    T to;
    put(to, x);
    return real_of(to);
}
static __device__ __forceinline__ float quick_quotient(float a, float b)
{
#ifdef ON_HOST
    return a / b;
#else
    float q; /* of all floats, to 2 units of the last place; __fdividef is wrong where b is large */
    asm("div.full.f32 %0, %1, %2;" : "=f"(q) : "f"(a), "f"(b));
    return q;
#endif
}
static __device__ __forceinline__ float quick_exp(float x)
{
#ifdef ON_HOST
    return exp(x);
#else
    return __expf(x);
#endif
}
template <class T> static __device__ __forceinline__ T largest(T a, T b) { return a >= b || a != a ? a : b; }
template <class T> static __device__ __forceinline__ T least(T a, T b) { return a <= b || a != a ? a : b; }
"""


@dataclass(frozen=True, slots=True)
class ElementStep:
    """A function of values by their numbers; ``dtype`` is that of its result, to which it is rounded."""

    name: str
    args: tuple[int, ...]
    dtype: str


def can_fuse(name: str, dtypes: Sequence[np.dtype[Any]]) -> bool:
    """Whether a function of elements of such dtypes has an expression."""
    return name in EXPRESSIONS and all(one.name in ITEMS for one in dtypes)


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel for operands that lie in one way, with its arguments before and after theirs."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    source: str
    name: str
    n_blocks: int
    head: tuple[np.int64, ...]
    tail: tuple[np.int64, ...] = ()

    def run(self, operands: Sequence[Any], lies: Lies) -> Any:
        """**Local.** Start it; a new array of what it makes."""
        import cupy

        out = cupy.empty(self.shape, self.dtype)
        if out.size:
            given = [
                np.float64(one) if lying is None else np.uintp(one.data.ptr)
                for one, lying in zip(operands, lies, strict=True)
            ]
            run_loop(
                self.source,
                self.name,
                self.n_blocks,
                N_THREADS,
                *self.head,
                *given,
                out,
                *self.tail,
            )
        return out


def words_of(*numbers: int) -> tuple[np.int64, ...]:
    """Whole numbers as arguments of a kernel."""
    return tuple(map(np.int64, numbers))


def run_steps(leaves: Sequence[Any], steps: Sequence[ElementStep]) -> Any:
    """**Local.** The result of the last step, in a new array; None if shapes do not fit together.

    Leaves are arrays of a GPU, and real numbers; values are numbered after them.
    """
    lies = lies_of(leaves)
    launch = None if lies is None else _launch(lies, tuple(steps), n_processors())
    return None if lies is None or launch is None else launch.run(leaves, lies)


@lru_cache(maxsize=4096)
def _launch(lies: Lies, steps: tuple[ElementStep, ...], processors: int) -> Launch | None:
    """The kernel of some steps; None where shapes do not fit together, or lie in a way that none takes."""
    shape = stretched(lies)
    if shape is None:
        return None
    arrays = [one for one in lies if one is not None]
    kinds = tuple(None if one is None else one.dtype.name for one in lies)
    dtype, n = np.dtype(steps[-1].dtype), math.prod(shape)
    width = (
        width_of([*filter(None, kinds), dtype.name]) if all(one.in_words for one in arrays) else 1
    )
    tail: tuple[np.int64, ...] = ()
    if all(one.shape == shape and one.is_contiguous for one in arrays):
        source, name, n_items = source_of(kinds, steps, width), "elements", n
        words = -(-n // width)
    else:
        sizes, strides = joined_dims(shape, [one.steps_in(shape) for one in arrays])
        inner = tuple(one[-1] for one in strides)
        whole = sizes[-1] % width == 0 and all(
            one in (0, 1) and (one == 0 or all(step % width == 0 for step in steps_of[:-1]))
            for one, steps_of in zip(inner, strides, strict=True)
        )
        width = width if whole else 1
        words = n_items = n // width
        if words >= 2**31 or len(sizes) > MOST_STRIDED:
            return None
        source, name = strided_source_of(kinds, steps, width, len(sizes), inner), "strided"
        tail = words_of(*sizes[:-1], sizes[-1] // width, *(step for one in strides for step in one))
    n_blocks = min(-(-words // N_THREADS), BLOCKS_EACH * processors)
    return Launch(shape, dtype, source, name, n_blocks, words_of(n_items), tail)


def width_of(dtypes: Sequence[str]) -> int:
    """How many elements the words of all arrays have: 16 bytes of the narrowest floats."""
    floats = [np.dtype(one).itemsize for one in dtypes if one != "bool"]
    return WORD_BYTES // min(floats, default=2)


# Parts of the texts of kernels. Leaves are numbered: array k is read at x<k>, o<k> is where it is read.


def pointers(leaves: Sequence[str | None]) -> list[str]:
    """Parameters of a kernel: arrays and numbers."""
    return [f"const {ITEMS[one]} *x{k}" if one else f"double x{k}" for k, one in enumerate(leaves)]


def lying(arrays: Sequence[int], n_dims: int) -> list[str]:
    """Parameters that say how arrays lie: sizes of dims, and for every array its steps."""
    steps = (f"i64 s{k}_{d}" for k in arrays for d in range(n_dims))
    return [*(f"i64 n{d}" for d in range(n_dims)), *steps]


def offsets(arrays: Sequence[int], n_dims: int, number: str, width: int = 1) -> list[str]:
    """Lines that find from the number ``left`` of an element, or of a word of some, where arrays have it."""
    lines = []
    for d in reversed(range(n_dims)):
        lines.append(f"const i64 i{d} = left{f' % ({number})n{d}' if d else ''};")
        scale = f" * {width}" if d == n_dims - 1 and width > 1 else ""
        lines += [f"o{k} += i{d} * s{k}_{d}{scale};" for k in arrays]
        lines += [f"left /= ({number})n{d};"] if d else []
    return lines


def reading(
    leaves: Sequence[str | None],
    inner: Mapping[int, int],
    width: int,
    at: Callable[[int, int], str],
) -> tuple[list[str], list[str]]:
    """Lines that read a word of every array, or an element of those that are stretched; what is read.

    ``at(k, n)`` is the place of array k, from where n elements are read.
    """
    lines, given = [], []
    for k, one in enumerate(leaves):
        if one is None:
            given.append(f"x{k}")
        elif width > 1 and inner[k]:
            pack = f"Pack<{ITEMS[one]}, {width}>"
            lines.append(f"const {pack} p{k} = *(const {pack} *)(x{k} + {at(k, width)});")
            given.append(f"p{k}.at[k]")
        else:
            lines.append(f"const {ITEMS[one]} p{k} = x{k}[{at(k, 1)}];")
            given.append(f"p{k}")
    return lines, given


@lru_cache(maxsize=1024)
def source_of(leaves: tuple[str | None, ...], steps: tuple[ElementStep, ...], width: int) -> str:
    """The text of a kernel: the dtypes of leaves (None: a number), and its steps.

    >>> text = source_of(("bfloat16", None), (ElementStep("add", (0, 1), "bfloat16"),), 8)
    >>> [line.strip() for line in text.splitlines() if "v2 =" in line or "Pack<Brain, 8> made" in line]
    ['const real v2 = rounded<Brain>(v0 + v1);', 'Pack<Brain, 8> made;']
    """
    out = ITEMS[steps[-1].dtype]
    whole = pointers(leaves)
    packs = [
        f"            const Pack<{ITEMS[one]}, {width}> p{k} ="
        f" ((const Pack<{ITEMS[one]}, {width}> *)x{k})[w];"
        for k, one in enumerate(leaves)
        if one and width > 1
    ]
    inner = ", ".join(f"p{k}.at[k]" if one else f"x{k}" for k, one in enumerate(leaves))
    single = ", ".join(f"x{k}[i]" if one else f"x{k}" for k, one in enumerate(leaves))
    by_words = "" if width == 1 else f"""
        for (i64 w = first; w < whole; w += step) {{
{chr(10).join(packs)}
            Pack<{out}, {width}> made;
#pragma unroll
            for (int k = 0; k < {width}; k++)
                made.at[k] = element({inner});
            ((Pack<{out}, {width}> *)out)[w] = made;
        }}"""  # fmt: skip
    start = "0" if width == 1 else f"n / {width}"
    return f"""{element_of(leaves, steps)}
extern "C" __global__ void elements(i64 n, {", ".join(whole)}, {out} *out)
{{
    EACH_THREAD
    {{
        const i64 first = (i64)blockIdx.x * N_THREADS + tid, step = (i64)gridDim.x * N_THREADS;
        const i64 whole = {start};{by_words}
        for (i64 i = whole * {width} + first; i < n; i += step)
            out[i] = element({single});
    }}
}}
"""


@lru_cache(maxsize=1024)
def strided_source_of(
    leaves: tuple[str | None, ...],
    steps: tuple[ElementStep, ...],
    width: int,
    n_dims: int,
    inner: tuple[int, ...],
) -> str:
    """The text of a kernel whose arrays lie by strides; those of arrays along the last dim are ``inner``.

    A word of an array that is stretched along the last dim is one element.

    >>> steps = (ElementStep("multiply", (0, 1), "bfloat16"),)
    >>> text = strided_source_of(("bfloat16", "float32"), steps, 8, 2, (1, 0))
    >>> [line.strip() for line in text.splitlines() if "made.at[k]" in line]
    ['made.at[k] = element(p0.at[k], p1);']
    """
    out = ITEMS[steps[-1].dtype]
    arrays = [k for k, one in enumerate(leaves) if one]
    by_number = dict(zip(arrays, inner, strict=True))
    params = [*pointers(leaves), f"{out} *out", *lying(arrays, n_dims)]
    lines = [f"i64 {', '.join(f'o{k} = 0' for k in arrays)};", "unsigned left = w;"]
    lines += offsets(arrays, n_dims, "unsigned", width)
    reads, given = reading(leaves, by_number, width, lambda k, _: f"o{k}")
    lines = [f"            {line}" for line in (*lines, *reads)]
    return f"""{element_of(leaves, steps)}
extern "C" __global__ void strided(i64 n, {", ".join(params)})
{{
    EACH_THREAD
    {{
        const i64 first = (i64)blockIdx.x * N_THREADS + tid, step = (i64)gridDim.x * N_THREADS;
        for (i64 w = first; w < n; w += step) {{
{chr(10).join(lines)}
            Pack<{out}, {width}> made;
#pragma unroll
            for (int k = 0; k < {width}; k++)
                made.at[k] = element({", ".join(given)});
            ((Pack<{out}, {width}> *)out)[w] = made;
        }}
    }}
}}
"""


def element_of(leaves: tuple[str | None, ...], steps: tuple[ElementStep, ...]) -> str:
    """What kernels begin with, and the function that makes an element of the result."""
    names = [one for one in leaves if one is not None]
    real = "double" if "float64" in (*names, *(step.dtype for step in steps)) else "float"
    params, lines = [], []
    truths: set[int] = set()
    for k, one in enumerate(leaves):
        params.append(f"double x{k}" if one is None else f"{ITEMS[one]} x{k}")
        kind = "bool" if one == "bool" else "real"
        truths |= {k} if kind == "bool" else set()
        lines.append(
            f"    const {kind} v{k} = ({kind}){f'x{k}' if one is None else f'real_of(x{k})'};"
        )
    for number, step in enumerate(steps, len(leaves)):
        given = [f"(real)v{k}" if k in truths else f"v{k}" for k in step.args]
        if step.name == "where":
            given[0] = f"v{step.args[0]}"
        is_half = step.dtype in ("float16", "bfloat16")
        quick = ROUNDED_AFTER.get(step.name) if is_half and real == "float" else None
        text = (quick or EXPRESSIONS[step.name]).format(*given)
        if step.name in TRUTHS or step.dtype == "bool":
            truths.add(number)
            lines.append(f"    const bool v{number} = {text};")
            continue
        if is_half:
            text = f"rounded<{ITEMS[step.dtype]}>({text})"
        lines.append(f"    const real v{number} = {text};")
    out = ITEMS[steps[-1].dtype]
    last = len(leaves) + len(steps) - 1
    return f"""{PRELUDE}
typedef {real} real;
static __device__ __forceinline__ {out} element({", ".join(params)})
{{
{chr(10).join(lines)}
    {out} made;
    put(made, v{last});
    return made;
}}
"""
